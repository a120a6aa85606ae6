//! gRPC with the agent of another site, over a stream of the trunk. It goes on after a
//! cut, and is not pinged meanwhile.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use isthmus_carry::Uncounted;
use isthmus_carry::trunk;
use isthmus_net::loopback::Buffers;
use isthmus_reach::ReachError;
use isthmus_rpc::grpc::{Carried, Served};
use isthmus_trunk::TrunkId;
use isthmus_wire::{GridName, calls};
use tokio::net::TcpStream;

use super::open::{self, Cut, Opened};
use super::registry::Standing;
use crate::carrying::agent_connection::TrunkStream;
use crate::jobs::node::Node;

/// Opens a connection for calls to the agent of another site.
///
/// # Errors
/// [`ReachError`].
pub(crate) async fn connect(
    node: &Arc<Node>,
    peer: &GridName,
    destination: Ipv4Addr,
) -> Result<(TcpStream, Arc<Standing>), ReachError> {
    let Opened { stream, standing, .. } = open::stream(node, peer, destination, Cut::Dials).await?;
    stream.stream.send(&calls::message());
    let failed = |error: io::Error| ReachError::no_way(format!("a stream to {peer}: {error}"));
    let socket = joined(node, stream.stream).await.map_err(failed)?;
    Ok((socket, standing))
}

/// Passes a stream to this node's gRPC server, which answers the calls of an agent of another site.
///
/// # Errors If no pair of sockets can be made, or the agent is ending.
pub(super) async fn serve(node: &Node, trunk: TrunkId, stream: TrunkStream) -> io::Result<()> {
    let TrunkStream { stream, peer: identity, ends } = stream;
    let address = ends.rsplit(' ').next().and_then(|address| address.parse().ok());
    let stream = joined(node, stream).await?;
    let served = Served::Carried(Carried { stream, identity, address, trunk: trunk.0 });
    node.calls_tx().send(served).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Makes a socket whose bytes the trunk's stream carries.
async fn joined(node: &Node, stream: trunk::Stream) -> io::Result<TcpStream> {
    let pair = node.pairs().pair(Buffers::default()).await?;
    stream.attach(pair.agent.into_std()?, Arc::new(Uncounted))?;
    pair.program.set_nonblocking(true)?;
    TcpStream::from_std(pair.program)
}
