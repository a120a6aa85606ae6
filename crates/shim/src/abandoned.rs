//! The requests of threads that wait in connect: so that they stay open whatever numbers the
//! program closes, and so that what a thread has abandoned is ended.
//!
//! A signal's handler may leave a connect by siglongjmp(3), as those of clients do that end a
//! connect after a time by SIGALRM. The request would stay open, and the socket count as being
//! connected.
//!
//! A thread that waits in connect runs nothing but handlers of signals, whose frames are
//! beyond that of the wait. So what the same thread finds left of a frame that is beyond its
//! own was abandoned. It looks when it closes or connects a socket.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::agent::{Asked, Exchange};
use crate::kept::Kept;
use crate::lock::Lock;
use crate::numbers::NO_CONNECT;
use crate::pending;
use crate::sys::Fd;

/// Most waits that are noted at a time. The request of a wait that isn't noted may be closed by the
/// program, or left open.
const MOST: usize = 256;
/// Bytes by which frames are told apart: the kernel puts more than that on the stack for a handler.
/// It is registers, their state for floating point, and information on the signal. The calls from a
/// hook to here need less.
const HANDLERS_FRAME: usize = 1024;

/// A thread's wait in connect.
#[derive(Clone, Copy)]
struct Wait {
    /// The wait's id; [`NO_CONNECT`] for an entry that is free.
    id: u64,
    /// The thread that waits, as `pthread_self(3)` has it.
    thread: usize,
    /// The address of the frame in which the thread waits; [`NO_FRAME`] while it doesn't.
    frame: usize,
    asked: Asked,
    /// The descriptor number that the program called connect with.
    fd: Fd,
}

/// The address of a frame that is never gone.
const NO_FRAME: usize = usize::MAX;
const NONE: Wait = Wait { id: NO_CONNECT, thread: 0, frame: 0, asked: Asked::NONE, fd: -1 };

static COUNT: AtomicUsize = AtomicUsize::new(0);
static WAITS: Lock<[Wait; MOST]> = Lock::new([NONE; MOST]);

