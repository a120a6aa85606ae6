//! The hook of syscall(2): the functions that the hooks stand in front of, called by number.
//!
//! A program's allocator may come here before it can give any memory. So the calls that allocators
//! make are handed on by the processor's own instruction.

use std::ffi::{c_int, c_long, c_ulong};

use libc::socklen_t;

use crate::exec;
use crate::executable::Named;
use crate::gate;
use crate::hooks;
use crate::job::job;
use crate::numbers;
use crate::pending;
use crate::proc_net;
use crate::raw;
use crate::sandbox::Sandboxed;
use crate::sys;
use crate::unfinished;
use crate::uring;

/// Makes a program's system call.
///
/// # Safety
/// As the call demands.
pub(crate) unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    // SAFETY: the caller's promise.
    let done = unsafe {
        files(number, arguments)
            .or_else(|| sockets(number, arguments))
            .or_else(|| descriptors(number, arguments))
            .or_else(|| processes(number, arguments))
    };
    // SAFETY: the caller's promise.
    done.unwrap_or_else(|| unsafe { raw::make(number, arguments) })
}

/// Makes a call that an allocator may make, too; `None` for any other, and for a call that the shim
/// has no part in.
unsafe fn files(number: c_long, [a, b, c, ..]: [c_long; 6]) -> Option<c_long> {
    let fd = a as c_int;
    match number {
        libc::SYS_close if numbers::is_known(fd) => Some(gate::close(fd).into()),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise.
        libc::SYS_open => unsafe { proc_net::open(a as *const _, b as c_int) }.map(c_long::from),
        // SAFETY: the caller's promise.
        libc::SYS_openat => unsafe { proc_net::open(b as *const _, c as c_int) }.map(c_long::from),
        _ => None,
    }
}

unsafe fn sockets(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    let fd = a as c_int;
    let len = c as socklen_t;
    // SAFETY: the caller's promise; the hooks are the C library's functions, which take these
    // words.
    Some(unsafe {
        match number {
            libc::SYS_socket => hooks::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_connect => hooks::connect(fd, b as *const _, len).into(),
            libc::SYS_bind => hooks::bind(fd, b as *const _, len).into(),
            libc::SYS_listen => hooks::listen(fd, b as c_int).into(),
            libc::SYS_accept => hooks::accept(fd, b as *mut _, c as *mut _).into(),
            libc::SYS_accept4 => hooks::accept4(fd, b as *mut _, c as *mut _, d as c_int).into(),
            libc::SYS_getsockname => hooks::getsockname(fd, b as *mut _, c as *mut _).into(),
            libc::SYS_getpeername => hooks::getpeername(fd, b as *mut _, c as *mut _).into(),
            libc::SYS_getsockopt => {
                hooks::getsockopt(fd, b as c_int, c as c_int, d as *mut _, e as *mut _).into()
            }
            libc::SYS_setsockopt => {
                hooks::setsockopt(fd, b as c_int, c as c_int, d as *const _, e as socklen_t).into()
            }
            libc::SYS_sendto => {
                hooks::sendto(fd, b as *const _, c as usize, d as c_int, e as *const _, f as socklen_t)
                    as c_long
            }
            libc::SYS_sendmsg => hooks::sendmsg(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_sendmmsg => hooks::sendmmsg(fd, b as *mut _, c as u32, d as c_int).into(),
            libc::SYS_recvfrom => {
                hooks::recvfrom(fd, b as *mut _, c as usize, d as c_int, e as *mut _, f as *mut _) as c_long
            }
            libc::SYS_recvmmsg => hooks::recvmmsg(fd, b as *mut _, c as u32, d as c_int, e as *mut _).into(),
            libc::SYS_recvmsg => hooks::recvmsg(fd, b as *mut _, c as c_int) as c_long,
            _ => return None,
        }
    })
}

unsafe fn descriptors(number: c_long, [a, b, c, d, ..]: [c_long; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: as above.
    Some(unsafe {
        match number {
            libc::SYS_close_range => hooks::close_range(a as u32, b as u32, c as c_int).into(),
            libc::SYS_dup => hooks::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => hooks::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => hooks::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => hooks::fcntl(fd, b as c_int, c as c_ulong).into(),
            libc::SYS_ioctl => hooks::ioctl(fd, b as c_ulong, c as *mut _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => hooks::epoll_create(fd).into(),
            libc::SYS_epoll_create1 => hooks::epoll_create1(fd).into(),
            libc::SYS_epoll_ctl => hooks::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _).into(),
            _ => return None,
        }
    })
}

unsafe fn processes(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    // SAFETY: as above.
    let as_it_is = || unsafe { raw::make(number, arguments) };
    // SAFETY: as above.
    Some(unsafe {
        match number {
            libc::SYS_uname => hooks::uname(a as *mut _).into(),
            libc::SYS_chroot => hooks::chroot(a as *const _).into(),
            // These calls change the calling thread alone, unlike the C library's functions.
            libc::SYS_pivot_root | libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid => {
                job().into_iter().for_each(pending::stand);
                as_it_is()
            }
            libc::SYS_prctl => {
                hooks::prctl(a as c_int, b as c_ulong, c as c_ulong, d as c_ulong, e as c_ulong).into()
            }
            libc::SYS_seccomp => {
                let mode = match u32::try_from(a) {
                    Ok(libc::SECCOMP_SET_MODE_STRICT) => libc::SECCOMP_MODE_STRICT,
                    Ok(libc::SECCOMP_SET_MODE_FILTER) => libc::SECCOMP_MODE_FILTER,
                    Ok(_) | Err(_) => return None,
                };
                let sandboxed = Sandboxed::enter(mode.into(), c as c_ulong);
                let result = as_it_is();
                // With SECCOMP_FILTER_FLAG_NEW_LISTENER a positive result is a descriptor.
                if let Some(sandboxed) = sandboxed.filter(|_| result < 0) {
                    sandboxed.come_back();
                }
                result
            }
            libc::SYS_execve => {
                let start = |environment: exec::List| {
                    raw::call!(libc::SYS_execve, a as *const u8, b as *const u8, environment) as c_int
                };
                exec::in_place(Named::path(a as *const _), c as exec::List, start).into()
            }
            libc::SYS_exit_group => {
                unfinished::ends(a as c_int);
                return None;
            }
            libc::SYS_io_uring_setup if !uring::is_allowed() => {
                sys::set_errno(libc::ENOSYS);
                -1
            }
            _ => return None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_calls_are_the_kernel_s() {
        // SAFETY: takes nothing.
        let own = unsafe { call(libc::SYS_getpid, [0; 6]) };
        assert_eq!(own, c_long::from(std::process::id()));
        // SAFETY: no pointer is passed.
        assert_eq!(unsafe { call(libc::SYS_close, [-1, 0, 0, 0, 0, 0]) }, -1);
        assert_eq!(sys::errno(), libc::EBADF);
    }
}
