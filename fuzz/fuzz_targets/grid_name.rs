//! Grid names: one that is read is lower-case, a valid host name, and reads
//! the same again.
#![no_main]

use isthmus_wire::GridName;
use libfuzzer_sys::fuzz_target;

/// Two labels and the dot between them.
const LONGEST: usize = 63 + 1 + 63;

fuzz_target!(|text: &str| {
    if let Ok(name) = text.parse::<GridName>() {
        let printed = name.to_string();
        assert!(printed.len() <= LONGEST && printed.eq_ignore_ascii_case(text));
        assert_eq!(printed.parse(), Ok(name));
    }
});
