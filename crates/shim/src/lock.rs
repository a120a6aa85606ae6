//! A lock for a library in a foreign process. It can be held across a fork. Signals wait while it
//! is held, so that a handler of the program may call hooked functions. `close` and its like are
//! async-signal-safe, and must remain so.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::raw;

/// A value and the lock that guards it.
pub(crate) struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// The thread that holds the lock around a `fork`, or 0.
    forking: AtomicUsize,
    /// The signal mask of the thread that holds the lock around a fork.
    forking_mask: UnsafeCell<u64>,
    value: UnsafeCell<T>,
}

// SAFETY: the fields are only reached by the thread that holds the mutex.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            forking: AtomicUsize::new(0),
            forking_mask: UnsafeCell::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `action` with the lock held. `action` must neither call a hooked
    /// function nor wait for anything outside this process.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        // This thread is forking: another library's handler of the fork calls a hooked function.
        if self.forking.load(Ordering::Relaxed) == this_thread() {
            // SAFETY: this thread holds the mutex, and no `action` is going on.
            return action(unsafe { &mut *self.value.get() });
        }
        let mask = block_signals();
        self.acquire();
        // SAFETY: this thread holds the mutex, and `with` never nests.
        let result = action(unsafe { &mut *self.value.get() });
        self.release();
        restore_signals(mask);
        result
    }

    /// Takes the lock before a `fork`, so that the child gets a whole value;
    /// `action` comes last.
    pub(crate) fn before_fork(&self, action: impl FnOnce(&mut T)) {
        let mask = block_signals();
        self.acquire();
        // SAFETY: this thread holds the mutex.
        unsafe { *self.forking_mask.get() = mask }
        // SAFETY: as above.
        action(unsafe { &mut *self.value.get() });
        self.forking.store(this_thread(), Ordering::Relaxed);
    }

    /// Releases the lock after a `fork`, in parent and child; `action` runs first.
    pub(crate) fn after_fork(&self, action: impl FnOnce(&mut T)) {
        self.forking.store(0, Ordering::Relaxed);
        // SAFETY: this thread, or the one it is a copy of, holds the mutex
        // since `before_fork`.
        action(unsafe { &mut *self.value.get() });
        // SAFETY: as above.
        let mask = unsafe { *self.forking_mask.get() };
        self.release();
        restore_signals(mask);
    }

    fn acquire(&self) {
        // SAFETY: the mutex is initialised and never moves: locks are statics.
        // It can't fail: the mutex is of the default kind.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    fn release(&self) {
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

/// A number of the calling thread, never 0. In a forked child it is the number of the thread that
/// forked.
fn this_thread() -> usize {
    // SAFETY: takes nothing.
    unsafe { libc::pthread_self() as usize }
}

/// The signals that wait while the lock is held: all but the two that the C library keeps for
/// itself. Those are 32 and 33, for cancellation and for `setuid` in all threads.
const MASK: u64 = !(0b11 << 31);

/// Blocks signals in the calling thread. Returns the mask that it had.
pub(crate) fn block_signals() -> u64 {
    set_mask(libc::SIG_BLOCK, MASK)
}

pub(crate) fn restore_signals(mask: u64) {
    set_mask(libc::SIG_SETMASK, mask);
}

/// A signal mask as the C library has it.
pub(crate) fn as_set(mask: u64) -> libc::sigset_t {
    // SAFETY: all-zero is a valid `sigset_t`, whose first 8 bytes are the kernel's.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it has more than 8 bytes.
    unsafe { (&raw mut set).cast::<u64>().write_unaligned(mask) };
    set
}

fn set_mask(how: std::ffi::c_int, mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: both masks are of the kernel's size, 8 bytes.
    unsafe { raw::call!(libc::SYS_rt_sigprocmask, how, &raw const mask, &raw mut before, size_of::<u64>()) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_while_the_lock_is_held_and_the_mask_comes_back() {
        static LOCK: Lock<u32> = Lock::new(1);
        let before = set_mask(libc::SIG_BLOCK, 0);
        let inside = LOCK.with(|value| {
            *value += 1;
            set_mask(libc::SIG_BLOCK, 0)
        });
        assert_eq!(set_mask(libc::SIG_BLOCK, 0), before);
        // The kernel never lets SIGKILL and SIGSTOP be blocked.
        let unblockable = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        assert_eq!(inside & MASK, MASK & !unblockable);
        assert_eq!(LOCK.with(|value| *value), 2);
    }

    #[test]
    fn the_thread_that_forks_may_use_what_it_holds() {
        static LOCK: Lock<u32> = Lock::new(1);
        LOCK.before_fork(|value| *value += 1);
        assert_eq!(LOCK.with(|value| *value), 2);
        LOCK.after_fork(|value| *value += 1);
        assert_eq!(LOCK.with(|value| *value), 3);
    }

    #[test]
    fn only_one_thread_at_a_time() {
        static LOCK: Lock<u64> = Lock::new(0);
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1000).for_each(|_| LOCK.with(|n| *n += 1)))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(LOCK.with(|n| *n), 4000);
    }
}
