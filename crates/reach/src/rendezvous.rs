//! Those who wait here for another agent that was told to dial this one.

use std::collections::HashMap;
use std::sync::Mutex;

use isthmus_net::lock;
use isthmus_net::mac;
use isthmus_wire::ConnectionId;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// All of them.
#[derive(Debug, Default)]
pub struct PendingRendezvous(Mutex<HashMap<ConnectionId, oneshot::Sender<TcpStream>>>);

/// One of them; nobody is let in any more once it is dropped.
#[derive(Debug)]
pub struct Rendezvous<'a> {
    pending: &'a PendingRendezvous,
    id: ConnectionId,
    stream_rx: oneshot::Receiver<TcpStream>,
}

impl PendingRendezvous {
    /// Begins to wait for somebody.
    pub fn begin(&self) -> Rendezvous<'_> {
        let id = mac::new_connection();
        let (stream_tx, stream_rx) = oneshot::channel();
        lock(&self.0).insert(id, stream_tx);
        Rendezvous { pending: self, id, stream_rx }
    }

    /// Somebody came for a rendezvous; `false` if nobody waits.
    pub fn come(&self, id: ConnectionId, stream: TcpStream) -> bool {
        lock(&self.0).remove(&id).is_some_and(|stream_tx| stream_tx.send(stream).is_ok())
    }
}

impl Rendezvous<'_> {
    /// What the other one must know.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Waits for the other one; for ever, if need be.
    pub async fn stream(&mut self) -> Option<TcpStream> {
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
    async fn only_who_is_waited_for_is_let_in_and_once() {
        let pending = PendingRendezvous::default();
        let mut rendezvous = pending.begin();
        let id = rendezvous.id();
        assert!(!pending.come(ConnectionId([0; 16]), stream().await));
        assert!(pending.come(id, stream().await));
        assert!(!pending.come(id, stream().await));
        assert!(rendezvous.stream().await.is_some());
        let id = pending.begin().id();
        assert!(!pending.come(id, stream().await), "nobody waits any more");
    }
}
