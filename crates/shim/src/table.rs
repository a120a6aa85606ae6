//! Room in the kernel's table of descriptors. It grows when a number beyond it
//! is given out, and where threads share it the kernel first waits until all
//! processors have let go of the old one: 10 to 20 ms. The shim's helper is a
//! thread, so a program that has none would be held up as it never was before.
//! While it has none, growing costs a few microseconds.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::limit;
use crate::sys::{self, OwnedFd};

/// As many numbers as most programs may have (the usual soft limit).
const NUMBERS: u64 = 1024;

/// The process whose table was grown; fork shrinks the child's table.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Makes room, unless this process has it.
pub(crate) fn make_room() {
    // SAFETY: takes nothing.
    let own = unsafe { libc::getpid() };
    if PROCESS.swap(own, Ordering::Relaxed) == own {
        return;
    }
    let Ok((one, _other)) = sys::socket_pair(libc::SOCK_DGRAM) else { return };
    let last = limit::current().map_or(NUMBERS, |limit| limit.rlim_cur.min(NUMBERS)).saturating_sub(1);
    if let Ok(copy) = sys::fcntl(one.raw(), libc::F_DUPFD_CLOEXEC, i64::try_from(last).unwrap_or(0)) {
        drop(OwnedFd::from_raw(copy));
    }
}
