//! Threads that are to run soon after they wake, on processors that programs
//! keep busy: ranks poll, and hold up every connection that waits for an agent.

use std::io;

/// The shortest slice that the kernel grants.
const SLICE_NANOSECONDS: u64 = 100_000;

/// What the threads and processes that a thread starts have of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// Short slices, too.
    Likewise,
    /// Slices as usual: they may be programs.
    AsUsual,
}

/// Asks the kernel for short slices for the calling thread: it gets no larger
/// share of the processor, but its share sooner (`sched_setattr(2)`, custom
/// slices since Linux 6.12; an older kernel takes no notice).
pub fn run_soon_after_waking(children: Children) {
    if let Err(error) = set_slice(SLICE_NANOSECONDS, children) {
        tracing::debug!(%error, "no short slices");
    }
}

fn set_slice(nanoseconds: u64, children: Children) -> io::Result<()> {
    // SAFETY: all-zero is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or_default();
    let attributes_in = &raw mut attributes;
    // SAFETY: `attributes` is writable for its size.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes_in, attributes.size, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.sched_policy != libc::SCHED_OTHER.unsigned_abs() {
        return Ok(());
    }
    attributes.sched_flags = match children {
        Children::Likewise => 0,
        Children::AsUsual => u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs()),
    };
    attributes.sched_runtime = nanoseconds;
    // SAFETY: `attributes` is readable for its size.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
