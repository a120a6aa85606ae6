//! Has `MPI_Finalize` of MPICH 4 over UCX end (Debian's).
//!
//! MPICH 4.0 closes its endpoints and polls UCX until each is flushed. Then it waits for the other
//! ranks in a barrier of its launcher, without polling (`MPIDI_UCX_mpi_finalize_hook`). A flush
//! over TCP wants an acknowledgement, which the other side gives when it polls (`uct_tcp_ep_flush`
//! of UCX 1.13). So a rank that connects or closes later than the others waits for them, and they
//! wait for it. They do so forever, with isthmus and without.
//!
//! From the first endpoint that MPICH closes until it destroys its workers, a thread of the shim
//! polls them, too. Only in that time, the calls of MPICH and of the thread take a lock. No other
//! call of UCX comes in between.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::job::job;
use crate::lock::{block_signals, restore_signals};

/// Pause of the thread between two polls. Nobody waits for it but ranks that are about to end.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of stack, enough for what UCX calls.
const STACK: usize = 512 << 10;
/// MPICH's library; the next is UCX's.
const MPICH: &CStr = c"libmpich.so.12";
const UCP: &CStr = c"libucp.so.0";

/// Whether MPICH closes its endpoints.
static ENDING: AtomicBool = AtomicBool::new(false);
static POLLING: Mutex<Polling> = Mutex::new(Polling { workers: Vec::new(), thread: None });

/// The workers that are polled, and the thread that polls them.
struct Polling {
    workers: Vec<Worker>,
    thread: Option<JoinHandle<()>>,
}

/// A worker of UCX (`ucp_worker_h`).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Worker(*mut c_void);

// SAFETY: UCX lets any thread use a worker, one at a time.
unsafe impl Send for Worker {}

/// Defines functions that call UCX's own: `$name` calls `ucp_$name`.
macro_rules! ucp {
    ($($name:ident($argument:ident) -> $result:ty, else $missing:expr;)*) => {
        $(
            /// # Safety
            /// As the function itself demands.
            #[allow(clippy::unused_unit, reason = "some return nothing")]
            unsafe fn $name($argument: *mut c_void) -> $result {
                static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
                let pointer = resolve(&REAL, concat!("ucp_", stringify!($name), "\0"));
                if pointer.is_null() {
                    return $missing;
                }
                type Function = unsafe extern "C-unwind" fn(*mut c_void) -> $result;
                // SAFETY: UCX's function of this name has this signature.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(pointer) };
                // SAFETY: the caller fulfils what the function demands.
                unsafe { function($argument) }
            }
        )*
    };
}

ucp! {
    worker_progress(worker) -> c_uint, else 0;
    disconnect_nb(endpoint) -> *mut c_void, else null_mut();
    request_release(request) -> (), else ();
    worker_destroy(worker) -> (), else ();
}

/// UCX's function of this name, also where a program has loaded UCX for itself alone. Null if there
/// is none.
fn resolve(slot: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let handle = loaded(UCP);
    let handle = if handle.is_null() { libc::RTLD_NEXT } else { handle };
    // SAFETY: `name` ends with a NUL.
    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
    slot.store(found, Ordering::Relaxed);
    found
}

/// The handle of a library; null unless this process has loaded it.
fn loaded(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string; nothing is loaded.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

fn polling() -> MutexGuard<'static, Polling> {
    POLLING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replacement for `ucp_worker_progress`. MPI makes one such call after the other.
///
/// # Safety
/// As UCX's function.
pub(crate) unsafe fn progress(worker: *mut c_void) -> c_uint {
    if !ENDING.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        return unsafe { worker_progress(worker) };
    }
    let mut polling = polling();
    if !polling.workers.contains(&Worker(worker)) {
        polling.workers.push(Worker(worker));
    }
    // SAFETY: the caller's promise; the thread waits.
    unsafe { worker_progress(worker) }
}

/// Replacement for `ucp_disconnect_nb`, which MPICH 4 calls in `MPI_Finalize` alone.
///
/// # Safety
/// As UCX's function.
pub(crate) unsafe fn disconnect(endpoint: *mut c_void) -> *mut c_void {
    let mut polling = polling();
    if !ENDING.load(Ordering::Relaxed) && job().is_some() && !loaded(MPICH).is_null() {
        polling.thread = start();
        ENDING.store(polling.thread.is_some(), Ordering::Relaxed);
    }
    // SAFETY: the caller's promise; the thread waits.
    unsafe { disconnect_nb(endpoint) }
}

/// Replacement for `ucp_request_release`.
///
/// # Safety
/// As UCX's function.
pub(crate) unsafe fn release(request: *mut c_void) {
    let _polling = ENDING.load(Ordering::Relaxed).then(polling);
    // SAFETY: the caller's promise; the thread waits.
    unsafe { request_release(request) };
}

/// Replacement for `ucp_worker_destroy`.
///
/// # Safety
/// As UCX's function.
pub(crate) unsafe fn destroy(worker: *mut c_void) {
    if ENDING.load(Ordering::Relaxed) {
        let mut polling = polling();
        polling.workers.retain(|other| *other != Worker(worker));
        if polling.workers.is_empty() {
            ENDING.store(false, Ordering::Relaxed);
            let thread = polling.thread.take();
            drop(polling);
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
    }
    // SAFETY: the caller's promise; the thread polls it no longer.
    unsafe { worker_destroy(worker) };
}

/// Starts the thread that polls, which gets no signals of the program. `None` if it can't be
/// started: then all is as it would be without the shim.
fn start() -> Option<JoinHandle<()>> {
    let mask = block_signals();
    let started =
        std::thread::Builder::new().name("isthmus-end".to_owned()).stack_size(STACK).spawn(poll).ok();
    restore_signals(mask);
    started
}

fn poll() {
    loop {
        std::thread::sleep(PAUSE);
        let polling = polling();
        if !ENDING.load(Ordering::Relaxed) {
            return;
        }
        for worker in &polling.workers {
            // SAFETY: MPICH polls it as well, and hasn't destroyed it; it waits meanwhile.
            unsafe { worker_progress(worker.0) };
        }
    }
}
