//! Pipes through which data moves without entering user space.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// Sizes of a pipe in bytes, first choice first. A larger pipe needs fewer system
/// calls and context switches per byte: 1 MiB took a third less processor time than
/// 256 KiB. Unprivileged users get at most 1 MiB per pipe and 64 MiB in all
/// (`pipe-max-size` and `pipe-user-pages-soft`, pipe(7)), hence the second choice.
const PIPE_BYTES: [i32; 2] = [1 << 20, 256 << 10];
/// Most idle pipes that are kept. A flow holds a pipe only while its receiver is slow.
const IDLE_PIPES: usize = 64;

/// A pipe. It is empty whenever no flow holds it.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    /// The most bytes that the pipe takes.
    pub(crate) capacity: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // The kernel refuses the size once the user's share of pipe memory is used up. A small pipe
        // is only slower.
        let sized = PIPE_BYTES.iter().find_map(|size| fcntl(&write, FcntlArg::F_SETPIPE_SZ(*size)).ok());
        let capacity = match sized {
            Some(size) => size,
            None => fcntl(&write, FcntlArg::F_GETPIPE_SZ)?,
        };
        Ok(Self { read, write, capacity: usize::try_from(capacity).unwrap_or(0) })
    }

    /// Takes over a pipe that another program had.
    pub(crate) fn adopt(read: OwnedFd, write: OwnedFd) -> io::Result<Self> {
        let capacity = fcntl(&write, FcntlArg::F_GETPIPE_SZ)?;
        Ok(Self { read, write, capacity: usize::try_from(capacity).unwrap_or(0) })
    }
}

/// The empty pipes of one worker.
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
