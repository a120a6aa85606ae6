//! The port inside the site. Agents connect to it for gRPC over TLS, or with a
//! ticket for a stream. The first byte shows which.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_identity::secured::{Secured, ServerTls};
use isthmus_rpc::grpc::Served;
use isthmus_rpc::{grpc, packets};
use isthmus_service::listen;
use isthmus_service::unidentified::Unidentified;
use isthmus_wire::ticket::{FIRST_BYTE, TICKET_LEN};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use crate::gateway::Gateway;
use crate::site_trunks;

/// How long the first byte and the ticket may take, each.
const FIRST_DEADLINE: Duration = Duration::from_secs(10);
/// Most connections at once before the end of the TLS handshake, or of a ticket's check.
const UNIDENTIFIED: usize = 4096;

/// Accepts connections; never returns.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: ServerTls,
    grpc_tx: mpsc::Sender<Served>,
    gateway: Arc<Gateway>,
) {
    let unidentified = Unidentified::new("the port inside", UNIDENTIFIED);
    listen::serve_each(listener, &unidentified, |tcp, peer, place| {
        let (tls, grpc_tx, gateway) = (tls.clone(), grpc_tx.clone(), gateway.clone());
        async move {
            match receive(tcp, peer, tls, &gateway).await {
                Ok(Some(stream)) if packets::is_asked(&stream) => {
                    return packets::take_part(stream, peer, place).await;
                }
                // Fails only while the server shuts down.
                Ok(Some(stream)) => drop(grpc_tx.send(stream.into()).await),
                Ok(None) => {}
                Err(error) => debug!(%peer, %error, "connection refused"),
            }
            drop(place);
        }
    })
    .await;
}

/// The TLS stream of a connection; `None` for a connection with a ticket.
async fn receive(
    mut tcp: TcpStream,
    peer: SocketAddr,
    tls: ServerTls,
    gateway: &Gateway,
) -> io::Result<Option<Secured>> {
    if listen::first_byte(&tcp, FIRST_DEADLINE).await? == FIRST_BYTE {
        let late =
            |_| io::Error::new(io::ErrorKind::TimedOut, format!("no ticket within {FIRST_DEADLINE:?}"));
        let mut ticket = [0; TICKET_LEN];
        timeout(FIRST_DEADLINE, tcp.read_exact(&mut ticket)).await.map_err(late)??;
        let tcp = match &gateway.site_trunks {
            Some(trunks) => site_trunks::streams::arrived(trunks, &ticket, tcp, peer),
            None => Some(tcp),
        };
        if let Some(tcp) = tcp {
            gateway.streams.arrived_inside(ticket, tcp, peer).await;
        }
        return Ok(None);
    }
    grpc::accept(tcp, tls).await.map(Some)
}
