//! The lab's grid file: what is accepted has a topology.
#![no_main]

use isthmus_lab::{Grid, topology};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(grid) = Grid::parse(text, "fuzz", "fuzz") {
        assert!(!topology::topology(&grid).machines.is_empty());
    }
});
