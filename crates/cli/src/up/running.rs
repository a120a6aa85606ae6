//! Which services of this machine `isthmus up` has started.
//!
//! A file `SERVICE.pid` in the state directory has the process's id and its start in clock
//! ticks after the machine's (proc_pid_stat(5), field 22): another process that has the id
//! later isn't taken for it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_net::files;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::services::Service;

/// How long a service may take to end: an agent ends its part of running jobs.
const END: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// A note has two numbers.
const LONGEST: u64 = 64;

/// How a service ended.
pub(super) enum Stopped {
    InOrder,
    Killed,
}

fn path(directory: &Path, service: Service) -> PathBuf {
    directory.join(format!("{}.pid", service.name()))
}

/// When a process started; `None` if there is none.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    start_in(&stat)
}

/// Field 22; field 2, the name in parentheses, may have anything in it.
fn start_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // An ended process that nobody has collected is none.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The process of a service, if it runs.
fn process(directory: &Path, service: Service) -> anyhow::Result<Option<i32>> {
    let Some(text) = read(&path(directory, service))? else { return Ok(None) };
    let mut words = text.split_ascii_whitespace();
    let read = |word: Option<&str>| word.and_then(|word| word.parse().ok());
    let (pid, start): (Option<i32>, Option<u64>) =
        (words.next().and_then(|word| word.parse().ok()), read(words.next()));
    Ok(pid.filter(|pid| *pid > 1 && start.is_some() && start_of(*pid) == start))
}

/// A note that this user has written; nothing else is followed, waited for or believed.
fn read(path: &Path) -> anyhow::Result<Option<String>> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != nix::unistd::geteuid().as_raw() {
        bail!("{} is not a file of this user; remove it", path.display());
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Keeps other `isthmus up` and `down` of this state directory waiting until it is dropped.
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

/// Whether a service runs that was started here.
pub(super) fn runs(directory: &Path, service: Service) -> anyhow::Result<bool> {
    Ok(process(directory, service)?.is_some())
}

/// Notes the process of a service.
pub(super) fn note(directory: &Path, service: Service, pid: u32) -> anyhow::Result<()> {
    let start = i32::try_from(pid).ok().and_then(start_of).unwrap_or(0);
    files::write(&path(directory, service), format!("{pid} {start}\n").as_bytes(), 0o600)?;
    Ok(())
}

/// Forgets the process of a service.
pub(super) fn forget(directory: &Path, service: Service) {
    let _ = fs::remove_file(path(directory, service));
}

/// Stops the services of a state directory.
///
/// # Errors
/// If one can't be told to end.
pub(super) async fn stop(directory: &Path) -> anyhow::Result<Vec<(&'static str, Stopped)>> {
    let mut stopped = Vec::new();
    for service in [Service::Agent, Service::Gateway, Service::Relay, Service::Broker] {
        if let Some(pid) = process(directory, service)? {
            stopped.push((service.name(), end(pid).await.with_context(|| service.name())?));
        }
        forget(directory, service);
    }
    Ok(stopped)
}

async fn end(pid: i32) -> anyhow::Result<Stopped> {
    let start = start_of(pid);
    for (signal, how) in [(Signal::SIGTERM, Stopped::InOrder), (Signal::SIGKILL, Stopped::Killed)] {
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(how),
            Err(error) => return Err(error).context("cannot stop it"),
        }
        let ends = Instant::now() + END;
        while Instant::now() < ends {
            if start.is_none() || start_of(pid) != start {
                return Ok(how);
            }
            sleep(LOOK).await;
        }
    }
    anyhow::bail!("process {pid} doesn't end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_read_whatever_the_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        for (stat, want) in [
            (format!("9 (isthmus) {fields}"), Some(4711)),
            (format!("9 (a) b) {fields}"), Some(4711)),
            (format!("9 (isthmus) {}", fields.replacen('S', "Z", 1)), None),
            ("9 (isthmus) S 1".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(start_in(&stat), want, "{stat}");
        }
        assert!(start_of(std::process::id() as i32).is_some());
    }

    #[tokio::test]
    async fn a_process_with_the_same_id_later_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        note(directory.path(), Service::Agent, child.id()).unwrap();
        assert!(runs(directory.path(), Service::Agent).unwrap());
        assert!(!runs(directory.path(), Service::Gateway).unwrap());
        let path = path(directory.path(), Service::Agent);
        files::write(&path, format!("{} 1\n", child.id()).as_bytes(), 0o600).unwrap();
        assert!(!runs(directory.path(), Service::Agent).unwrap());
        assert!(stop(directory.path()).await.unwrap().is_empty());
        assert!(!path.exists());
        note(directory.path(), Service::Agent, child.id()).unwrap();
        let waiting = std::thread::spawn(move || child.wait().unwrap());
        let stopped = stop(directory.path()).await.unwrap();
        assert!(matches!(stopped[..], [("agent", Stopped::InOrder)]));
        waiting.join().unwrap();
        files::write(&path, b"nonsense", 0o600).unwrap();
        assert!(!runs(directory.path(), Service::Agent).unwrap());
    }
}
