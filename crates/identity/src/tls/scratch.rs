//! Memory for the time of one call. A thread has it, so that its connections need none.

use std::cell::RefCell;

use super::records::{MAX_RECORD, sealed_len};

/// Most bytes of plaintext that a single write seals.
pub(super) const WRITE: usize = 64 * 1024;
/// Room for a single read, behind the start of a record.
const READ: usize = 2 * MAX_RECORD;

thread_local! {
    static OPENING: RefCell<Vec<u8>> = RefCell::default();
    static SEALING: RefCell<Vec<u8>> = RefCell::default();
    static GATHERING: RefCell<Vec<u8>> = RefCell::default();
}

/// Runs with memory for records that are read.
pub(super) fn opening<T>(run: impl FnOnce(&mut [u8]) -> T) -> T {
    OPENING.with_borrow_mut(|scratch| {
        scratch.resize(READ, 0);
        run(scratch)
    })
}

/// Runs with memory for [`WRITE`] bytes as records.
pub(super) fn sealing<T>(run: impl FnOnce(&mut [u8]) -> T) -> T {
    SEALING.with_borrow_mut(|scratch| {
        scratch.resize(sealed_len(WRITE), 0);
        run(scratch)
    })
}

/// Runs with up to [`WRITE`] bytes of several buffers in a single piece.
pub(super) fn gathered<T>(buffers: &[std::io::IoSlice<'_>], run: impl FnOnce(&[u8]) -> T) -> T {
    GATHERING.with_borrow_mut(|scratch| {
        scratch.clear();
        for buffer in buffers {
            let room = WRITE - scratch.len();
            scratch.extend_from_slice(&buffer[..buffer.len().min(room)]);
        }
        run(scratch)
    })
}
