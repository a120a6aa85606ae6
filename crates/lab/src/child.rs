//! Processes that the keeper makes of itself, without running a program: the
//! first process of every machine, and the emulator. They end with it.

use std::ffi::CString;
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, clone};
use nix::unistd::{Pid, dup2_stdin, dup2_stdout, pipe2};

use crate::process::{ProcessId, close_all_but, die_with_parent};
use crate::rootless;

/// Why a child process couldn't be made or set up.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {message}")]
pub(crate) struct ChildError {
    name: String,
    message: String,
}

/// A child that is being set up.
#[derive(Debug)]
pub(crate) struct Starting {
    name: String,
    pid: Pid,
    report: File,
}

/// Stack of a child in bytes. The C library's default is larger, but a child runs loops without
/// recursion.
const STACK: usize = 1024 * 1024;

/// What a child reports when it is ready. Any other report says why it isn't.
const READY: &str = "ready";

/// Makes a child that is called `name` in process listings, has the new
/// namespaces in `flags`, and keeps no descriptors but standard error and
/// `keep`. It runs `set_up`, reports, and runs `live` until killed.
///
/// The caller must have one thread only.
pub(crate) fn start<T, E: Display>(
    name: &str,
    flags: CloneFlags,
    keep: &[RawFd],
    set_up: impl Fn() -> Result<T, E>,
    live: impl Fn(T),
) -> Result<Starting, ChildError> {
    let failed = |message: String| ChildError { name: name.to_owned(), message };
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.to_string()))?;
    let mut stack = vec![0; STACK];
    let mut writer = Some(File::from(writer));
    let child = || {
        // Once this is dropped, the reader sees the end of the report.
        let Some(mut report) = writer.take() else { return 1 };
        let result =
            isolate(name, &report, keep).and_then(|()| set_up().map_err(|error| format!("{error:#}")));
        let message = result.as_ref().err().map_or(READY, String::as_str);
        let reported = report.write_all(message.as_bytes()).is_ok();
        drop(report);
        if let (Ok(value), true) = (result, reported) {
            live(value);
        }
        1
    };
    // SAFETY: the caller has one thread, so the child finds no lock held by
    // a thread it lacks; without CLONE_VM it has its own copy of the stack.
    let pid = unsafe { clone(Box::new(child), &mut stack, flags, Some(libc::SIGCHLD)) }.map_err(|error| {
        failed(format!("cannot make the process and its namespaces: {error}{}", rootless::hint(error)))
    })?;
    Ok(Starting { name: name.to_owned(), pid, report: File::from(reader) })
}

fn isolate(name: &str, report: &File, keep: &[RawFd]) -> Result<(), String> {
    let inner = || -> std::io::Result<()> {
        die_with_parent()?;
        let kept: Vec<RawFd> = keep.iter().copied().chain([report.as_raw_fd()]).collect();
        close_all_but(&kept);
        nix::sys::prctl::set_name(&CString::new(format!("lab:{name}"))?)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        Ok(())
    };
    inner().map_err(|error| error.to_string())
}

impl Starting {
    /// The child's process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Waits until the child is set up.
    pub(crate) fn wait(mut self) -> Result<ProcessId, ChildError> {
        let failed = |message: String| ChildError { name: self.name.clone(), message };
        let mut message = String::new();
        self.report.read_to_string(&mut message).map_err(|error| failed(error.to_string()))?;
        match message.as_str() {
            READY => ProcessId::of(self.pid).map_err(|error| failed(error.to_string())),
            "" => Err(failed("ended before it was set up".into())),
            _ => Err(failed(message)),
        }
    }
}
