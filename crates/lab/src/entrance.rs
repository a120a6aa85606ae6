//! Functions of this program that run in a machine's network.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nix::errno::Errno;
use nix::sched::{CloneFlags, clone, setns};
use nix::sys::wait::{WaitPidFlag, waitpid};

use crate::rootless;
use crate::state::MachineRecord;

/// Runs a function in the network of a machine. Files, processes and host name stay those of the
/// caller. The function must start no threads.
pub(crate) fn in_network<T: Send>(
    machine: &MachineRecord,
    function: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let init = machine.init.open()?;
    let user = rootless::entry_flag(machine.init.pid)?;
    let run = || {
        if user.is_empty() {
            setns(init.as_fd(), CloneFlags::CLONE_NEWNET)?;
            return Ok(function());
        }
        in_borrowed_process(init, user | CloneFlags::CLONE_NEWNET, function)
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Stack in bytes of a function that runs in a process of its own.
const STACK: usize = 2 * 1024 * 1024;

/// Runs a function in other namespaces than the calling thread's. Only a process with one thread
/// may enter a user namespace. So the function runs in a new process that shares this process's
/// memory and descriptors. Meanwhile the calling thread, whose thread-local variables the new
/// process uses, stands still.
fn in_borrowed_process<T>(
    init: OwnedFd,
    namespaces: CloneFlags,
    function: impl FnOnce() -> T,
) -> io::Result<T> {
    let mut function = Some(function);
    let mut outcome = None;
    let mut stack = vec![0; STACK];
    let child = || {
        outcome = Some(match (setns(init.as_fd(), namespaces), function.take()) {
            (Ok(()), Some(function)) => Ok(catch_unwind(AssertUnwindSafe(function))),
            (Ok(()), None) => Err(Errno::EINVAL),
            (Err(error), _) => Err(error),
        });
        0
    };
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_FILES | CloneFlags::CLONE_VFORK;
    // SAFETY: the calling thread sleeps until the child has ended
    // (CLONE_VFORK), so what the child borrows lives, and nothing else uses
    // this thread's local variables; the stack is the child's alone.
    let pid = unsafe { clone(Box::new(child), &mut stack, flags, None) }?;
    while waitpid(pid, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    match outcome {
        Some(Ok(Ok(value))) => Ok(value),
        Some(Ok(Err(panic))) => resume_unwind(panic),
        Some(Err(error)) => Err(error.into()),
        None => Err(io::Error::other("the process that entered the machine ended early")),
    }
}
