//! A process of the helper.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_raw::HELPER;
use isthmus_raw::message::{self, MAX_LEN, Reply, Request};
use isthmus_service::lock;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::HelperError;

/// How long the helper may take to answer.
pub(super) const DEADLINE: Duration = Duration::from_secs(3);

/// A process of the helper that runs.
#[derive(Debug)]
pub(super) struct Running {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<PendingReplies>>,
    /// Cancelled once the process has ended.
    ended: CancellationToken,
    last_id: AtomicU64,
    /// The process, which is killed when this is dropped.
    _process: Child,
}

/// Requests without a reply so far; `None` once the helper has ended.
type PendingReplies = Option<HashMap<u64, oneshot::Sender<Reply>>>;

impl Running {
    /// Starts a helper that injects SYNs for this listener only.
    ///
    /// # Errors
    /// If the helper can't be started, or lacks `CAP_NET_RAW`.
    pub(super) async fn start(path: &Path, listener: BorrowedFd<'_>) -> Result<Self, HelperError> {
        let failed = |source: io::Error| HelperError::Start { path: path.to_owned(), source };
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
        let ended = CancellationToken::new();
        tokio::spawn(listen(socket.clone(), waiting.clone(), ended.clone()));
        let helper = Self { socket, waiting, ended, last_id: AtomicU64::new(0), _process: process };
        helper.ask(&Request::Listen, Some(listener)).await?;
        Ok(helper)
    }

    /// A token that is cancelled once the helper has ended.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Asks the helper, and waits for its reply.
    ///
    /// # Errors
    /// The helper's reason, or why there is no reply.
    pub(super) async fn ask(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<u8>, HelperError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply_tx, reply_rx) = oneshot::channel();
        match &mut *lock(&self.waiting) {
            Some(waiting) => drop(waiting.insert(id, reply_tx)),
            None => return Err(HelperError::Ended),
        }
        let forget = Forget(&self.waiting, id);
        let bytes = request.encode(id);
        let asked = async {
            let sent =
                self.socket.async_io(Interest::WRITABLE, |socket| send(socket, &bytes, descriptor)).await;
            sent.map_err(|_| HelperError::Ended)?;
            reply_rx.await.map_err(|_| HelperError::Ended)?.map_err(HelperError::Failed)
        };
        let reply = tokio::time::timeout(DEADLINE, asked).await.unwrap_or(Err(HelperError::Late));
        drop(forget);
        reply
    }
}

/// Removes a request from the map when its caller no longer waits.
struct Forget<'a>(&'a Mutex<PendingReplies>, u64);

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
async fn listen(socket: Arc<AsyncFd<OwnedFd>>, waiting: Arc<Mutex<PendingReplies>>, over: CancellationToken) {
    // Whatever ends this task.
    let _over = over.drop_guard();
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
    debug!(error, "{HELPER} ended");
    *lock(&waiting) = None;
}
