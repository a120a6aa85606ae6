//! The shim's settings file: what is read, means the same when written.
#![no_main]

use isthmus_wire::settings::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(settings) = Settings::decode(text) {
        assert_eq!(Settings::decode(&settings.encode()), Ok(settings));
    }
});
