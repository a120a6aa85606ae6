//! isthmus lab.
pub mod grid;
pub mod emulator;
