//! Room in the kernel's table of descriptors.
//!
//! The table grows when a number beyond it is given out. In a process with several threads, the
//! kernel first waits until all processors have let go of the old table: 10 to 20 ms. The shim's
//! helper is a thread, so a program without threads would be held up as it never was before. While
//! the program has no thread, growing costs a few microseconds.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::limit;
use crate::sys::{self, OwnedFd};

/// As many numbers as most programs may have, by the usual soft limit.
const NUMBERS: u64 = 1024;

/// Id of the process whose table was grown. A fork shrinks the child's table.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Makes the table grow, unless that was done in this process.
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
