//! The agent's end of the raw-packet helper ([`isthmus_raw`]). The agent starts the helper as a
//! process and exchanges messages with it over a pair of Unix sockets. The helper ends with the
//! agent. A helper that ends before is started again.
mod running;

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use isthmus_raw::message::Request;
use isthmus_raw::syn::NotASyn;
use isthmus_raw::{HELPER, Syn};
use isthmus_service::files::installed;
use isthmus_service::lock;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::running::Running;

/// The pause before a helper that has ended is started again. It doubles with each further failure,
/// up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause before a helper is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a helper must have run for its end not to count as a further failure.
const STEADY: Duration = Duration::from_secs(60);

/// Why the helper has not done what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It can't be started.
    #[error("cannot start {}: {source}{}", .path.display(), remedy(.source))]
    Start {
        /// The helper's path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It has ended, and is started again in a while.
    #[error("{} has ended; see the agent's log", HELPER)]
    Ended,
    /// It has not answered in time.
    #[error("{} did not answer within {:?}", HELPER, running::DEADLINE)]
    Late,
    /// It could not do it; the text is its own.
    #[error("{0}")]
    Failed(String),
    /// What it has caught is no SYN.
    #[error("{helper} caught no SYN: {0}", helper = HELPER)]
    NoSyn(#[from] NotASyn),
}

/// What to do about an error of the helper's start.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": only root and the file's group may run it. Add the agent's user to the group, with \
             `usermod -aG isthmus USER` as root, and start the agent in a new session"
        }
        _ => "",
    }
}

/// The raw-packet helper, which is started again when it ends.
#[derive(Debug)]
pub struct RawHelper {
    path: PathBuf,
    /// The agent's listener, the only socket for which the helper injects SYNs.
    listener: OwnedFd,
    /// The helper's process; `None` while there is none.
    running: Mutex<Option<Arc<Running>>>,
}

/// Starts the helper, if it is installed and has `CAP_NET_RAW`. Otherwise logs why not and returns
/// `None`.
pub async fn start(
    configured: Option<&Path>,
    isthmus: &Path,
    listener: &TcpListener,
) -> Option<Arc<RawHelper>> {
    let Some(path) = find(configured, isthmus) else {
        info!("{HELPER} is not installed: no other node can connect to this one by `traverse`");
        return None;
    };
    match RawHelper::start(&path, listener.as_fd()).await {
        Ok(helper) => Some(helper),
        Err(reason) => {
            warn!(%reason, "no other node can connect to this one by `traverse`");
            None
        }
    }
}

/// The helper's path; `None` if it isn't installed.
fn find(configured: Option<&Path>, isthmus: &Path) -> Option<PathBuf> {
    if let Some(configured) = configured {
        return Some(configured.to_owned());
    }
    let last = isthmus.parent()?.join("../libexec").join(HELPER);
    installed(isthmus, HELPER).into_iter().chain([last]).find(|place| place.is_file())
}

impl RawHelper {
    /// Starts a helper that injects SYNs for this listener only.
    ///
    /// # Errors
    /// If the helper can't be started, or lacks `CAP_NET_RAW`.
    pub(crate) async fn start(path: &Path, listener: BorrowedFd<'_>) -> Result<Arc<Self>, HelperError> {
        let listener = listener.try_clone_to_owned();
        let listener = listener.map_err(|source| HelperError::Start { path: path.to_owned(), source })?;
        let running = Running::start(path, listener.as_fd()).await?;
        let ended = running.ended();
        let running = Mutex::new(Some(Arc::new(running)));
        let helper = Arc::new(Self { path: path.to_owned(), listener, running });
        tokio::spawn(keep(Arc::downgrade(&helper), ended));
        Ok(helper)
    }

    /// Connects a non-blocking socket, and returns the SYN that it sent.
    ///
    /// # Errors
    /// The reason why the helper didn't connect it.
    pub(crate) async fn connect(&self, socket: BorrowedFd<'_>, to: SocketAddrV4) -> Result<Syn, HelperError> {
        let packet = self.running()?.ask(&Request::Connect(to), Some(socket)).await?;
        Ok(Syn::parse(&packet)?)
    }

    /// Puts a SYN for this agent's listener into this host's IP stack.
    ///
    /// # Errors
    /// The reason why the helper didn't inject it.
    pub(crate) async fn inject(&self, syn: &Syn) -> Result<(), HelperError> {
        self.running()?.ask(&Request::Inject(syn.to_bytes()), None).await.map(drop)
    }

    fn running(&self) -> Result<Arc<Running>, HelperError> {
        lock(&self.running).clone().ok_or(HelperError::Ended)
    }
}

/// Starts the helper again whenever it has ended; returns when the agent has dropped it.
async fn keep(helper: Weak<RawHelper>, mut ended: CancellationToken) {
    let (mut failures, mut began) = (0_u32, Instant::now());
    loop {
        ended.cancelled().await;
        failures = if began.elapsed() < STEADY { failures.saturating_add(1) } else { 0 };
        // An agent that ends has dropped the helper.
        let Some(kept) = helper.upgrade() else { return };
        lock(&kept.running).take();
        drop(kept);
        warn!(retry_in = ?pause(failures), "{HELPER} has ended: it is started again, and `traverse` fails meanwhile");
        let mut told = String::new();
        ended = loop {
            sleep(pause(failures)).await;
            let Some(kept) = helper.upgrade() else { return };
            match Running::start(&kept.path, kept.listener.as_fd()).await {
                Ok(running) => {
                    let ended = running.ended();
                    *lock(&kept.running) = Some(Arc::new(running));
                    break ended;
                }
                Err(error) => {
                    let reason = error.to_string();
                    failures = failures.saturating_add(1);
                    // Each reason once: the attempts go on.
                    if reason != told {
                        warn!(%reason, "{HELPER} cannot be started again: `traverse` fails, and it is tried on");
                        told = reason;
                    }
                }
            }
        };
        began = Instant::now();
        info!("{HELPER} was started again");
    }
}

/// How long to wait after this many failures in a row.
fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_no_helper_is_an_error_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (path, want) in [
            ("/nonexistent/isthmus-raw", "cannot start /nonexistent"),
            ("/bin/true", "has ended"),
            // May be executed by no user.
            ("/etc/passwd", "usermod -aG isthmus"),
        ] {
            let error = RawHelper::start(Path::new(path), listener.as_fd()).await.unwrap_err();
            assert!(error.to_string().contains(want), "{path}: {error}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses = [0, 1, 6, 7, 17, u32::MAX].map(|failures| pause(failures).as_millis());
        assert_eq!(pauses, [500, 1000, 32_000, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn the_helper_is_beside_the_command_or_among_the_libraries() {
        let prefix = tempfile::tempdir().unwrap();
        let command = prefix.path().join("bin/isthmus");
        assert_eq!(find(None, &command), None);
        for place in ["libexec", "lib/isthmus", "bin"] {
            let directory = prefix.path().join(place);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::create_dir_all(prefix.path().join("bin")).unwrap();
            std::fs::write(directory.join(HELPER), "").unwrap();
            let found = find(None, &command).unwrap().canonicalize().unwrap();
            assert_eq!(found, directory.join(HELPER).canonicalize().unwrap());
        }
        let given = Path::new("/elsewhere/raw");
        assert_eq!(find(Some(given), &command), Some(given.to_owned()));
    }
}
