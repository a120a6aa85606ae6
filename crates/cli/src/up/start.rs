//! Starts a service in the background, and waits until it is ready.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::UnixDatagram;
use tokio::time::{Instant, timeout};

use super::running;
use crate::services::Service;

/// The log of a service that was started here, in its state directory.
pub(super) const LOG_FILE: &str = "log";
/// A longer log is put aside when the service is started.
const LOG_BYTES: u64 = 16 << 20;
/// How long a service may take: an agent is ready once it is attached to its gateway, and
/// that to the broker.
const READY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
/// Of the log of one that fails.
const LAST_LINES: usize = 5;

/// Whether it ran already.
pub(super) enum Started {
    Now,
    Before,
}

/// Starts a service unless it runs.
///
/// # Errors
/// If it ends or isn't ready in time; with the end of its log.
pub(super) async fn start(service: Service, directory: &Path) -> anyhow::Result<Started> {
    if running::runs(directory, service)? {
        return Ok(Started::Before);
    }
    // Nobody else may say that it is ready.
    let private = tempfile::tempdir().context("cannot make a directory for a socket")?;
    let socket = private.path().join("notify");
    let notified = UnixDatagram::bind(&socket).context("cannot make a socket for the service's word")?;
    let log = open_log(directory)?;
    let from = log.metadata()?.len();
    let itself = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(itself);
    command.arg(service.name()).args(service.options()).arg("--state").arg(directory);
    command.env("NOTIFY_SOCKET", &socket);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // SAFETY: only makes a system call.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(std::io::Error::from));
    }
    let mut child = command.spawn().context("cannot start the service")?;
    if let Err(error) = running::note(directory, service, child.id()) {
        // Nobody could stop it.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let ends = Instant::now() + READY;
    let mut word = [0; 512];
    loop {
        if let Ok(Ok(len)) = timeout(LOOK, notified.recv(&mut word)).await
            && word[..len].split(|byte| *byte == b'\n').any(|line| line == b"READY=1")
        {
            return Ok(Started::Now);
        }
        if let Some(status) = child.try_wait()? {
            running::forget(directory, service);
            bail!("the {} has ended ({status}):\n{}", service.name(), last_lines(directory, from));
        }
        if Instant::now() > ends {
            bail!(
                "the {} runs, and isn't ready after {} s; it goes on trying (isthmus down stops it):\n{}",
                service.name(),
                READY.as_secs(),
                last_lines(directory, from)
            );
        }
    }
}

fn open_log(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(LOG_FILE);
    if fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES) {
        fs::rename(&path, path.with_extension("old")).context("cannot put the former log aside")?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// What the service said last.
fn last_lines(directory: &Path, from: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(directory.join(LOG_FILE))?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
