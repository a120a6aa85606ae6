//! Processes that forbid themselves system calls (seccomp(2)).
//!
//! The filter is run on all calls that the shim needs. Where it lets them be made, nothing changes.
//! Otherwise each of these calls would fail, or end the process. So from then on the process does
//! without the shim, and its agent carries the connections of its listeners. The user reads the
//! name of the process if it may go on to connect.

use std::ffi::{c_int, c_ulong};

use isthmus_wire::shim::Request;
use libc::{SOL_SOCKET, c_long, sock_filter, sock_fprog};

use crate::agent;
use crate::bpf::{self, Call, Verdict};
use crate::descriptors;
use crate::job::{self, Job};
use crate::next;
use crate::owner;
use crate::pending;
use crate::sockaddr::Inet;
use crate::sys::{self, Fd};

/// System calls by which the shim accepts and connects, once the process has a way to the agent
/// that stays.
const NEEDED: [Call; 27] = [
    call(
        libc::SYS_socketpair,
        [libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0],
    ),
    call(libc::SYS_socket, [libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0]),
    call(libc::SYS_socket, [libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG]),
    call(libc::SYS_accept4, [3, 0, 0]),
    call(libc::SYS_bind, [3, 0, 16]),
    call(libc::SYS_sendmsg, [3, 0, libc::MSG_NOSIGNAL]),
    call(libc::SYS_sendto, [3, 0, 40]),
    call(libc::SYS_recvmsg, [3, 0, libc::MSG_CMSG_CLOEXEC]),
    call(libc::SYS_recvfrom, [3, 0, 256]),
    call(libc::SYS_getsockname, [3, 0, 0]),
    call(libc::SYS_getpeername, [3, 0, 0]),
    call(libc::SYS_getsockopt, [3, SOL_SOCKET, libc::SO_COOKIE]),
    call(libc::SYS_getsockopt, [3, libc::IPPROTO_TCP, libc::TCP_INFO]),
    call(libc::SYS_setsockopt, [3, SOL_SOCKET, libc::SO_RCVTIMEO]),
    call(libc::SYS_setsockopt, [3, SOL_SOCKET, libc::SO_SNDTIMEO]),
    call(libc::SYS_setsockopt, [3, libc::IPPROTO_TCP, libc::TCP_NODELAY]),
    call(libc::SYS_fcntl, [3, libc::F_GETFL, 0]),
    call(libc::SYS_fcntl, [3, libc::F_SETFL, 0]),
    call(libc::SYS_dup3, [3, 4, libc::O_CLOEXEC]),
    call(libc::SYS_close, [3, 0, 0]),
    call(libc::SYS_fstat, [3, 0, 0]),
    call(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK, 0, 0]),
    call(libc::SYS_getpid, [0, 0, 0]),
    call(libc::SYS_ppoll, [0, 1, 0]),
    call(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC, 0, 0]),
    call(libc::SYS_epoll_ctl, [3, libc::EPOLL_CTL_ADD, 4]),
    call(libc::SYS_epoll_pwait, [3, 0, 64]),
];
/// System calls that a connect may do without. Most are of the helper's thread, which exchanges
/// connects that don't wait. Where they fail, a connect waits instead. They must not end the process.
const SPARED: [Call; 19] = [
    call(libc::SYS_clone3, [0, 88, 0]),
    call(libc::SYS_clone, [THREAD, 0, 0]),
    call(libc::SYS_mmap, [0, 1 << 18, libc::PROT_NONE]),
    call(libc::SYS_mprotect, [0, 1 << 18, libc::PROT_READ | libc::PROT_WRITE]),
    call(libc::SYS_munmap, [0, 1 << 18, 0]),
    call(libc::SYS_madvise, [0, 1 << 18, libc::MADV_DONTNEED]),
    call(libc::SYS_set_robust_list, [0, 24, 0]),
    call(libc::SYS_rseq, [0, 32, 0]),
    call(libc::SYS_futex, [0, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1]),
    call(libc::SYS_prctl, [libc::PR_SET_NAME, 0, 0]),
    call(libc::SYS_sched_getattr, [0, 0, 48]),
    call(libc::SYS_sched_setattr, [0, 0, 0]),
    call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as c_int, 0]),
    call(libc::SYS_read, [3, 0, 64]),
    call(libc::SYS_fcntl, [3, libc::F_GETFD, 0]),
    call(libc::SYS_fcntl, [3, libc::F_DUPFD_CLOEXEC, 40]),
    call(libc::SYS_fcntl, [3, owner::F_GETOWN_EX, 0]),
    call(libc::SYS_fcntl, [3, owner::F_GETSIG, 0]),
    call(libc::SYS_exit, [0, 0, 0]),
];
/// System calls by which the shim looks into files. It does without them.
const FILES: [Call; 2] = [
    call(libc::SYS_openat, [libc::AT_FDCWD, 0, libc::O_CLOEXEC]),
    call(libc::SYS_readlinkat, [libc::AT_FDCWD, 0, 0]),
];
/// The flags by which the C library makes a thread.
const THREAD: c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;
/// System calls by which a program connects. A program that may make them may want to connect.
const CONNECTS: [Call; 2] =
    [call(libc::SYS_socket, [libc::AF_INET, libc::SOCK_STREAM, 0]), call(libc::SYS_connect, [3, 0, 16])];