/// Notes the request of a wait of this thread. Call with the list of pending connects locked.
pub(crate) fn note(id: u64, asked: Asked, fd: Fd) {
    WAITS.with(|waits| {
        if let Some(free) = waits.iter_mut().find(|wait| wait.id == NO_CONNECT) {
            *free = Wait { id, thread: this_thread(), frame: NO_FRAME, asked, fd };
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Notes that the thread waits in the frame at this address.
pub(crate) fn begin(id: u64, frame: usize) {
    find(id, |wait| wait.frame = frame);
}

/// The request of a wait as it is now; `None` if the wait isn't noted.
pub(crate) fn asked(id: u64) -> Option<Asked> {
    find(id, |wait| wait.asked)
}

/// Takes the request of a wait out, which is ended with that; `None` if the wait isn't noted.
pub(crate) fn take(id: u64) -> Option<Asked> {
    find(id, |wait| {
        let asked = wait.asked;
        clear(wait);
        asked
    })
}

fn find<R>(id: u64, action: impl FnOnce(&mut Wait) -> R) -> Option<R> {
    if COUNT.load(Ordering::Relaxed) == 0 || id == NO_CONNECT {
        return None;
    }
    WAITS.with(|waits| waits.iter_mut().find(|wait| wait.id == id).map(action))
}

/// Calls `action` on the descriptor of each request, which it may move. Call with the list of
/// pending connects locked.
pub(crate) fn each_kept(action: &mut dyn FnMut(&mut Kept)) {
    if COUNT.load(Ordering::Relaxed) > 0 {
        WAITS.with(|waits| {
            for wait in waits.iter_mut().filter(|wait| wait.id != NO_CONNECT) {
                let mut exchange = Exchange::from_asked(wait.asked);
                action(exchange.kept_mut());
                wait.asked = exchange.into_asked();
            }
        });
    }
}

/// Ends the waits that this thread has abandoned. Not to be called with the list of pending
/// connects locked.
pub(crate) fn end() {
    while COUNT.load(Ordering::Relaxed) > 0
        && !pending::elsewhere()
        && let Some(wait) = take_abandoned(this_thread(), here())
    {
        drop(Exchange::from_asked(wait.asked));
        pending::end_waiting(wait.id, Some(wait.fd));
    }
}

/// Takes out a wait that the thread has abandoned. `here` is the address of a frame that the thread
/// has now.
fn take_abandoned(thread: usize, here: usize) -> Option<Wait> {
    let candidate = |wait: &Wait| wait.id != NO_CONNECT && wait.thread == thread && is_dead(wait.frame, here);
    let has_some = WAITS.with(|waits| waits.iter().any(candidate));
    // A frame on a stack of signal handlers says nothing of where the other frames are.
    if !has_some || is_on_signal_stack() {
        return None;
    }
    WAITS.with(|waits| {
        let wait = waits.iter_mut().find(|wait| candidate(wait))?;
        let taken = *wait;
        clear(wait);
        Some(taken)
    })
}

/// Whether a frame is gone for a thread that has a frame at `here`: stacks grow downwards.
fn is_dead(frame: usize, here: usize) -> bool {
    here.saturating_add(HANDLERS_FRAME) > frame
}

fn clear(wait: &mut Wait) {
    *wait = NONE;
    COUNT.fetch_sub(1, Ordering::Relaxed);
}

/// Drops all waits but this thread's in a forked child, where no other thread waits. The child's
/// copies of their requests would keep them alive at the agent.
pub(crate) fn after_fork_in_child() {
    let own = this_thread();
    WAITS.after_fork(|waits| {
        for wait in waits.iter_mut().filter(|wait| wait.id != NO_CONNECT && wait.thread != own) {
            drop(Exchange::from_asked(wait.asked));
            clear(wait);
        }
    });
}

/// Takes the lock on the waits before a fork.
pub(crate) fn before_fork() {
    WAITS.before_fork(|_| {});
}

/// Releases the lock on the waits after a fork in the parent.
pub(crate) fn after_fork_in_parent() {
    WAITS.after_fork(|_| {});
}

fn this_thread() -> usize {
    // SAFETY: takes nothing.
    unsafe { libc::pthread_self() as usize }
}

/// An address of the caller's frame, or close to it.
#[inline(always)]
fn here() -> usize {
    let marker = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&marker)) as usize
}

/// Whether this thread runs a handler on an alternate stack (sigaltstack(2)).
fn is_on_signal_stack() -> bool {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: only asks; `stack` is writable.
    let known = unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) } == 0;
    // SAFETY: zeroed before, and all-zero is a valid `stack_t`.
    known && unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_beyond_one_s_own_are_gone() {
        for (what, frame, here, want) in [
            ("a caller further up", 10_000, 20_000, true),
            ("the same caller, called again", 10_000, 9_800, true),
            ("a handler on top of it", 10_000, 8_000, false),
            ("no frame yet", NO_FRAME, 20_000, false),
        ] {
            assert_eq!(is_dead(frame, here), want, "{what}");
        }
    }

    #[test]
    fn only_the_own_thread_s_waits_are_taken() {
        let (own, other) = (this_thread(), this_thread() + 1);
        let put = |id, thread, frame| {
            WAITS.with(|waits| {
                let free = waits.iter_mut().find(|wait| wait.id == NO_CONNECT).unwrap();
                *free = Wait { id, thread, frame, ..NONE };
                COUNT.fetch_add(1, Ordering::Relaxed);
            });
        };
        put(70_001, own, here() - 5000);
        put(70_002, other, here() - 5000);
        put(70_003, own, here() + 50_000);
        assert_eq!(take_abandoned(own, here()).map(|wait| wait.id), Some(70_001));
        assert!(take_abandoned(own, here()).is_none());
        assert!([70_002, 70_003].into_iter().all(|id| take(id).is_some()));
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
