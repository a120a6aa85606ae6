//! Functions of other libraries than the C library.

use std::ffi::{c_int, c_uint, c_void};

use libc::size_t;

use crate::{next, ucx, uring};

hooks! {
    /// liburing's function that makes a ring: fails unless [`uring`] allows it, since accept and
    /// connect by a ring pass the C library.
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        if uring::is_allowed() { next::io_uring_queue_init(entries, ring, flags) } else { uring::NONE }
    }

    /// liburing's function that makes a ring with parameters: fails like [`io_uring_queue_init`].
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        if uring::is_allowed() {
            next::io_uring_queue_init_params(entries, ring, parameters)
        } else {
            uring::NONE
        }
    }

    /// liburing's function that makes a ring in given memory: fails like [`io_uring_queue_init`].
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: size_t
    ) -> c_int {
        if uring::is_allowed() {
            next::io_uring_queue_init_mem(entries, ring, parameters, buffer, size)
        } else {
            uring::NONE
        }
    }

    /// liburing's function for the system call that makes a ring: fails like
    /// [`io_uring_queue_init`].
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
        if uring::is_allowed() { next::io_uring_setup(entries, parameters) } else { uring::NONE }
    }

    /// UCX's function that polls a worker; see [`ucx`].
    fn ucp_worker_progress(worker: *mut c_void) -> c_uint {
        ucx::progress(worker)
    }

    /// UCX's function that begins to close an endpoint; see [`ucx`].
    fn ucp_disconnect_nb(endpoint: *mut c_void) -> *mut c_void {
        ucx::disconnect(endpoint)
    }

    /// UCX's function that releases a request; see [`ucx`].
    fn ucp_request_release(request: *mut c_void) {
        ucx::release(request);
    }

    /// UCX's function that destroys a worker; see [`ucx`].
    fn ucp_worker_destroy(worker: *mut c_void) {
        ucx::destroy(worker);
    }
}
