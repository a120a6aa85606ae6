//! `isthmus lab up --foreground`: a lab that ends with the command.

use std::io;
use std::process::{Child, ChildStdin, ExitCode};

use anyhow::bail;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::output;
use crate::state::LabDirectory;

/// Stays until a signal to end comes, then ends the lab that `keeper` holds;
/// or until the lab is ended by others.
pub(super) fn stay(lab: &str, mut keeper: Child, tether: ChildStdin) -> anyhow::Result<ExitCode> {
    let ending = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    let set: SigSet = ending.into_iter().chain([Signal::SIGCHLD]).collect();
    // A signal before this ends this process, and the lab with it.
    set.thread_block()?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
    let asked = loop {
        if keeper.try_wait()?.is_some() {
            break false;
        }
        match signals.read_signal() {
            Ok(Some(signal)) if signal.ssi_signo != Signal::SIGCHLD as u32 => break true,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    };
    drop(tether);
    let status = keeper.wait()?;
    LabDirectory::of(lab).wait_gone()?;
    if !status.success() {
        bail!("the keeper of lab {lab} ended ({status}), and the lab with it");
    }
    let by = if asked { "" } else { ", ended from elsewhere" };
    output::print(format!("lab {lab} is down{by}\n"))?;
    Ok(ExitCode::SUCCESS)
}
