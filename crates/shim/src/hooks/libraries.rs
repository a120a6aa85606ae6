//! Functions of other libraries than the C library.

use std::ffi::{c_int, c_uint, c_void};

use libc::size_t;

use crate::{next, ucx, uring};

hooks! {
    /// liburing's: its accept and connect pass the C library.
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        if uring::is_allowed() { next::io_uring_queue_init(entries, ring, flags) } else { uring::NONE }
    }

    /// liburing's.
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        if uring::is_allowed() {
            next::io_uring_queue_init_params(entries, ring, parameters)
        } else {
            uring::NONE
        }
    }

    /// liburing's.
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: size_t
    ) -> c_int {
        if uring::is_allowed() {
            next::io_uring_queue_init_mem(entries, ring, parameters, buffer, size)
        } else {
            uring::NONE
        }
    }

    /// liburing's.
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
        if uring::is_allowed() { next::io_uring_setup(entries, parameters) } else { uring::NONE }
    }

    /// UCX's; see [`ucx`].
    fn ucp_worker_progress(worker: *mut c_void) -> c_uint {
        ucx::progress(worker)
    }

    /// UCX's.
    fn ucp_disconnect_nb(endpoint: *mut c_void) -> *mut c_void {
        ucx::disconnect(endpoint)
    }

    /// UCX's.
    fn ucp_request_release(request: *mut c_void) {
        ucx::release(request);
    }

    /// UCX's.
    fn ucp_worker_destroy(worker: *mut c_void) {
        ucx::destroy(worker);
    }
}
