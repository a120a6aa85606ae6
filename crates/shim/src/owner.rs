//! The owner of a socket: who gets a signal when something happens on it (`O_ASYNC`, fcntl(2)).

use std::ffi::c_int;

use crate::raw;
use crate::sys::{self, Fd};

/// A command of fcntl(2) that the libc crate lacks for this C library, as are the next.
pub(crate) const F_SETSIG: c_int = 10;
pub(crate) const F_SETOWN_EX: c_int = 15;
pub(crate) const F_GETSIG: c_int = 11;
pub(crate) const F_GETOWN_EX: c_int = 16;
const F_OWNER_TID: c_int = 0;
const F_OWNER_PGRP: c_int = 2;
/// `si_code` of a signal of input and output that a process queues (sigaction(2)).
const SI_SIGIO: c_int = -5;

/// `struct f_owner_ex`: the kind and the id of a descriptor's owner.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    kind: c_int,
    /// The id of the thread, process or process group; 0 for no owner.
    id: c_int,
}

/// What the kernel tells with a signal of input and output (`siginfo_t`).
#[repr(C, align(8))]
struct Information {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _padding: c_int,
    band: i64,
    fd: Fd,
    _rest: [u8; 100],
}

impl Owner {
    fn of(fd: Fd) -> Option<Self> {
        let mut owner = Self { kind: F_OWNER_TID, id: 0 };
        // SAFETY: `owner` is writable and of the type that the kernel writes.
        let known = unsafe { raw::call!(libc::SYS_fcntl, fd, F_GETOWN_EX, &raw mut owner) } == 0;
        (known && owner.id != 0).then_some(owner)
    }
}

/// Gives `to` the owner of `from` and the signal that the owner gets.
pub(crate) fn carry(from: Fd, to: Fd) {
    if let Some(owner) = Owner::of(from) {
        // SAFETY: `owner` is readable and of the type that the kernel reads.
        unsafe { raw::call!(libc::SYS_fcntl, to, F_SETOWN_EX, &raw const owner) };
    }
    if let Ok(signal) = sys::fcntl(from, F_GETSIG, 0)
        && signal != 0
    {
        let _ = sys::fcntl(to, F_SETSIG, signal.into());
    }
}

/// Has the kernel name the number `fd` in signals of a socket that was put there. The kernel names
/// the number under which `O_ASYNC` was set last.
pub(crate) fn named(fd: Fd) {
    let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) else { return };
    if flags & libc::O_ASYNC != 0 {
        let _ = sys::fcntl(fd, libc::F_SETFL, i64::from(flags & !libc::O_ASYNC));
        let _ = sys::fcntl(fd, libc::F_SETFL, i64::from(flags));
    }
}

/// Signals the owner of a socket that was put in the place of a socket whose connect was under way.
/// The kernel has signalled when the new socket had no owner yet.
pub(crate) fn signal(fd: Fd, has_failed: bool) {
    let is_wanted = sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_ASYNC != 0);
    let Some(owner) = Owner::of(fd).filter(|_| is_wanted) else { return };
    let signal = sys::fcntl(fd, F_GETSIG, 0).ok().filter(|signal| *signal != 0).unwrap_or(libc::SIGIO);
    let band = if has_failed { libc::POLLERR } else { libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND };
    let information =
        Information { signal, errno: 0, code: SI_SIGIO, _padding: 0, band: band.into(), fd, _rest: [0; 100] };
    let information = &raw const information;
    // SAFETY: the information is readable and as long as the kernel reads.
    unsafe {
        match owner {
            Owner { kind: F_OWNER_TID, id } => {
                raw::call!(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), id, signal, information)
            }
            Owner { kind: F_OWNER_PGRP, id } => raw::call!(libc::SYS_kill, -id, signal),
            Owner { id, .. } => raw::call!(libc::SYS_rt_sigqueueinfo, id, signal, information),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_every_kind_are_carried() {
        const { assert!(size_of::<Information>() == size_of::<libc::siginfo_t>()) };
        let tcp = || sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        // SAFETY: takes nothing.
        let (group, process) = unsafe { (libc::getpgrp(), libc::getpid()) };
        // SAFETY: takes nothing.
        let thread = unsafe { libc::gettid() };
        for (kind, id) in [(F_OWNER_PGRP, group), (1, process), (F_OWNER_TID, thread)] {
            let (from, to) = (tcp(), tcp());
            let owner = Owner { kind, id };
            // SAFETY: as above.
            let set = unsafe { raw::call!(libc::SYS_fcntl, from.raw(), F_SETOWN_EX, &raw const owner) };
            assert_eq!(set, 0);
            sys::fcntl(from.raw(), F_SETSIG, i64::from(libc::SIGUSR1)).unwrap();
            carry(from.raw(), to.raw());
            assert_eq!(Owner::of(to.raw()), Some(owner));
            assert_eq!(sys::fcntl(to.raw(), F_GETSIG, 0), Ok(libc::SIGUSR1));
        }
        assert_eq!(Owner::of(tcp().raw()), None);
    }
}
