//! Listening for bursts of connections, and their first bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::exhausted::{self, Exhausted, Spell};
use crate::unidentified::{Unidentified, UnidentifiedEntry};

/// Most connections that may wait to be accepted. The kernel allows no more than
/// `net.core.somaxconn`, 4,096 since Linux 5.4. A large job makes all its connections at once. If
/// the queue is full, the kernel retries after 1 s, then 2 s, then 4 s.
const BACKLOG: u32 = 4096;
/// Pause after a failed accept. The cause is mostly "too many open files", which passes.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Listens on an address.
///
/// # Errors
/// As `bind(2)`.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Raises the limit of descriptors to the hard limit. Each spliced connection takes two
/// descriptors, and up to four more while both ends are slow. Each gateway takes one at the broker.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        warn!(%error, "cannot raise the limit of open files");
    }
}

/// Serves each connection in a task of its own; never returns. Connections are accepted at any
/// time, so that the listen queue stays free. `serve` drops the entry once the peer has proved its
/// identity. Until then the connection ends if it is evicted.
pub async fn serve_each<F>(
    listener: TcpListener,
    unidentified: &Arc<Unidentified>,
    serve: impl Fn(TcpStream, SocketAddr, UnidentifiedEntry) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    serve_or_tell(listener, unidentified, |_| (), serve).await;
}

/// Serves each connection as [`serve_each`] does. `tell` is called when a resource runs out, once
/// for a spell of failures.
pub async fn serve_or_tell<F>(
    listener: TcpListener,
    unidentified: &Arc<Unidentified>,
    tell: impl Fn(Exhausted),
    serve: impl Fn(TcpStream, SocketAddr, UnidentifiedEntry) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut spell = Spell::default();
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                let entry = unidentified.enter(peer.ip());
                let evicted = entry.evicted();
                tokio::spawn(evicted.run_until_cancelled_owned(serve(tcp, peer, entry)));
            }
            Err(error) => {
                if spell.failed(Instant::now()).is_zero() {
                    warn!(error = exhausted::text(&error), "cannot accept a connection");
                    Exhausted::of(&error).into_iter().for_each(&tell);
                }
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// The first byte of a connection; it stays unread.
///
/// # Errors
/// If no byte comes within `deadline`.
pub async fn first_byte(tcp: &TcpStream, deadline: Duration) -> io::Result<u8> {
    let mut first = [0];
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("nothing within {deadline:?}"));
    match timeout(deadline, tcp.peek(&mut first)).await.map_err(late)?? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While many connect at once, none of their connections is accepted, and no SYN is sent twice.
    #[tokio::test]
    async fn a_burst_of_connections_finds_room() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = most.trim().parse::<usize>().unwrap().min(400);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut connected = Vec::new();
        for _ in 0..burst {
            let connecting = tokio::net::TcpStream::connect(address);
            let deadline = std::time::Duration::from_secs(20);
            connected.push(tokio::time::timeout(deadline, connecting).await.expect("no room").unwrap());
        }
        for _ in 0..burst {
            listener.accept().await.unwrap();
        }
    }
}
