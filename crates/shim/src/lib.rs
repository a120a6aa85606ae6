//! The library that isthmus preloads into the processes of a job.
//!
//! It stands in front of calls that *set up* connections, names and addresses,
//! and never of those that move data over a connection: once it stands, the program
//! holds a kernel socket and nothing of the shim is in its way. See
//! [`isthmus_wire::shim`] for what it asks its node's agent, and
//! [`isthmus_wire::address`] for the addresses that stand for one another.
//!
//! | what the program does | what happens |
//! |---|---|
//! | connects to another node | `connect`, `blocking`: its agent connects, the socket takes the place of the program's |
//! | connects without waiting | `placeholder`, `pending`, `helper`: its own socket stands in until then |
//! | makes, copies, watches, closes a socket | `numbers`, `gate`: what must be exchanged is known, and whole |
//! | listens, accepts | `listen`: on loopback only; an agent's knock is exchanged for the connection |
//! | | `peer`: other users of the node are refused |
//! | sends datagrams | `datagrams`: to other nodes they fail at once |
//! | asks who is there | `ends`: virtual addresses |
//! | sets or reads options of IPv6 | `dual`: those of the IPv4 socket that it has |
//! | sets or reads options of keepalives | `keepalive`: those that isthmus sets don't show |
//! | sets or reads `TCP_NODELAY` | `nodelay`: the way to the agent always has it |
//! | changes its root or its user, forbids itself system calls | `standing`, `sandbox`: it keeps its agent |
//! | has signals of a socket | `owner`: also of a connect that is done |
//! | starts a program | `exec`, `executable`: it stays in the job whatever its environment |
//! | starts ranks, as a daemon of a launcher | `children`: its agent is told how they end |
//! | | `signalled`: and of signals that end it |
//! | is a rank that ends without `MPI_Finalize` | `unfinished`: its agent is told |
//! | asks who it is | `interfaces`, `netlink`, `proc_net`, `resolve`: one interface, one address, the grid name |
//! | resolves names while it goes on | `asynchronous`: those of nodes at once |
//! | names itself by its address | `own_address`, `multicast`: what stands for the virtual one |
//! | calls by number, uses io_uring | `own_calls`: the hooks; `uring`: there is none |
//! | ends, with MPICH 4 over UCX | `ucx`: its endpoints are polled until all ranks have closed theirs |
//!
//! In the program's process it prints nothing, ends nothing, keeps `errno`, holds no
//! lock while it waits, and exports nothing but the functions it stands in front of.
//! Only a panic of its own is printed and aborts the process. Without a settings file
//! beside it, it hands every call on.
//!
//! Not covered: programs that are static, or make system calls by instructions of their own or
//! by functions that they have looked for in the C library itself. And while a
//! non-blocking connect is under way: a thread that is already blocked in read
//! or write on the socket; one that sleeps in poll for nothing but input
//! (it wakes at its timeout); a program that inherits the socket over exec.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
// Unit tests leave the hooks out, so that they don't run on top of themselves.
#![cfg_attr(test, allow(dead_code))]

mod abandoned;
mod agent;
mod asynchronous;
mod blocking;
mod bpf;
mod children;
mod connect;
mod connects;
mod datagrams;
mod descriptors;
mod device;
mod dual;
mod ends;
mod errno;
mod exec;
mod executable;
mod failed;
mod families;
mod gate;
mod handover;
mod helper;
mod hooks;
mod hosts;
mod interfaces;
mod job;
mod keepalive;
mod kept;
mod limit;
mod listen;
mod lock;
mod multicast;
mod netlink;
mod next;
mod nodelay;
mod numbers;
mod options;
mod own_address;
mod own_calls;
mod owner;
mod patience;
mod peer;
mod pending;
mod placeholder;
mod proc_net;
mod raw;
mod resolve;
mod sandbox;
mod signalled;
mod sockaddr;
mod standing;
mod sys;
mod table;
mod ucx;
mod unfinished;
mod uring;
mod wakers;
mod watches;

/// Has a panic end the process before anything unwinds: frames of the program must not be unwound.
/// With `panic = "abort"`, the hooks would also end a program whose thread is cancelled. There the
/// C library unwinds through them.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("isthmus: fault in the preloaded library: {panic}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    #[ignore = "run by the test below, in a process of its own"]
    fn panic_in_a_child() {
        super::abort_on_panic();
        let _ = std::panic::catch_unwind(|| panic!("on purpose"));
    }

    #[test]
    fn a_panic_aborts_before_it_unwinds() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "tests::panic_in_a_child", "--ignored", "--nocapture"]);
        let output = child.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("on purpose"), "{output:?}");
    }
}

#[cfg(not(test))]
mod load {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::{
        abandoned, ends, exec, failed, helper, job, keepalive, limit, next, pending, table, unfinished,
    };

    /// The function that the loader calls before the program starts.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOAD: extern "C" fn() = load;

    extern "C" fn load() {
        if job::job().is_none() {
            return;
        }
        crate::abort_on_panic();
        exec::find_all();
        // A forked child, or a signal's handler, may be the first to call one.
        next::find_all();
        pending::settle();
        table::make_room();
        unfinished::follow();
        // SAFETY: the handlers live as long as the process: nothing unloads a
        // preloaded library.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    }

    /// Whether a fork is under way for which everything is locked. Never `true` in a process that
    /// has left its job.
    static LOCKED: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" fn before_fork() {
        if job::job().is_none() {
            return;
        }
        pending::before_fork();
        abandoned::before_fork();
        ends::before_fork();
        failed::before_fork();
        keepalive::before_fork();
        limit::before_fork();
        LOCKED.store(true, Ordering::Relaxed);
    }

    unsafe extern "C" fn in_parent() {
        if !LOCKED.swap(false, Ordering::Relaxed) {
            return;
        }
        limit::after_fork_in_parent();
        keepalive::after_fork();
        failed::after_fork();
        ends::after_fork();
        abandoned::after_fork_in_parent();
        pending::after_fork_in_parent();
    }

    unsafe extern "C" fn in_child() {
        if !LOCKED.swap(false, Ordering::Relaxed) {
            return;
        }
        limit::after_fork_in_child();
        keepalive::after_fork();
        failed::after_fork();
        ends::after_fork();
        abandoned::after_fork_in_child();
        pending::after_fork_in_child(helper::ensure);
    }
}
