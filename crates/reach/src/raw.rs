//! The agent's end of the raw-packet helper ([`isthmus_raw`]). The agent starts
//! the helper as a process and exchanges messages with it over a pair of Unix
//! sockets. The helper ends with the agent.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_net::lock;
use isthmus_raw::message::{self, MAX_LEN, Reply, Request};
use isthmus_raw::{HELPER, Syn};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tracing::{info, warn};

/// How long the helper may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);

/// A running helper.
#[derive(Debug)]
pub struct RawHelper {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<Waiting>>,
    last_id: AtomicU64,
    /// Killed when this is dropped.
    _process: Child,
}

/// Requests without a reply so far; `None` once the helper has ended.
type Waiting = Option<HashMap<u64, oneshot::Sender<Reply>>>;

/// Starts the helper, if it is installed and has `CAP_NET_RAW`; logs why not.
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
        Ok(helper) => Some(Arc::new(helper)),
        Err(reason) => {
            warn!(%reason, "no other node can connect to this one by `traverse`");
            None
        }
    }
}

/// The helper's path, if it is installed.
fn find(configured: Option<&Path>, isthmus: &Path) -> Option<PathBuf> {
    if let Some(configured) = configured {
        return Some(configured.to_owned());
    }
    let beside = isthmus.parent()?.to_owned();
    let places = ["", "../lib/isthmus", "../libexec"].map(|place| beside.join(place).join(HELPER));
    places.into_iter().find(|place| place.is_file())
}

impl RawHelper {
    /// Starts a helper that injects SYNs for this listener only.
    ///
    /// # Errors
    /// If it can't be started, or lacks `CAP_NET_RAW`.
    pub(crate) async fn start(path: &Path, listener: BorrowedFd<'_>) -> Result<Self, String> {
        let failed = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    ": only root and the file's group may run it. Add the agent's user to the group, with \
                     `usermod -aG isthmus USER` as root, and start the agent in a new session"
                }
                _ => "",
            };
            format!("cannot start {}: {error}{remedy}", path.display())
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let (own, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|error| failed(error.into()))?;
        nix::fcntl::fcntl(&own, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
            .map_err(|error| failed(error.into()))?;
        let process = Command::new(path)
            .env_clear()
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the AsyncFd owns the descriptor, which stays open and the same
        // until it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(own, interest) };
        let socket = Arc::new(registered.map_err(|error| failed(error.into()))?);
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(listen(socket.clone(), waiting.clone()));
        let helper = Self { socket, waiting, last_id: AtomicU64::new(0), _process: process };
        helper.ask(&Request::Listen, Some(listener)).await?;
        Ok(helper)
    }

    /// Connects a non-blocking socket, and returns the SYN that it sent.
    ///
    /// # Errors
    /// The helper's reason.
    pub(crate) async fn connect(&self, socket: BorrowedFd<'_>, to: SocketAddrV4) -> Result<Syn, String> {
        let packet = self.ask(&Request::Connect(to), Some(socket)).await?;
        Syn::parse(&packet).map_err(|error| format!("{HELPER} caught no SYN: {error}"))
    }

    /// Puts a SYN for this agent's listener into this host's IP stack.
    ///
    /// # Errors
    /// The helper's reason.
    pub(crate) async fn inject(&self, syn: &Syn) -> Result<(), String> {
        self.ask(&Request::Inject(syn.to_bytes()), None).await.map(drop)
    }

    async fn ask(&self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Reply {
        let ended = || format!("{HELPER} has ended; see the agent's log, and start the agent anew");
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply_tx, reply_rx) = oneshot::channel();
        match &mut *lock(&self.waiting) {
            Some(waiting) => drop(waiting.insert(id, reply_tx)),
            None => return Err(ended()),
        }
        let forget = Forget(&self.waiting, id);
        let bytes = request.encode(id);
        let asked = async {
            let sent =
                self.socket.async_io(Interest::WRITABLE, |socket| send(socket, &bytes, descriptor)).await;
            sent.map_err(|_| ended())?;
            reply_rx.await.map_err(|_| ended())?
        };
        let late = || Err(format!("{HELPER} did not answer within {DEADLINE:?}"));
        let reply = tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(|_| late());
        drop(forget);
        reply
    }
}

/// Removes a request from the map when its caller no longer waits.
struct Forget<'a>(&'a Mutex<Waiting>, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *lock(self.0) {
            waiting.remove(&self.1);
        }
    }
}

fn send(socket: &OwnedFd, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &rights[..0] } else { &rights[..] };
    let data = [IoSlice::new(message)];
    sendmsg::<()>(socket.as_raw_fd(), &data, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Passes replies on until the helper ends.
async fn listen(socket: Arc<AsyncFd<OwnedFd>>, waiting: Arc<Mutex<Waiting>>) {
    let mut bytes = [0; MAX_LEN];
    let error = loop {
        let received = socket.async_io(Interest::READABLE, |socket| {
            Ok(recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?)
        });
        let length = match received.await {
            Ok(0) => break "it closed its socket".to_owned(),
            Ok(length) => length,
            Err(error) => break error.to_string(),
        };
        match message::decode_reply(bytes.get(..length).unwrap_or_default()) {
            Ok((id, reply)) => {
                let requester = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&id));
                // The requester may have given up.
                let _ = requester.map(|reply_tx| reply_tx.send(reply));
            }
            Err(error) => break error.to_string(),
        }
    };
    // An agent that ends the helper has dropped its half.
    if Arc::strong_count(&waiting) > 1 {
        warn!(error, "{HELPER} ended: `traverse` fails until the agent is started anew");
    }
    *lock(&waiting) = None;
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
            assert!(error.contains(want), "{path}: {error}");
        }
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
