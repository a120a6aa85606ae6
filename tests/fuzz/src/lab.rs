//! What the lab reads.

use arbitrary::{Arbitrary as _, Unstructured};
use isthmus_lab::emulator::packet::{HEADER, Shape, shape};
use isthmus_lab::{Grid, topology};

/// Grid files: an accepted file has a topology with machines.
pub fn grid_file(bytes: &[u8]) {
    if let Ok(grid) = Grid::parse(crate::text(bytes), "fuzz", "fuzz") {
        assert!(!topology::topology(&grid).machines.is_empty());
    }
}

/// Cuts of super-packets: every part is a frame within the whole, and the lengths of all parts add
/// up to the whole's.
pub fn packet(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let cut = u16::arbitrary(&mut input).unwrap_or_default();
    let frame = input.take_rest();
    match shape(frame) {
        Shape::Single(length) => assert_eq!(length, frame.len().saturating_sub(HEADER)),
        Shape::Segments(whole) => {
            let count = whole.count();
            let cut = usize::from(cut) % count;
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
}
