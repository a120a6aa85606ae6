//! Results of system calls.

use std::ffi::{c_int, c_long};

/// A borrowed descriptor, usually the program's.
pub(crate) type Fd = c_int;

/// The `errno` with which a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// Result of a system call that the shim makes.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// The calling thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library guarantees a valid pointer for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library guarantees a valid pointer for the calling thread.
    unsafe { *libc::__errno_location() = value }
}

pub(crate) fn check(value: c_long) -> Result<c_int> {
    if value < 0 { Err(Errno(errno())) } else { Ok(c_int::try_from(value).unwrap_or(c_int::MAX)) }
}

/// Gives a result as C functions do: the value, or -1 with `errno` set.
pub(crate) fn plain(result: Result<c_int>) -> c_int {
    match result {
        Ok(value) => value,
        Err(Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}
