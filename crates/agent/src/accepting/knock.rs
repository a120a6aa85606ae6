//! Knocks: how an incoming connection reaches a program's `accept`.
//!
//! A knock is a connection over loopback, from
//! [`KNOCK_SOURCE`](isthmus_wire::address::KNOCK_SOURCE), to the program's port.
//! The kernel's own queue, `poll` and `epoll` do the rest. The shim's `accept`
//! recognises a knock by its source address, and fetches the connection behind it
//! by its source port.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::lock;
use isthmus_net::loopback;
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

/// Knocks that no `accept` has fetched yet, by source port.
#[derive(Debug, Default)]
pub(crate) struct Knocks(Mutex<HashMap<u16, oneshot::Receiver<Incoming>>>);

/// A knock that the kernel has put into the listener's queue.
#[derive(Debug)]
pub(crate) struct Knock {
    /// The agent's end.
    pub stream: TcpStream,
    incoming_tx: oneshot::Sender<Incoming>,
}

impl Knocks {
    /// Knocks at a port. The program may accept at once, but its shim waits until
    /// [`Knock::admit`].
    ///
    /// # Errors
    /// The status for the initiator.
    pub(crate) async fn knock(&self, twin: Ipv4Addr, port: u16) -> Result<Knock, Status> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Status::Refused,
            io::ErrorKind::TimedOut => Status::TimedOut,
            _ => {
                tracing::warn!(%error, port, "cannot knock");
                Status::Failed
            }
        };
        let (socket, own) = loopback::socket(0, 0).map_err(failed)?;
        let own = own.port();
        let (incoming_tx, incoming_rx) = oneshot::channel();
        lock(&self.0).insert(own, incoming_rx);
        let to = SocketAddrV4::new(twin, port).into();
        let connected = tokio::time::timeout(DEADLINE, loopback::connect(socket, to)).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match connected.and_then(TcpStream::from_std) {
            Ok(stream) => Ok(Knock { stream, incoming_tx }),
            Err(error) => {
                self.forget(own);
                Err(failed(error))
            }
        }
    }

    /// Waits for the connection behind the knock from this port; none if no agent
    /// knocked from there, or the initiator has left.
    pub(crate) async fn fetch(&self, knock_port: u16) -> Option<Incoming> {
        let incoming_rx = lock(&self.0).remove(&knock_port)?;
        tokio::time::timeout(DEADLINE, incoming_rx).await.ok()?.ok()
    }

    /// Drops a knock that was not fetched; returns its connection, if it was
    /// admitted.
    pub(crate) fn forget(&self, knock_port: u16) -> Option<Incoming> {
        lock(&self.0).remove(&knock_port)?.try_recv().ok()
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
    use isthmus_wire::address::KNOCK_SOURCE;
    use tokio::net::TcpListener;

    const INITIATOR: End = End { address: Ipv4Addr::new(240, 64, 2, 1), port: 7 };

    #[tokio::test]
    async fn a_knock_is_fetched_once_by_its_port_and_only_after_admission() {
        let listener = TcpListener::bind("127.64.9.9:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let knocks = Knocks::default();
        let knock = knocks.knock(Ipv4Addr::new(127, 64, 9, 9), port).await.unwrap();
        let (_accepted, from) = listener.accept().await.unwrap();
        assert_eq!(from.ip(), KNOCK_SOURCE);
        let admit = async {
            tokio::task::yield_now().await;
            knock.admit(Incoming { peer: INITIATOR, local: End::NONE, socket: None })
        };
        let (incoming, _end) = tokio::join!(knocks.fetch(from.port()), admit);
        assert_eq!(incoming.unwrap().peer, INITIATOR);
        assert!(knocks.fetch(from.port()).await.is_none());
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses() {
        let refused = Knocks::default().knock(Ipv4Addr::new(127, 64, 9, 9), 1).await;
        assert_eq!(refused.unwrap_err(), Status::Refused);
    }
}
