//! Files: those that tell the node's addresses, and room for all others.

use std::ffi::{c_char, c_int, c_uint};

use libc::FILE;

use crate::{gate, next, proc_net};

/// Opens a file of the shim's, or by `open`, for which requests give way.
///
/// # Safety
/// As open(2).
unsafe fn file(path: *const c_char, flags: c_int, open: impl FnMut() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { proc_net::open(path, flags) }.unwrap_or_else(|| gate::with_room(open))
}

/// Opens a stream, as [`file`].
///
/// # Safety
/// As fopen(3).
unsafe fn stream(path: *const c_char, mode: *const c_char, mut open: impl FnMut() -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { proc_net::stream(path, mode) }.unwrap_or_else(|| {
        let mut stream = std::ptr::null_mut();
        gate::with_room(|| {
            stream = open();
            if stream.is_null() { -1 } else { 0 }
        });
        stream
    })
}

hooks! {
    /// open(2): opens a file of the shim's in the place of a file that tells the node's addresses.
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        file(path, flags, || next::open(path, flags, mode))
    }

    /// open(2) of programs built for large files.
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        file(path, flags, || next::open64(path, flags, mode))
    }

    /// openat(2): as [`open`], for a file that is named by its absolute path.
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        file(path, flags, || next::openat(directory, path, flags, mode))
    }

    /// openat(2) of programs built for large files.
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        file(path, flags, || next::openat64(directory, path, flags, mode))
    }

    /// open(2) of programs built with `_FORTIFY_SOURCE`.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        file(path, flags, || next::__open_2(path, flags))
    }

    /// open(2) of programs built with `_FORTIFY_SOURCE` and for large files.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        file(path, flags, || next::__open64_2(path, flags))
    }

    /// openat(2) of programs built with `_FORTIFY_SOURCE`.
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        file(path, flags, || next::__openat_2(directory, path, flags))
    }

    /// openat(2) of programs built with `_FORTIFY_SOURCE` and for large files.
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        file(path, flags, || next::__openat64_2(directory, path, flags))
    }

    /// fopen(3): opens a file of the shim's in the place of a file that tells the node's addresses.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        stream(path, mode, || next::fopen(path, mode))
    }

    /// fopen(3) of programs built for large files.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        stream(path, mode, || next::fopen64(path, mode))
    }
}
