//! Processes: what they start, how those end, and what a process forbids itself.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};

use libc::{pid_t, uid_t};

use crate::exec::{self, List};
use crate::executable::Named;
use crate::job::job;
use crate::sandbox::Sandboxed;
use crate::{children, next, own_calls, pending, signalled, unfinished};

hooks! {
    /// chroot(2): makes a connection to the agent first that stays, since the way by the socket's
    /// path is lost.
    fn chroot(path: *const c_char) -> c_int {
        job().into_iter().for_each(pending::stand);
        next::chroot(path)
    }

    /// setuid(2): makes a connection to the agent first that stays, since the agent's socket is for
    /// its own user.
    fn setuid(user: uid_t) -> c_int {
        job().into_iter().for_each(pending::stand);
        next::setuid(user)
    }

    /// seteuid(3): makes a connection to the agent first, as [`setuid`].
    fn seteuid(user: uid_t) -> c_int {
        job().into_iter().for_each(pending::stand);
        next::seteuid(user)
    }

    /// setreuid(2): makes a connection to the agent first, as [`setuid`].
    fn setreuid(real: uid_t, effective: uid_t) -> c_int {
        job().into_iter().for_each(pending::stand);
        next::setreuid(real, effective)
    }

    /// setresuid(2): makes a connection to the agent first, as [`setuid`].
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        job().into_iter().for_each(pending::stand);
        next::setresuid(real, effective, saved)
    }

    /// prctl(2): prepares for a filter of system calls.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        let sandboxed = if option == libc::PR_SET_SECCOMP { Sandboxed::enter(a, b) } else { None };
        let result = next::prctl(option, a, b, c, d);
        if let Some(sandboxed) = sandboxed.filter(|_| result != 0) {
            sandboxed.come_back();
        }
        result
    }

    /// syscall(2): leads to the hooks if a function that they stand in front of is called by
    /// number.
    fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long {
        own_calls::call(number, [a, b, c, d, e, f])
    }

    /// execve(2): keeps the program in the job.
    fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
        exec::in_place(Named::path(path), environment, |environment| {
            exec::execve::call(path, arguments, environment)
        })
    }

    /// execv(3): keeps the program in the job.
    fn execv(path: *const c_char, arguments: List) -> c_int {
        exec::in_place(Named::path(path), exec::own_environment(), |environment| {
            exec::execve::call(path, arguments, environment)
        })
    }

    /// execvp(3): keeps the program in the job.
    fn execvp(name: *const c_char, arguments: List) -> c_int {
        exec::in_place(Named::name(name), exec::own_environment(), |environment| {
            exec::execvpe::call(name, arguments, environment)
        })
    }

    /// execvpe(3): keeps the program in the job.
    fn execvpe(name: *const c_char, arguments: List, environment: List) -> c_int {
        exec::in_place(Named::name(name), environment, |environment| {
            exec::execvpe::call(name, arguments, environment)
        })
    }

    /// fexecve(3): keeps the program in the job.
    fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
        exec::in_place(Named::File(fd), environment, |environment| {
            exec::fexecve::call(fd, arguments, environment)
        })
    }

    /// posix_spawn(3): keeps the program in the job.
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: List, environment: List
    ) -> c_int {
        exec::with_environment(Named::path(path), environment, |environment| {
            exec::posix_spawn::call(pid, path, actions, attributes, arguments, environment)
        })
    }

    /// posix_spawnp(3): keeps the program in the job.
    fn posix_spawnp(
        pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: List, environment: List
    ) -> c_int {
        exec::with_environment(Named::name(name), environment, |environment| {
            exec::posix_spawnp::call(pid, name, actions, attributes, arguments, environment)
        })
    }

    /// waitpid(2): in a process that starts ranks, tells how they end.
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        if !children::starts() {
            return next::waitpid(pid, status, options);
        }
        let mut own = 0;
        let status = if status.is_null() { &raw mut own } else { status };
        let ended = next::waitpid(pid, status, options);
        if ended > 0 {
            children::ended(ended, status.read_unaligned());
        }
        ended
    }

    /// kill(2): in a process that starts ranks, notes whom it signals.
    fn kill(pid: pid_t, signal: c_int) -> c_int {
        if children::starts() {
            children::signals(pid, signal);
        }
        next::kill(pid, signal)
    }

    /// killpg(3): in a process that starts ranks, notes whom it signals.
    fn killpg(group: pid_t, signal: c_int) -> c_int {
        // A negative number is no group. MPICH's proxy gives such for ranks that it has collected.
        if group >= 0 && children::starts() {
            children::signals(-group, signal);
        }
        next::killpg(group, signal)
    }

    /// sigaction(2): in a process that starts ranks, has signals that end it told.
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        signalled::set(signal, new, old)
    }

    /// signal(2): in a process that starts ranks, has signals that end it told.
    fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
        signalled::set_simply(signal, handler)
    }

    /// _exit(2): in a rank, tells if it hasn't finished with MPI.
    fn _exit(status: c_int) {
        unfinished::ends(status);
        next::_exit(status);
    }

    /// _Exit(3): in a rank, tells if it hasn't finished with MPI.
    #[allow(non_snake_case, reason = "the C function's name")]
    fn _Exit(status: c_int) {
        unfinished::ends(status);
        next::_exit(status);
    }

    /// quick_exit(3): in a rank, tells if it hasn't finished with MPI.
    fn quick_exit(status: c_int) {
        unfinished::ends(status);
        next::quick_exit(status);
    }
}
