//! Scheduling of services on busy processors: they run soon after they wake. Ranks
//! poll, and would delay each connection that waits for an agent.

use std::io;
use std::time::Duration;

/// The shortest slice that the kernel grants.
const SLICE_NANOSECONDS: u64 = 100_000;

/// The nice value of a service that may have it. A service then weighs as much as
/// nine ranks. It uses the processor only while connections are made.
const NICE: i32 = -10;

/// The scheduling of threads and processes that a thread starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    /// They are scheduled like the thread itself.
    Same,
    /// They are scheduled as usual: they may be programs.
    Usual,
}

/// Asks the kernel for short slices and a low nice value, for the calling thread.
/// - Short slices need no privilege. They don't make the thread's share of the
///   processor larger, but give it sooner (`sched_setattr(2)`, since Linux 6.12;
///   an older kernel ignores them).
/// - The nice value needs privilege or `RLIMIT_NICE`. One that the process was
///   started with stays.
pub(crate) fn run_soon_after_waking(children: Children) {
    match attributes() {
        Ok(mut attributes) if attributes.sched_policy == libc::SCHED_OTHER.unsigned_abs() => {
            attributes.sched_flags = match children {
                Children::Same => 0,
                Children::Usual => u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs()),
            };
            attributes.sched_runtime = SLICE_NANOSECONDS;
            let started_with = attributes.sched_nice;
            if started_with == 0 {
                attributes.sched_nice = NICE;
            }
            let set = set(&attributes).or_else(|_| {
                attributes.sched_nice = started_with;
                set(&attributes)
            });
            if let Err(error) = set {
                tracing::debug!(%error, "no short slices");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "no short slices"),
    }
}

/// Asks the kernel for the low nice value for this process's session: processors are divided among
/// sessions first (sched(7), autogroup). Does so only if the process leads its session, which it
/// then shares with no shell. Jobs have sessions of their own.
pub(crate) fn raise_own_session() {
    if nix::unistd::getsid(None) != Ok(nix::unistd::getpid()) {
        return;
    }
    // The kernel takes one such write per 100 ms from all ordinary users together.
    for _ in 0..5 {
        match std::fs::write("/proc/self/autogroup", NICE.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(110));
            }
            Err(error) => return tracing::debug!(%error, "the session's share of the processor is as usual"),
            Ok(()) => return,
        }
    }
}

fn attributes() -> io::Result<libc::sched_attr> {
    // SAFETY: all-zero is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or_default();
    let attributes_in = &raw mut attributes;
    // SAFETY: `attributes` is writable for its size.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes_in, attributes.size, 0) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: `attributes` is readable for its size.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
