//! The acceptor's side: a connection to the agent's port, or over a relay, is
//! recognised by its first byte, checked, and passed to the program.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_identity::secured::{Secured, ServerTls};
use isthmus_identity::{Identity, audit};
use isthmus_reach::carrier::{GRPC_PROTOCOL, MEASURE_PROTOCOL, keep_alive, reset_if_dropped};
use isthmus_rpc::rendezvous::Order;
use isthmus_rpc::{grpc, packets};
use isthmus_service::unidentified::UnidentifiedEntry;
use isthmus_service::{counters, listen};
use isthmus_wire::hello;
use isthmus_wire::preamble::FIRST_BYTE;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tracing::debug;

use super::programs::{ForHeartbeats, PREAMBLE_DEADLINE, Programs};
use crate::carrying::agent_connection::{AgentConnection, Messages as _};
use crate::jobs::end;
use crate::jobs::node::Node;
use crate::observing::heartbeat;
use crate::trunks::TRUNK_PROTOCOL;

/// Accepts connections for the node's programs and for its agent.
#[derive(Clone)]
pub(crate) struct Reception {
    pub node: Arc<Node>,
    /// TLS for all protocols between agents.
    pub tls: ServerTls,
    /// The broker's order by which this agent has dialed the connection; `None` for a connection
    /// that another party has dialed.
    pub ordered: Option<Arc<Order>>,
}

impl Reception {
    /// Serves one connection; logs the reason if that fails.
    ///
    /// `limit` is how long the first byte may take: over a relay the other side may
    /// connect later. `entry` is held until the other side has proved its identity.
    pub(crate) async fn receive(self, stream: TcpStream, limit: Duration, entry: Option<UnidentifiedEntry>) {
        let from = stream.peer_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
        if let Err(error) = self.try_receive(stream, limit, entry).await {
            debug!(from, %error, "incoming connection dropped");
        }
    }

    async fn try_receive(
        self,
        stream: TcpStream,
        limit: Duration,
        entry: Option<UnidentifiedEntry>,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        reset_if_dropped(&stream, true);
        let first = listen::first_byte(&stream, limit).await?;
        reset_if_dropped(&stream, false);
        // Boxed: a connection that sends nothing takes no memory for what follows.
        match first {
            FIRST_BYTE => Box::pin(self.unencrypted(stream, entry)).await,
            first if first == hello::RENDEZVOUS.first_byte() => Box::pin(self.rendezvous(stream)).await,
            _ => Box::pin(self.encrypted(stream, entry)).await,
        }
    }

    /// Serves a connection that isn't encrypted: of a program, or for heartbeats.
    async fn unencrypted(self, stream: TcpStream, entry: Option<UnidentifiedEntry>) -> io::Result<()> {
        let taken = self.programs().program(AgentConnection::Socket(stream), entry).await?;
        let Some(ForHeartbeats { job, stream, connection }) = taken else { return Ok(()) };
        let serving = async {
            if heartbeat::serve(&self.node, &job, stream).await.is_err() {
                end::end_all(&self.node, &job).await;
            }
        };
        connection.scope(serving).await;
        Ok(())
    }

    /// Serves a TLS connection by the protocol (ALPN) that it has agreed on.
    async fn encrypted(self, stream: TcpStream, entry: Option<UnidentifiedEntry>) -> io::Result<()> {
        keep_alive(&stream);
        reset_if_dropped(&stream, true);
        let stream = grpc::accept(stream, self.tls.clone()).await?;
        reset_if_dropped(stream.get_ref().0, false);
        // The other end's certificate is checked. A member of another owner has few rights here,
        // and keeps its entry among the connections without any.
        let own = stream.identity().and_then(Identity::owner) == Some(self.node.owner());
        let entry = entry.filter(|_| !own);
        match stream.get_ref().1.alpn_protocol() {
            Some(GRPC_PROTOCOL) if !own => Err(self.refused(&stream)),
            Some(GRPC_PROTOCOL) => {
                self.node.calls_tx().send(stream.into()).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
            Some(MEASURE_PROTOCOL) => {
                let busy = || !self.node.jobs().is_empty();
                Box::pin(self.node.measuring().serve(stream, entry, own, busy)).await
            }
            Some(packets::PROTOCOL) => Box::pin(packets::serve(stream)).await,
            Some(TRUNK_PROTOCOL) => Box::pin(isthmus_link::accept(&self.node, stream)).await,
            other => Err(io::Error::other(format!("no protocol {:?}", other.map(String::from_utf8_lossy)))),
        }
    }

    /// The error for a peer whose calls aren't taken: only agents of the same owner call each
    /// other.
    fn refused(&self, stream: &Secured) -> io::Error {
        let (node, own) = (self.node.name(), self.node.owner());
        let reason = format!("the agent of {node} takes calls of agents of user {own} only");
        counters::refused("another owner");
        let entry = audit::Entry::refused("connection", &reason).from(stream.get_ref().0.peer_addr().ok());
        match stream.identity() {
            Some(identity) => entry.by(identity).record(),
            None => entry.record(),
        }
        io::Error::new(io::ErrorKind::PermissionDenied, reason)
    }

    /// Serves a connection to the own gateway, which carries it over the trunk with the
    /// site of the initiator that it names.
    pub(crate) async fn receive_over_gateways(self, stream: TcpStream, initiator: Ipv4Addr, limit: Duration) {
        let connection = AgentConnection::OverGateways(stream, initiator);
        let ends = connection.ends();
        let served = async {
            if let AgentConnection::OverGateways(stream, _) = &connection {
                stream.set_nodelay(true)?;
                // The initiator may connect later.
                listen::first_byte(stream, limit).await?;
            }
            Box::pin(self.programs().program(connection, None)).await.map(drop)
        };
        if let Err(error) = served.await {
            debug!(ends, %error, "incoming connection dropped");
        }
    }

    fn programs(&self) -> Programs {
        Programs { node: self.node.clone(), ordered: self.ordered.clone() }
    }

    /// Serves a connection of a party that was ordered to dial this node.
    async fn rendezvous(self, mut stream: TcpStream) -> io::Result<()> {
        let mut hello = [0; hello::RENDEZVOUS_LEN];
        tokio::time::timeout(PREAMBLE_DEADLINE, stream.read_exact(&mut hello))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let id = hello::RENDEZVOUS.decode(&hello).map_err(io::Error::other)?;
        if self.node.dialer().rendezvous.arrived(id, stream) {
            Ok(())
        } else {
            Err(io::Error::other("no connect of this node waits for this rendezvous"))
        }
    }
}
