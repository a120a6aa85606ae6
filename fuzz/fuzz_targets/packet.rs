//! The lab's cutting of super-packets: whatever a device gives, every cut is a
//! frame within the whole, and the cuts' lengths add up to it.
#![no_main]

use arbitrary::Arbitrary;
use isthmus_lab::emulator::packet::{HEADER, Shape, shape};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cut: u16,
    frame: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let frame = input.frame;
    match shape(frame) {
        Shape::Single(length) => assert_eq!(length, frame.len().saturating_sub(HEADER)),
        Shape::Segments(whole) => {
            let count = whole.count();
            let cut = usize::from(input.cut) % count;
            let (first, rest) = (whole.extract(frame, 0..cut), whole.extract(frame, cut..count));
            assert!(first.len() <= frame.len() && rest.len() <= frame.len());
            if cut > 0 {
                let headers = first.len() + rest.len() - frame.len();
                assert!(headers > HEADER && headers < frame.len());
                let on_the_wire: usize = (0..count).map(|segment| whole.wire_length(segment)).sum();
                assert_eq!(on_the_wire, frame.len() - headers + count * (headers - HEADER));
            }
        }
    }
});
