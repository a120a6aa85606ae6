//! Knocks: how an incoming connection reaches a program's `accept`.
//!
//! A knock is a connection over loopback to the program's port, from an address that
//! only the agent's user can bind ([`Sources`]). The kernel's own queue, `poll` and
//! `epoll` do the rest. The shim's `accept` recognises a knock by its source address,
//! and fetches the connection behind it by source address and port.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::exhausted::{self, Exhausted};
use isthmus_net::lock;
use isthmus_net::loopback::{Buffers, Sources};
use isthmus_wire::preamble::Status;
use isthmus_wire::shim::End;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// How long a listener's queue may stay full.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// The connection behind a knock.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The initiator's end, as its program sees it.
    pub peer: End,
    /// This end.
    pub local: End,
    /// The socket that takes the knock's place; none if the knock itself is the
    /// program's end of the connection.
    pub socket: Option<std::net::TcpStream>,
}

/// Knocks that no `accept` has fetched yet, by source.
#[derive(Debug, Default)]
pub(crate) struct Knocks(Mutex<HashMap<SocketAddrV4, oneshot::Receiver<Incoming>>>);

/// A knock that the kernel has put into the listener's queue.
#[derive(Debug)]
pub(crate) struct Knock {
    /// The agent's end.
    pub stream: TcpStream,
    /// The agent's address.
    pub from: SocketAddrV4,
    incoming_tx: oneshot::Sender<Incoming>,
}

impl Knocks {
    /// Knocks at a port. The program may accept at once, but its shim waits until
    /// [`Knock::admit`].
    ///
    /// # Errors
    /// The status for the initiator; `short` is called if a resource has run out.
    pub(crate) async fn knock(
        &self,
        sources: &Sources,
        (twin, port): (Ipv4Addr, u16),
        short: impl Fn(Exhausted),
    ) -> Result<Knock, Status> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Status::Refused,
            io::ErrorKind::TimedOut => Status::TimedOut,
            _ => {
                tracing::warn!(error = exhausted::text(&error), port, "cannot knock");
                Exhausted::of(&error).into_iter().for_each(&short);
                Status::Failed
            }
        };
        let to = SocketAddrV4::new(twin, port).into();
        let connecting = sources.connect(to, Buffers::default(), |from| self.expect(from));
        let connected = tokio::time::timeout(DEADLINE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (stream, mut expected) = connected.map_err(failed)?;
        let stream = TcpStream::from_std(stream).map_err(failed)?;
        let incoming_tx = expected.incoming_tx.take().ok_or(Status::Failed)?;
        Ok(Knock { stream, from: expected.from, incoming_tx })
    }

    /// Has [`fetch`](Self::fetch) wait for a knock from this address; `None` if an
    /// earlier knock from there was not fetched yet.
    fn expect(&self, from: SocketAddrV4) -> Option<Expected<'_>> {
        match lock(&self.0).entry(from) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                let (incoming_tx, incoming_rx) = oneshot::channel();
                vacant.insert(incoming_rx);
                Some(Expected { knocks: self, from, incoming_tx: Some(incoming_tx) })
            }
        }
    }

    /// Waits for the connection behind the knock from this address; none if the agent
    /// did not knock from there, or the initiator has left.
    pub(crate) async fn fetch(&self, from: SocketAddrV4) -> Option<Incoming> {
        let incoming_rx = lock(&self.0).remove(&from)?;
        tokio::time::timeout(DEADLINE, incoming_rx).await.ok()?.ok()
    }

    /// Drops a knock that was not fetched; returns its connection, if it was
    /// admitted.
    pub(crate) fn forget(&self, from: SocketAddrV4) -> Option<Incoming> {
        lock(&self.0).remove(&from)?.try_recv().ok()
    }
}

/// A knock that is being made; forgotten if it fails.
struct Expected<'a> {
    knocks: &'a Knocks,
    from: SocketAddrV4,
    /// None once the knock was made.
    incoming_tx: Option<oneshot::Sender<Incoming>>,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if self.incoming_tx.is_some() {
            self.knocks.forget(self.from);
        }
    }
}

impl Knock {
    /// Passes the connection to the shim and returns the agent's end of the knock.
    /// To be called only after the answer "connected" was sent: from here on the
    /// program may write to the socket.
    pub(crate) fn admit(self, incoming: Incoming) -> TcpStream {
        // If the program has closed its listener, this drops the socket, too.
        let _ = self.incoming_tx.send(incoming);
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use isthmus_wire::address::is_agents;
    use tokio::net::TcpListener;

    const INITIATOR: End = End { address: Ipv4Addr::new(240, 64, 2, 1), port: 7 };

    #[tokio::test]
    async fn a_knock_is_fetched_once_by_its_source_and_only_after_admission() {
        let listener = TcpListener::bind("127.64.9.9:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        let knock = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), port), |_| ()).await.unwrap();
        let (_accepted, SocketAddr::V4(from)) = listener.accept().await.unwrap() else { panic!() };
        assert!(is_agents(*from.ip()) && from == knock.from, "{from}");
        let elsewhere = SocketAddrV4::new(*from.ip(), from.port() ^ 1);
        assert!(knocks.fetch(elsewhere).await.is_none(), "the same address, another port");
        let admit = async {
            tokio::task::yield_now().await;
            knock.admit(Incoming { peer: INITIATOR, local: End::NONE, socket: None })
        };
        let (incoming, _end) = tokio::join!(knocks.fetch(from), admit);
        assert_eq!(incoming.unwrap().peer, INITIATOR);
        assert!(knocks.fetch(from).await.is_none());
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses() {
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        let refused = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), 1), |_| ()).await;
        assert_eq!(refused.unwrap_err(), Status::Refused);
        assert!(lock(&knocks.0).is_empty());
    }
}
