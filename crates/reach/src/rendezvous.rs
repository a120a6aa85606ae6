//! Connections that this party waits for: the broker asked another party to dial
//! this one.

use std::collections::HashMap;
use std::sync::Mutex;

use isthmus_rpc::connection;
use isthmus_service::lock;
use isthmus_wire::ConnectionId;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// The connections that this party waits for, by their id.
#[derive(Debug, Default)]
pub struct PendingRendezvous(Mutex<HashMap<ConnectionId, oneshot::Sender<TcpStream>>>);

/// A connection that this party waits for. Once this is dropped, the connection is refused.
#[derive(Debug)]
pub(crate) struct Rendezvous<'a> {
    pending: &'a PendingRendezvous,
    id: ConnectionId,
    stream_rx: oneshot::Receiver<TcpStream>,
}

impl PendingRendezvous {
    /// Begins to wait for a connection, under a new id.
    pub(crate) fn begin(&self) -> Rendezvous<'_> {
        let id = connection::new_id();
        let (stream_tx, stream_rx) = oneshot::channel();
        lock(&self.0).insert(id, stream_tx);
        Rendezvous { pending: self, id, stream_rx }
    }

    /// Passes on a connection that arrived with this id; `false` if no one waits for
    /// it.
    pub fn arrived(&self, id: ConnectionId, stream: TcpStream) -> bool {
        lock(&self.0).remove(&id).is_some_and(|stream_tx| stream_tx.send(stream).is_ok())
    }
}

impl Rendezvous<'_> {
    /// The id of the rendezvous, which the other party sends first.
    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Waits until the connection has arrived, without a deadline.
    pub(crate) async fn arrival(&mut self) {
        if self.stream().await.is_none() {
            std::future::pending().await
        }
    }

    /// Waits for the connection, without a deadline.
    pub(crate) async fn stream(&mut self) -> Option<TcpStream> {
        (&mut self.stream_rx).await.ok()
    }
}

impl Drop for Rendezvous<'_> {
    fn drop(&mut self) {
        lock(&self.pending.0).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn stream() -> TcpStream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_passed_on_once_and_only_while_it_is_waited_for() {
        let pending = PendingRendezvous::default();
        let mut rendezvous = pending.begin();
        let id = rendezvous.id();
        assert!(!pending.arrived(ConnectionId([0; 16]), stream().await));
        assert!(pending.arrived(id, stream().await));
        assert!(!pending.arrived(id, stream().await));
        assert!(rendezvous.stream().await.is_some());
        let id = pending.begin().id();
        assert!(!pending.arrived(id, stream().await), "dropped");
    }
}
