//! A service's own word on how it is, in a file of its state directory: `isthmus up` reads
//! it, whoever started the service.

use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use isthmus_identity::attachment::{Attachment, State};
use isthmus_service::clock::{humane, unix_seconds};
use isthmus_service::files;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const FILE: &str = "standing.json";
/// Longest file that is read, in bytes.
const LONGEST: u64 = 16 << 10;
/// Most characters of a reason.
const REASON: usize = 600;

/// A service that has been cut off for this time has tried several times to attach again.
const LASTS: Duration = Duration::from_secs(3);

/// How a service is, by its own word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceReport {
    /// The id of the process that has written this.
    pub(crate) pid: u32,
    /// Whether the service serves.
    pub(crate) ready: bool,
    /// Whether the service is attached: an agent to its gateway, others to the broker. A broker is
    /// attached once it is ready.
    pub(crate) attached: bool,
    /// Since when the service is attached, or isn't, in seconds since 1970.
    pub(crate) since: u64,
    /// Why the service isn't attached; empty as long as nothing has failed.
    pub(crate) reason: String,
    /// Whether the service's certificate is revoked.
    pub(crate) revoked: bool,
}

impl ServiceReport {
    /// What the service of a state directory has written last, whether it still runs or not.
    ///
    /// # Errors
    /// If another user's file is there.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let Some(text) = own_file(&directory.join(FILE), LONGEST)? else { return Ok(None) };
        Ok(serde_json::from_str(&text).ok())
    }

    /// What the process of this id has written; `None` if another one wrote last, or none.
    ///
    /// # Errors
    /// As [`ServiceReport::read`].
    pub(crate) fn of(directory: &Path, pid: u32) -> anyhow::Result<Option<Self>> {
        Ok(Self::read(directory)?.filter(|report| report.pid == pid))
    }

    /// Whether the service is attached, or it is known why it isn't. An attempt that fails just
    /// after the loss of an attachment says little.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let lasts = unix_seconds(now).saturating_sub(self.since) >= LASTS.as_secs();
        self.attached || self.revoked || (lasts && !self.reason.is_empty())
    }

    /// For how long the service hasn't been attached, and why: "for 3m 2s: cannot reach …".
    pub(crate) fn why_not(&self, now: SystemTime) -> String {
        let length = Duration::from_secs(unix_seconds(now).saturating_sub(self.since));
        let reason = if self.reason.is_empty() { "it is still trying" } else { &self.reason };
        format!("for {}: {reason}", humane(length))
    }

    fn follow(&mut self, state: &State, ready: bool, now: u64) {
        if self.attached != state.attached || self.since == 0 {
            self.since = now;
        }
        (self.ready, self.attached, self.revoked) = (ready, state.attached, state.revoked);
        self.reason = state.reason.chars().take(REASON).collect();
    }
}

/// Removes what the last service of a state directory has written.
pub(crate) fn forget(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(FILE));
}

/// The text of a file that this user has written, as far as `longest` bytes; `None` if there is no
/// such file. Links aren't followed, and nothing is waited for.
///
/// # Errors If the file can't be read, or isn't this user's.
pub(crate) fn own_file(path: &Path, longest: u64) -> anyhow::Result<Option<String>> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
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
    file.take(longest).read_to_end(&mut text)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Writes the file in which a service tells how it is.
pub(crate) struct Writer {
    path: PathBuf,
    report: ServiceReport,
}

impl Writer {
    pub(crate) fn new(directory: &Path) -> Self {
        let report = ServiceReport { pid: std::process::id(), ..ServiceReport::default() };
        Self { path: directory.join(FILE), report }
    }

    /// Writes how the service is now, if that is new. A directory that can't be written is no
    /// reason for a service to end.
    pub(crate) fn write(&mut self, state: &State, ready: bool) {
        let former = self.report.clone();
        self.report.follow(state, ready, unix_seconds(SystemTime::now()));
        if self.report == former {
            return;
        }
        let text = serde_json::to_vec(&self.report).unwrap_or_default();
        if let Err(error) = files::write(&self.path, &text, 0o600) {
            tracing::debug!(%error, "cannot write how this service is");
        }
    }

    /// Writes each change of the service; never returns.
    pub(crate) async fn keep(&mut self, attachment: &Attachment, mut ready: watch::Receiver<bool>) {
        let mut attached = attachment.watch();
        loop {
            let (state, is_ready) = (attached.borrow_and_update().clone(), *ready.borrow_and_update());
            self.write(&state, is_ready);
            tokio::select! {
                Ok(()) = attached.changed() => {}
                Ok(()) = ready.changed() => {}
                else => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_counts_from_the_change() {
        let away = |reason: &str| State { reason: reason.to_owned(), ..State::default() };
        let up = State { attached: true, ..State::default() };
        let mut report = ServiceReport::default();
        for (state, now, since) in [
            (away(""), 10, 10),
            (away("no"), 20, 10),
            (up.clone(), 30, 30),
            (up, 40, 30),
            (away("cut"), 50, 50),
        ] {
            report.follow(&state, true, now);
            assert_eq!((report.since, report.attached), (since, state.attached), "{now}");
        }
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(50 + 185);
        assert!(report.why_not(later).ends_with(": cut") && report.is_settled(later), "{report:?}");
        let soon = SystemTime::UNIX_EPOCH + Duration::from_secs(50 + 2);
        assert!(!report.is_settled(soon));
        report.revoked = true;
        assert!(report.is_settled(soon));
    }

    #[tokio::test]
    async fn what_a_service_writes_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let read = || ServiceReport::of(directory.path(), std::process::id()).unwrap();
        assert_eq!(read(), None);
        let (attachment, ready) = (Attachment::default(), watch::Sender::new(false));
        let mut writer = Writer::new(directory.path());
        {
            let keeping = writer.keep(&attachment, ready.subscribe());
            tokio::pin!(keeping);
            tokio::select! { () = &mut keeping => {} () = tokio::task::yield_now() => {} }
            assert!(!read().unwrap().ready);
            ready.send_replace(true);
            attachment.failed(&"x".repeat(5000), false);
            tokio::select! { () = &mut keeping => {} () = tokio::task::yield_now() => {} }
        }
        let read = read().unwrap();
        assert!(read.ready && !read.attached && !read.revoked);
        assert_eq!(read.reason.len(), REASON);
        assert_eq!(ServiceReport::of(directory.path(), 1).unwrap(), None, "of another process");
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(ServiceReport::read(directory.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(ServiceReport::read(directory.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "nonsense").unwrap();
        assert_eq!(ServiceReport::read(directory.path()).unwrap(), None);
    }
}
