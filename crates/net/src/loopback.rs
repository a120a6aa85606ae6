//! A program's end of a connection that an agent carries itself: a TCP
//! connection over loopback. A Unix socket pair would be cheaper, but programs
//! set TCP options on what they believe is a TCP socket.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isthmus_wire::address::KNOCK_SOURCE;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tracing::warn;

use crate::listen;

/// How long the kernel may take to connect two sockets over loopback.
const DEADLINE: Duration = Duration::from_secs(5);

type Waiting = Arc<Mutex<HashMap<SocketAddr, oneshot::Sender<TcpStream>>>>;

/// Makes pairs of connected loopback sockets. One listener serves them all and
/// closes whatever it didn't ask for.
#[derive(Debug)]
pub struct PairMaker {
    address: SocketAddr,
    waiting: Waiting,
    accepting: tokio::task::AbortHandle,
}

/// Both ends of a connection over loopback.
#[derive(Debug)]
pub struct Pair {
    /// The end to be handed to the program; its peer address is
    /// [`KNOCK_SOURCE`], by which a shim knows it.
    pub program: TcpStream,
    /// The agent's end.
    pub agent: TcpStream,
}

impl PairMaker {
    /// Binds the listener.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub async fn bind() -> io::Result<Self> {
        let listener = listen(SocketAddrV4::new(KNOCK_SOURCE, 0).into())?;
        let address = listener.local_addr()?;
        let waiting = Waiting::default();
        let accepting = tokio::spawn(accept(listener, waiting.clone())).abort_handle();
        Ok(Self { address, waiting, accepting })
    }

    /// Makes a pair. Buffer sizes are set on the program's end before it
    /// connects, because they decide on window scaling.
    ///
    /// # Errors
    /// As `connect(2)`, or `TimedOut`.
    pub async fn pair(&self, send_buffer: u32, receive_buffer: u32) -> io::Result<Pair> {
        let socket = TcpSocket::new_v4()?;
        if send_buffer > 0 {
            socket.set_send_buffer_size(send_buffer)?;
        }
        if receive_buffer > 0 {
            socket.set_recv_buffer_size(receive_buffer)?;
        }
        // Bound first, so that the accepting task can tell this connection
        // from one that a stranger on this machine makes.
        socket.bind(SocketAddrV4::new(KNOCK_SOURCE, 0).into())?;
        let own = socket.local_addr()?;
        let (agent_tx, agent_rx) = oneshot::channel();
        lock(&self.waiting).insert(own, agent_tx);
        let made = tokio::time::timeout(DEADLINE, async {
            let program = socket.connect(self.address).await?;
            let agent = agent_rx.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
            Ok(Pair { program, agent })
        })
        .await;
        lock(&self.waiting).remove(&own);
        made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for PairMaker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, waiting: Waiting) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(agent_tx) = lock(&waiting).remove(&peer) {
                    // The receiver is gone if the pair's deadline has passed.
                    let _ = agent_tx.send(stream);
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept on loopback");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn pairs_are_connected_and_strangers_are_not() {
        let maker = PairMaker::bind().await.unwrap();
        let mut stranger = TcpStream::connect(maker.address).await.unwrap();
        for round in 0..10u8 {
            let mut pair = maker.pair(0, 0).await.unwrap();
            assert_eq!(pair.program.peer_addr().unwrap().ip(), KNOCK_SOURCE);
            pair.program.write_all(&[round]).await.unwrap();
            assert_eq!(pair.agent.read_u8().await.unwrap(), round);
        }
        assert_eq!(stranger.read(&mut [0]).await.unwrap(), 0);
    }
}
