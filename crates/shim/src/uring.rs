//! io_uring, whose accept and connect pass the C library by.
//!
//! Programs that use io_uring are told that the kernel has none, for which they have another way. A
//! program that has no other way and uses io_uring for files may be given it by a variable.

use std::ffi::{CStr, c_int};

use crate::job::job;

const SWITCH: &CStr = c"ISTHMUS_IO_URING";
const ON: &CStr = c"on";

/// Whether this process may use io_uring.
pub(crate) fn is_allowed() -> bool {
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(SWITCH.as_ptr()) };
    // SAFETY: a C string of the environment, if there is one.
    job().is_none() || !value.is_null() && unsafe { CStr::from_ptr(value) } == ON
}

/// What liburing's functions return where the kernel has no io_uring.
pub(crate) const NONE: c_int = -libc::ENOSYS;
