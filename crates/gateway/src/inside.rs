//! The port inside the site. Agents connect to it for gRPC over TLS, or with a
//! ticket for a stream. The first byte shows which.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::{grpc, listen};
use isthmus_wire::ticket::{FIRST_BYTE, TICKET_LEN};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use crate::streams::Streams;

/// How long the first byte and the ticket may take, each.
const FIRST_DEADLINE: Duration = Duration::from_secs(10);
/// Connections at once without a first byte so far; further ones wait in the listen
/// queue.
const MAX_UNKNOWN: usize = 256;

/// Accepts connections; never returns.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    grpc_tx: mpsc::Sender<TlsStream<TcpStream>>,
    streams: Arc<Streams>,
) {
    listen::serve_each(listener, MAX_UNKNOWN, |tcp, peer, slot| {
        let (tls, grpc_tx, streams) = (tls.clone(), grpc_tx.clone(), streams.clone());
        async move {
            let received = receive(tcp, peer, tls, &streams).await;
            drop(slot);
            match received {
                // Fails only while the server shuts down.
                Ok(Some(stream)) => drop(grpc_tx.send(stream).await),
                Ok(None) => {}
                Err(error) => debug!(%peer, %error, "connection refused"),
            }
        }
    })
    .await;
}

/// The TLS stream; `None` for a connection with a ticket.
async fn receive(
    mut tcp: TcpStream,
    peer: SocketAddr,
    tls: Arc<ServerConfig>,
    streams: &Streams,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    if listen::first_byte(&tcp, FIRST_DEADLINE).await? == FIRST_BYTE {
        let late =
            |_| io::Error::new(io::ErrorKind::TimedOut, format!("no ticket within {FIRST_DEADLINE:?}"));
        let mut ticket = [0; TICKET_LEN];
        timeout(FIRST_DEADLINE, tcp.read_exact(&mut ticket)).await.map_err(late)??;
        streams.arrived_inside(ticket, tcp, peer).await;
        return Ok(None);
    }
    grpc::accept(tcp, tls).await.map(Some)
}
