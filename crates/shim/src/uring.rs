//! io_uring: its accept and connect pass the C library. Programs that use it are told that
//! the kernel has none, for which they have another way. Where one has not, and uses it for
//! files, a variable lets it.

use std::ffi::{CStr, c_int};

use crate::job::job;

const SWITCH: &CStr = c"ISTHMUS_IO_URING";
const ON: &CStr = c"on";

/// Whether this process may have io_uring.
pub(crate) fn is_allowed() -> bool {
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(SWITCH.as_ptr()) };
    // SAFETY: a C string of the environment, if there is one.
    job().is_none() || !value.is_null() && unsafe { CStr::from_ptr(value) } == ON
}

/// What liburing's functions return where the kernel has no io_uring.
pub(crate) const NONE: c_int = -libc::ENOSYS;
