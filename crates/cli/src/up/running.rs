//! Which services of this machine `isthmus up` has started.
//!
//! A file `SERVICE.pid` in the state directory has the process's id and its start, as a
//! [`ProcessId`] has them: another process that has the id later isn't taken for it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_common::process::ProcessId;
use isthmus_service::files;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::systemd::{self, Manager};
use crate::service::Service;
use crate::standing::own_file;

/// How long a service may take to end: an agent ends its part of running jobs.
const END: Duration = Duration::from_secs(20);
/// Longest note of a service's process, in bytes: a note has two numbers.
const LONGEST: u64 = 64;

/// How a service ended.
pub(super) enum Stopped {
    InOrder,
    Killed,
}

fn path(directory: &Path, service: Service) -> PathBuf {
    directory.join(format!("{}.pid", service.name()))
}

/// The process of a service, if it was started here and runs.
fn process(directory: &Path, service: Service) -> anyhow::Result<Option<ProcessId>> {
    let Some(text) = own_file(&path(directory, service), LONGEST)? else { return Ok(None) };
    Ok(noted(&text).filter(|process| process.pid > 1 && process.is_alive()))
}

fn noted(text: &str) -> Option<ProcessId> {
    let mut words = text.split_ascii_whitespace();
    Some(ProcessId { pid: words.next()?.parse().ok()?, started: words.next()?.parse().ok()? })
}

/// Takes a lock on a state directory: other `isthmus up` and `down` wait until it is dropped.
///
/// # Errors
/// If the directory isn't this user's alone, or can't be written.
pub(super) fn lock(directory: &Path) -> anyhow::Result<Flock<File>> {
    files::create_directory(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if found.uid() != nix::unistd::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        bail!("{} is another user's, or others may write to it", directory.display());
    }
    let path = directory.join("up.lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .context("cannot lock the state directory")
}

/// The process id of a service that was started here and runs.
pub(super) fn pid(directory: &Path, service: Service) -> anyhow::Result<Option<u32>> {
    Ok(process(directory, service)?.and_then(|process| process.pid.try_into().ok()))
}

/// Whether a process is stopped, as by SIGSTOP: what it has written of itself is out of date.
pub(super) fn is_stopped(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| says_stopped(&stat))
}

/// Whether a line of /proc/PID/stat is of a stopped process (proc(5), field 3). The command's
/// name, in parentheses, may hold anything.
fn says_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().next());
    matches!(state, Some("T" | "t"))
}

/// Notes the process of a service in the state directory.
pub(super) fn note(directory: &Path, service: Service, pid: u32) -> anyhow::Result<()> {
    let found = i32::try_from(pid).ok().and_then(|pid| ProcessId::of(Pid::from_raw(pid)).ok());
    // A process that has ended already gets a start that no other process can have.
    let started = found.map_or(0, |process| process.started);
    files::write(&path(directory, service), format!("{pid} {started}\n").as_bytes(), 0o600)?;
    Ok(())
}

/// Removes the note of a service's process.
pub(super) fn forget(directory: &Path, service: Service) {
    let _ = fs::remove_file(path(directory, service));
}

/// Stops the services of a state directory, and removes their units.
///
/// # Errors If a service can't be told to end.
pub(super) async fn stop(directory: &Path) -> anyhow::Result<Vec<(&'static str, Stopped)>> {
    let mut stopped = Vec::new();
    for service in [Service::Agent, Service::Gateway, Service::Relay, Service::Broker] {
        if let Some(unit) = systemd::noted(directory, service)? {
            Manager::find().await?.remove(&unit).await.with_context(|| unit.clone())?;
            systemd::forget(directory, service);
            stopped.push((service.name(), Stopped::InOrder));
        }
        if let Some(how) = stop_process(directory, service)? {
            stopped.push((service.name(), how));
        }
    }
    Ok(stopped)
}

/// Stops the process of one service. Returns how it ended; `None` if it doesn't run.
///
/// # Errors
/// If it can't be told to end.
pub(super) fn stop_process(directory: &Path, service: Service) -> anyhow::Result<Option<Stopped>> {
    let process = process(directory, service)?;
    let stopped = process.map(|process| end(process).with_context(|| service.name())).transpose()?;
    forget(directory, service);
    Ok(stopped)
}

fn end(process: ProcessId) -> anyhow::Result<Stopped> {
    for (signal, how) in [(Signal::SIGTERM, Stopped::InOrder), (Signal::SIGKILL, Stopped::Killed)] {
        match process.signal(signal) {
            Err(error) if process.is_alive() => return Err(error).context("cannot stop it"),
            // If the signal couldn't be sent, the process has ended meanwhile.
            Ok(()) | Err(_) if process.wait_ended(END)? => return Ok(how),
            Ok(()) | Err(_) => {}
        }
    }
    bail!("process {} doesn't end", process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_known_by_its_state() {
        for (stat, stopped) in [
            ("123 (isthmus) T 1 123", true),
            ("123 (isthmus) t 1 123", true),
            ("123 (isthmus) S 1 123", false),
            ("123 (a) T) R 1 123", false),
            ("123 (T) S 1", false),
            ("123 (isthmus)", false),
            ("", false),
        ] {
            assert_eq!(says_stopped(stat), stopped, "{stat}");
        }
    }

    #[tokio::test]
    async fn a_process_with_the_same_id_later_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        note(directory.path(), Service::Agent, child.id()).unwrap();
        assert!(pid(directory.path(), Service::Agent).unwrap().is_some());
        assert!(pid(directory.path(), Service::Gateway).unwrap().is_none());
        let path = path(directory.path(), Service::Agent);
        files::write(&path, format!("{} 1\n", child.id()).as_bytes(), 0o600).unwrap();
        assert!(pid(directory.path(), Service::Agent).unwrap().is_none());
        assert!(stop(directory.path()).await.unwrap().is_empty());
        assert!(!path.exists());
        note(directory.path(), Service::Agent, child.id()).unwrap();
        let waiting = std::thread::spawn(move || child.wait().unwrap());
        let stopped = stop(directory.path()).await.unwrap();
        assert!(matches!(stopped[..], [("agent", Stopped::InOrder)]));
        waiting.join().unwrap();
        files::write(&path, b"nonsense", 0o600).unwrap();
        assert!(pid(directory.path(), Service::Agent).unwrap().is_none());
    }
}
