//! Bytes of a job's raw connections. The program has the socket and the agent has none, so
//! the kernel tells what was carried, when it destroys the socket: that needs no privilege,
//! costs the program nothing and misses no killed one. Counted at the initiator's end.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use isthmus_carry::TcpInfo;
use isthmus_net::sock_diag::{self, Destroyed};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::account::Bytes;
use crate::carrying::sockets::cookie;

/// Most sockets that are counted at a time, about 100 bytes each; bytes of others are
/// missing.
const OPEN_MAX: usize = 1 << 20;
/// How long the end of a job waits for sockets whose other end has yet to acknowledge
/// what was sent.
const SETTLE: Duration = Duration::from_millis(500);

/// A socket that was handed over and isn't counted yet.
#[derive(Debug)]
struct Open {
    ends: (SocketAddr, SocketAddr),
    /// What the kernel had counted before the program got the socket: the agents' own messages.
    before: TcpInfo,
    bytes: Arc<Bytes>,
}

impl Open {
    fn carried(&self, tcp_info: &[u8]) -> (u64, u64) {
        let info = TcpInfo::decode(tcp_info);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        (
            since(info.acknowledged_bytes, self.before.acknowledged_bytes),
            since(info.received_bytes, self.before.received_bytes),
        )
    }
}

/// The raw connections of one job that began here.
#[derive(Debug)]
pub(crate) struct Raw {
    /// The sockets that aren't counted yet, by `SO_COOKIE`.
    open: watch::Sender<HashMap<u64, Open>>,
    /// Whether the kernel tells of destroyed sockets; empty before the first connection.
    told: OnceLock<bool>,
    ended: CancellationToken,
}

impl Raw {
    /// Makes the record for a job. Once `ended` is cancelled, it hears no more of the kernel.
    pub(crate) fn new(ended: CancellationToken) -> Arc<Self> {
        Arc::new(Self { open: watch::Sender::new(HashMap::new()), told: OnceLock::new(), ended })
    }

    /// Watches a connection that is about to be handed over. What it carries is added to `bytes`.
    pub(crate) fn watch(self: &Arc<Self>, socket: &TcpStream, bytes: Arc<Bytes>) {
        bytes.raw_begins();
        if !*self.told.get_or_init(|| self.hear()) {
            return;
        }
        let open = || -> io::Result<_> {
            let ends = (socket.local_addr()?, socket.peer_addr()?);
            Ok((cookie(socket)?, Open { ends, before: TcpInfo::of(socket)?, bytes: bytes.clone() }))
        };
        match open() {
            Ok((cookie, open)) => {
                bytes.tell();
                self.open.send_if_modified(|all| {
                    if all.len() < OPEN_MAX {
                        all.insert(cookie, open);
                    }
                    false
                });
            }
            Err(error) => debug!(%error, "a raw connection is not counted"),
        }
    }

    /// Begins to hear of sockets that are destroyed. Returns whether that is possible.
    fn hear(self: &Arc<Self>) -> bool {
        // SAFETY: the listener keeps its descriptor for as long as it lives.
        let register = |destroyed| unsafe { AsyncFd::register_with_interest(destroyed, Interest::READABLE) };
        let destroyed = match Destroyed::listen().and_then(|listener| Ok(register(listener)?)) {
            Ok(destroyed) => destroyed,
            Err(error) => {
                warn!(%error, "the kernel does not tell of closed connections: the bytes of raw ones are not counted");
                return false;
            }
        };
        let raw = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = raw.follow(&destroyed) => {}
                () = raw.ended.cancelled() => {}
            }
        });
        true
    }

    async fn follow(&self, destroyed: &AsyncFd<Destroyed>) {
        loop {
            match destroyed.async_io(Interest::READABLE, Destroyed::next).await {
                Ok(told) => self.destroyed(told.cookie, &told.tcp_info),
                // Sockets of which the kernel's news were lost stay open until the job's end.
                Err(error) => debug!(%error, "the kernel's news of closed connections are incomplete"),
            }
        }
    }

    fn destroyed(&self, cookie: u64, tcp_info: &[u8]) {
        self.open.send_if_modified(|all| {
            let Some(open) = all.remove(&cookie) else { return false };
            let carried = open.carried(tcp_info);
            open.bytes.raw_ended(carried);
            all.is_empty()
        });
    }

    /// To be called once the job's processes have ended: waits for the last sockets to go, but not
    /// for long. Of sockets that stay, adds what they have carried so far.
    pub(crate) async fn settle(&self) {
        let mut open = self.open.subscribe();
        let gone = tokio::time::timeout(SETTLE, open.wait_for(HashMap::is_empty)).await.is_ok();
        if gone {
            return;
        }
        self.open.send_if_modified(|all| {
            for (cookie, open) in all.drain() {
                match sock_diag::carried(open.ends.0, open.ends.1) {
                    Ok(told) if told.cookie == cookie => open.bytes.raw_so_far(open.carried(&told.tcp_info)),
                    Ok(_) | Err(_) => {}
                }
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use isthmus_plan::Encryption;
    use isthmus_wire::proto;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::observing::account::{Account, Joint};

    fn account() -> (Account, Joint) {
        let joint = Joint {
            acceptor: "n1.beta".parse().unwrap(),
            route: proto::Route::EndToEnd,
            dial: proto::Dial::Direct,
            relay: String::new(),
            encryption: Encryption::None,
        };
        (Account::new("n1.alpha".parse().unwrap()), joint)
    }

    /// The account's only entry: whether its bytes are known, whether they are a lower bound, bytes
    /// sent, bytes received.
    fn so_far(account: &Account) -> (bool, bool, u64, u64) {
        let only = account.joined().remove(0);
        (only.bytes_known, only.bytes_least, only.bytes_sent, only.bytes_received)
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn what_a_socket_carried_is_counted_when_it_is_gone() {
        let (account, joint) = account();
        let raw = Raw::new(CancellationToken::new());
        let (mut near, mut far) = pair().await;
        // The agents' own messages.
        near.write_all(&[0; 77]).await.unwrap();
        far.read_exact(&mut [0; 77]).await.unwrap();
        raw.watch(&near, account.connected(joint, Duration::ZERO));
        assert_eq!(so_far(&account), (true, true, 0, 0));
        near.write_all(&[0; 10_000]).await.unwrap();
        far.read_exact(&mut [0; 10_000]).await.unwrap();
        far.write_all(&[0; 333]).await.unwrap();
        near.read_exact(&mut [0; 333]).await.unwrap();
        drop(near);
        drop(far);
        raw.settle().await;
        let (known, least, sent, received) = so_far(&account);
        assert!(known && !least, "{known} {least}");
        // The kernel may count the end of a direction as one byte.
        assert!((10_000..=10_001).contains(&sent) && (333..=334).contains(&received), "{sent} {received}");
    }

    #[tokio::test]
    async fn a_socket_that_stays_is_counted_so_far() {
        let (account, joint) = account();
        let raw = Raw::new(CancellationToken::new());
        let (mut near, mut far) = pair().await;
        raw.watch(&near, account.connected(joint, Duration::ZERO));
        near.write_all(&[0; 5000]).await.unwrap();
        far.read_exact(&mut [0; 5000]).await.unwrap();
        far.write_all(&[0; 1]).await.unwrap();
        near.read_exact(&mut [0; 1]).await.unwrap();
        raw.settle().await;
        assert_eq!(so_far(&account), (true, true, 5000, 1));
    }
}
