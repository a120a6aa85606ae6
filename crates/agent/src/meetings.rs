//! Those who wait here for another agent that was told to dial this one.

use std::collections::HashMap;
use std::sync::Mutex;

use isthmus_net::mac;
use isthmus_wire::ConnectionId;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::job::lock;

/// All of them.
#[derive(Debug, Default)]
pub struct Meetings(Mutex<HashMap<ConnectionId, oneshot::Sender<TcpStream>>>);

/// One of them; nobody is let in any more once it is dropped.
#[derive(Debug)]
pub struct Meeting<'a> {
    meetings: &'a Meetings,
    id: ConnectionId,
    stream_rx: oneshot::Receiver<TcpStream>,
}

impl Meetings {
    /// Begins to wait for somebody.
    pub fn begin(&self) -> Meeting<'_> {
        let id = mac::new_connection();
        let (stream_tx, stream_rx) = oneshot::channel();
        lock(&self.0).insert(id, stream_tx);
        Meeting { meetings: self, id, stream_rx }
    }

    /// Somebody came for a meeting; `false` if nobody waits.
    pub fn come(&self, id: ConnectionId, stream: TcpStream) -> bool {
        lock(&self.0).remove(&id).is_some_and(|stream_tx| stream_tx.send(stream).is_ok())
    }
}

impl Meeting<'_> {
    /// What the other one must know.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Waits for the other one; for ever, if need be.
    pub async fn stream(&mut self) -> Option<TcpStream> {
        (&mut self.stream_rx).await.ok()
    }
}

impl Drop for Meeting<'_> {
    fn drop(&mut self) {
        lock(&self.meetings.0).remove(&self.id);
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
        let meetings = Meetings::default();
        let mut meeting = meetings.begin();
        let id = meeting.id();
        assert!(!meetings.come(ConnectionId([0; 16]), stream().await));
        assert!(meetings.come(id, stream().await));
        assert!(!meetings.come(id, stream().await));
        assert!(meeting.stream().await.is_some());
        let id = meetings.begin().id();
        assert!(!meetings.come(id, stream().await), "nobody waits any more");
    }
}
