//! The port inside the site: agents come there to speak gRPC over TLS, or with a
//! ticket for a stream; the first byte tells.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::grpc;
use isthmus_wire::ticket::{FIRST_BYTE, TICKET_LEN};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use crate::streams::Streams;

/// How long a connection may take to say what it is for.
const FIRST_DEADLINE: Duration = Duration::from_secs(10);
/// Connections at once that haven't yet; further ones wait in the listen queue.
const MAX_UNKNOWN: usize = 256;
/// Pause after a failed accept: descriptors have run out, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes connections for ever.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    grpc_tx: mpsc::Sender<TlsStream<TcpStream>>,
    streams: Arc<Streams>,
) {
    let slots = Arc::new(Semaphore::new(MAX_UNKNOWN));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let (tcp, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, grpc_tx, streams) = (tls.clone(), grpc_tx.clone(), streams.clone());
        tokio::spawn(async move {
            let received = receive(tcp, peer, tls, &streams).await;
            drop(slot);
            match received {
                // Fails only while the server shuts down.
                Ok(Some(stream)) => drop(grpc_tx.send(stream).await),
                Ok(None) => {}
                Err(error) => debug!(%peer, %error, "connection refused"),
            }
        });
    }
}

/// The TLS stream, where it is one.
async fn receive(
    mut tcp: TcpStream,
    peer: SocketAddr,
    tls: Arc<ServerConfig>,
    streams: &Streams,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("nothing within {FIRST_DEADLINE:?}"));
    let mut first = [0];
    let read = timeout(FIRST_DEADLINE, tcp.peek(&mut first)).await.map_err(late)??;
    if read == 1 && first == [FIRST_BYTE] {
        let mut ticket = [0; TICKET_LEN];
        timeout(FIRST_DEADLINE, tcp.read_exact(&mut ticket)).await.map_err(late)??;
        streams.come_inside(ticket, tcp, peer).await;
        return Ok(None);
    }
    grpc::accept(tcp, tls).await.map(Some)
}
