//! Signals that end launchers and their daemons.
//!
//! Launchers and their daemons handle such signals: they end their ranks, and then themselves.
//! Their agent is told of the signal before the handler runs, so that the user reads who ended the
//! job.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use isthmus_wire::shim::Request;
use libc::{sighandler_t, siginfo_t};

use crate::job::job;
use crate::{agent, children, next, sys};

/// The signals of which the agent is told.
const TOLD: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// The program's handler of a signal, and the handler's flags.
struct Handled {
    handler: AtomicUsize,
    flags: AtomicI32,
}

static HANDLED: [Handled; TOLD.len()] =
    [const { Handled { handler: AtomicUsize::new(0), flags: AtomicI32::new(0) } }; TOLD.len()];

/// Where this process's handler of a signal is kept; `None` if its agent isn't told of the signal.
fn place(signal: c_int) -> Option<&'static Handled> {
    let place = TOLD.iter().position(|told| *told == signal)?;
    HANDLED.get(place).filter(|_| children::starts())
}

/// Replacement for sigaction(2).
///
/// # Safety
/// As sigaction(2).
pub(crate) unsafe fn set(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(handled) = place(signal) else {
        // SAFETY: the caller's promise.
        return unsafe { next::sigaction(signal, new, old) };
    };
    let former = (handled.handler.load(Ordering::Relaxed), handled.flags.load(Ordering::Relaxed));
    let mut own;
    let mut set = new;
    if !new.is_null() {
        // SAFETY: not null, so valid by the caller's promise.
        own = unsafe { new.read() };
        if !matches!(own.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            handled.flags.store(own.sa_flags, Ordering::Relaxed);
            handled.handler.store(own.sa_sigaction, Ordering::Relaxed);
            own.sa_sigaction = wrapper();
            own.sa_flags |= libc::SA_SIGINFO;
            set = &raw const own;
        }
    }
    // SAFETY: as the caller's, or a handler that calls the program's own.
    let result = unsafe { next::sigaction(signal, set, old) };
    if result == 0 && !old.is_null() {
        // SAFETY: the kernel has just written there.
        let old = unsafe { &mut *old };
        if old.sa_sigaction == wrapper() {
            (old.sa_sigaction, old.sa_flags) = former;
        }
    }
    result
}

/// Replacement for signal(2).
///
/// # Safety
/// As signal(2).
pub(crate) unsafe fn set_simply(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if place(signal).is_none() || handler == libc::SIG_ERR {
        // SAFETY: the caller's promise.
        return unsafe { next::signal(signal, handler) };
    }
    // As with the C library's function, the signal itself is blocked meanwhile, and calls are
    // restarted.
    let mut new = no_action();
    (new.sa_sigaction, new.sa_flags) = (handler, libc::SA_RESTART);
    let mut old = no_action();
    // SAFETY: the set is this function's own.
    let masked = unsafe { libc::sigaddset(&raw mut new.sa_mask, signal) };
    // SAFETY: both are this function's own; the handler is the caller's promise.
    if masked != 0 || unsafe { set(signal, &raw const new, &raw mut old) } != 0 {
        return libc::SIG_ERR;
    }
    old.sa_sigaction
}

fn no_action() -> libc::sigaction {
    // SAFETY: all-zero is a valid `sigaction`: the default one, with an empty set.
    unsafe { std::mem::zeroed() }
}

fn wrapper() -> sighandler_t {
    let handler: extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) = tell;
    handler as sighandler_t
}

/// Tells the agent of a signal, and calls the program's handler.
extern "C-unwind" fn tell(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handled) = place(signal) else { return };
    let errno = sys::errno();
    // SAFETY: the kernel's own; a signal of a process has its id.
    let sender = if info.is_null() { 0 } else { unsafe { (*info).si_pid() } };
    if let (Some(job), Ok(signal)) = (job(), u32::try_from(signal)) {
        let sender = u32::try_from(sender).unwrap_or(0);
        let _ = agent::tell(job, &Request::Signalled { signal, sender });
    }
    sys::set_errno(errno);
    let handler = handled.handler.load(Ordering::Relaxed);
    if handler == 0 {
        return;
    }
    if handled.flags.load(Ordering::Relaxed) & libc::SA_SIGINFO == 0 {
        // SAFETY: the program has given it as a handler of this kind.
        let handler = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn(c_int)>(handler) };
        return handler(signal);
    }
    type Informed = extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    // SAFETY: the same.
    let handler = unsafe { std::mem::transmute::<usize, Informed>(handler) };
    handler(signal, info, context);
}