const fn call(number: c_long, [a, b, c]: [c_int; 3]) -> Call {
    Call { number, arguments: [a as u64, b as u64, c as u64, 0] }
}

/// What a filter leaves to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    All,
    /// Nothing of the shim works, and the program can't connect, either. Only its listeners matter.
    Listeners,
    Nothing,
}

/// Whether none of these calls ends the process.
fn spares(filter: &[sock_filter], calls: &[Call]) -> bool {
    calls.iter().all(|call| bpf::judge(filter, *call) != Verdict::Fatal)
}

fn left(filter: &[sock_filter]) -> Left {
    let allows = |calls: &[Call]| calls.iter().all(|call| bpf::judge(filter, *call) == Verdict::Allowed);
    let connects = allows(&CONNECTS);
    match (allows(&NEEDED) && (!connects || spares(filter, &SPARED)), connects) {
        (true, _) => Left::All,
        (false, false) => Left::Listeners,
        (false, true) => Left::Nothing,
    }
}

/// A process that is about to get a filter under which the shim doesn't work.
pub(crate) struct Sandboxed(&'static Job);

impl Sandboxed {
    /// Prepares the process for a filter; `None` if the shim goes on to work under it.
    ///
    /// # Safety
    /// With `SECCOMP_MODE_FILTER`, `argument` is as prctl(2) demands.
    pub(crate) unsafe fn enter(mode: c_ulong, argument: c_ulong) -> Option<Self> {
        let job = job::job().filter(|_| !pending::elsewhere())?;
        let (left, has_files) = match u32::try_from(mode) {
            Ok(libc::SECCOMP_MODE_STRICT) => (Left::Listeners, false),
            Ok(libc::SECCOMP_MODE_FILTER) => {
                // SAFETY: the caller's promise.
                let program = unsafe { (argument as *const sock_fprog).as_ref() }?;
                if program.filter.is_null() {
                    return None;
                }
                // SAFETY: the caller's promise.
                let filter = unsafe { std::slice::from_raw_parts(program.filter, usize::from(program.len)) };
                (left(filter), spares(filter, &FILES))
            }
            Ok(_) | Err(_) => return None,
        };
        let before = sys::errno();
        pending::stand(job);
        if left == Left::All {
            if !has_files {
                sys::do_without_files();
            }
            sys::set_errno(before);
            return None;
        }
        descriptors::each_listener(|fd| keep(job, fd));
        if left == Left::Nothing {
            let _ = agent::tell(job, &Request::Leave);
        }
        // Every function that is called later must be found already: looking for it may take system
        // calls.
        next::find_all();
        pending::with(pending::List::forget_all);
        job::leave();
        sys::set_errno(before);
        Some(Self(job))
    }

    /// Gives the process its job back, because the kernel hasn't taken the filter.
    pub(crate) fn come_back(self) {
        job::come_back(self.0);
    }
}

/// Has the agent carry the connections of a listener.
fn keep(job: &Job, listener: Fd) {
    if let Some(Inet { port, .. }) = sys::local_name(listener)
        .ok()
        .and_then(|name| Inet::parse(name.bytes()))
        .filter(|name| name.port != 0)
    {
        let _ = agent::tell(job, &Request::Keep { port });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter with the verdict `listed` for calls with these numbers, and `others` for all
    /// others.
    fn filter(numbers: &[c_long], listed: u32, others: u32) -> Vec<sock_filter> {
        let part = |code: u32, jt: u8, k: u32| sock_filter { code: code as u16, jt, jf: 0, k };
        let count = numbers.len() as u8;
        let mut all = vec![part(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
        all.extend(numbers.iter().zip(0..).map(|(number, index): (_, u8)| {
            part(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, count - index, *number as u32)
        }));
        all.push(part(libc::BPF_RET | libc::BPF_K, 0, others));
        all.push(part(libc::BPF_RET | libc::BPF_K, 0, listed));
        all
    }

    #[test]
    fn what_a_filter_leaves() {
        use libc::{
            SECCOMP_RET_ALLOW as ALLOW, SECCOMP_RET_ERRNO as ERRNO, SECCOMP_RET_KILL_PROCESS as KILL,
        };
        for (what, numbers, listed, others, want) in [
            ("no program can be started", &[libc::SYS_execve][..], KILL, ALLOW, Left::All),
            ("no thread can be started", &[libc::SYS_clone, libc::SYS_clone3], ERRNO, ALLOW, Left::All),
            ("one ends the process", &[libc::SYS_clone, libc::SYS_clone3], KILL, ALLOW, Left::Nothing),
            ("no program waits for events", &[libc::SYS_ppoll], ERRNO, ALLOW, Left::Nothing),
            ("no descriptor can be copied", &[libc::SYS_dup3], ERRNO, ALLOW, Left::Nothing),
            ("no file can be opened", &[libc::SYS_openat], KILL, ALLOW, Left::All),
            ("only to accept", &[libc::SYS_accept, libc::SYS_read], ALLOW, KILL, Left::Listeners),
            (
                "also to connect",
                &[libc::SYS_accept, libc::SYS_socket, libc::SYS_connect],
                ALLOW,
                ERRNO,
                Left::Nothing,
            ),
        ] {
            assert_eq!(left(&filter(numbers, listed, others)), want, "{what}");
        }
    }
}
