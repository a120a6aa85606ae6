//! The pipes through which data moves without coming to user space, and the
//! one buffer for data so small that the detour isn't worth it.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// What one pipe may hold, in bytes: the larger, the fewer system calls and
/// changes of process per byte; 1 MiB took a third less processor time than
/// 256 KiB. Users without privilege get no larger pipe than 1 MiB and 64 MiB of
/// them in all (`pipe-max-size` and `pipe-user-pages-soft`, pipe(7)), hence the
/// second choice.
const PIPE_BYTES: [i32; 2] = [1 << 20, 256 << 10];
/// Pipes kept for the next use. A flow holds one only while its receiver
/// doesn't keep up.
const IDLE_PIPES: usize = 64;

/// A pipe, empty whenever nobody holds it.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    /// Bytes it takes at most.
    pub(crate) capacity: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // Refused where the user's share of pipe memory is spent; a small pipe
        // works as well, only not as fast.
        let sized = PIPE_BYTES.iter().find_map(|size| fcntl(&write, FcntlArg::F_SETPIPE_SZ(*size)).ok());
        let capacity = match sized {
            Some(size) => size,
            None => fcntl(&write, FcntlArg::F_GETPIPE_SZ)?,
        };
        Ok(Self { read, write, capacity: usize::try_from(capacity).unwrap_or(0) })
    }
}

/// Empty pipes of one worker.
#[derive(Debug, Default)]
pub(crate) struct PipePool {
    idle: Vec<Pipe>,
}

impl PipePool {
    pub(crate) fn take(&mut self) -> io::Result<Pipe> {
        self.idle.pop().map_or_else(Pipe::new, Ok)
    }

    /// Takes back a pipe, which must be empty.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        if self.idle.len() < IDLE_PIPES {
            self.idle.push(pipe);
        }
    }
}
