//! Ranks that end in order after `MPI_Init`, and without `MPI_Finalize`.
//!
//! Some MPIs let the other ranks wait for such a rank for ever. The agent is told, so that the user
//! reads it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use isthmus_wire::shim::Request;

use crate::job::job;
use crate::{agent, children, exec, sys};

type AtExit = extern "C" fn(c_int, *mut c_void);

unsafe extern "C" {
    fn on_exit(function: AtExit, argument: *mut c_void) -> c_int;
}

/// Id of this process if it may be a rank; 0 if not. A child that it forks isn't a rank.
static RANK: AtomicI32 = AtomicI32::new(0);

/// Follows how this process ends, if a launcher has made it a rank.
pub(crate) fn follow() {
    if children::starts() || !exec::own_variables().any(|variable| children::rank(variable).is_some()) {
        return;
    }
    RANK.store(own_pid(), Ordering::Relaxed);
    // SAFETY: the function lives as long as the process.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    ends(status);
}

/// Tells the agent if this process is a rank that ends with status 0 and without `MPI_Finalize`.
pub(crate) fn ends(status: c_int) {
    // A process that has forbidden itself system calls has left its job, and makes none here.
    let Some(job) = job().filter(|_| status == 0) else { return };
    let rank = RANK.load(Ordering::Relaxed);
    if rank == 0 || rank != own_pid() {
        return;
    }
    // The agent is told once.
    RANK.store(0, Ordering::Relaxed);
    if asks(c"MPI_Initialized") == Some(true) && asks(c"MPI_Finalized") == Some(false) {
        let errno = sys::errno();
        let _ = agent::tell(job, &Request::Unfinished);
        sys::set_errno(errno);
    }
}

/// Asks the MPI a question that it answers at any time, such as `MPI_Initialized`. `None` if there
/// is no MPI.
fn asks(name: &CStr) -> Option<bool> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    type Asked = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: in every MPI the function of this name has this signature.
    let function = unsafe { std::mem::transmute::<*mut c_void, Asked>(found) };
    let mut flag = 0;
    // SAFETY: the flag is this function's own.
    let result = unsafe { function(&raw mut flag) };
    (result == 0).then_some(flag != 0)
}

fn own_pid() -> c_int {
    // SAFETY: it always succeeds.
    unsafe { libc::getpid() }
}
