//! Opens a stream to a node, over the trunk that stands or a new one.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::By;
use isthmus_link::{CarrierWay, Last, dial, established, make};
use isthmus_reach::proof::question;
use isthmus_reach::{Found, ReachError};
use isthmus_wire::GridName;
use isthmus_wire::preamble::{ANSWER_LEN, Answer};
use tokio::time::timeout;

use super::registry::Standing;
use crate::carrying::agent_connection::{AgentConnection, Messages as _, TrunkStream};
use crate::jobs::node::Node;

/// How long the lookup of a plan may take if no trunk to the node works.
const LOOKUP: Duration = Duration::from_secs(15);
/// How long the lookup of a plan may take if a trunk to the node works. While this site's gateway
/// is away, the trunk goes on without the plan.
const LOOKUP_BESIDE_A_TRUNK: Duration = Duration::from_secs(1);
/// How long another agent may take to answer over a trunk that stands.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a trunk that stands may take to open a stream.
const OPEN: Duration = Duration::from_secs(10);

/// A stream to a node.
#[derive(Debug)]
pub(crate) struct Opened {
    pub stream: TrunkStream,
    pub standing: Arc<Standing>,
    pub way: CarrierWay,
    /// The ways that were tried before and have failed, each with its reason.
    pub failures: Vec<String>,
}

/// Looks up how a node is reached.
///
/// # Errors
/// [`ReachError::Unknown`] if the plan isn't found in time.
pub(crate) async fn find(node: &Node, peer: &GridName, destination: Ipv4Addr) -> Result<Found, ReachError> {
    let works = node.trunks().own(peer).is_some_and(|own| !own.kept.is_cut());
    let limit = if works { LOOKUP_BESIDE_A_TRUNK } else { LOOKUP };
    node.dialer().find((destination, Some(peer)), limit).await
}

/// What to do if the trunk to a node is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The stream waits until the trunk is healed, as a kernel's connect would.
    Waits,
    /// Another trunk is dialed, so that the caller learns why dialing fails.
    Dials,
}

/// Opens a stream to a node. If there is no trunk, this dials one.
///
/// # Errors
/// [`ReachError`].
pub(crate) async fn stream(
    node: &Arc<Node>,
    peer: &GridName,
    destination: Ipv4Addr,
    cut: Cut,
) -> Result<Opened, ReachError> {
    let own = || node.trunks().own(peer).filter(|own| cut == Cut::Waits || !own.kept.is_cut());
    let standing = || async { over(own()).await.map(Ok) };
    // Boxed: only the first connection to a node takes memory for it.
    let dialed = async { Box::pin(dialed(node, peer, destination)).await };
    match node.trunks().peers().get_or_dial(peer, standing, dialed).await {
        Ok(opened) => Ok(opened),
        Err(error) => over(node.trunks().other(peer)).await.ok_or(error),
    }
}

/// Dials a trunk to a node, and opens a stream over it.
///
/// # Errors
/// [`ReachError`].
async fn dialed(node: &Arc<Node>, peer: &GridName, destination: Ipv4Addr) -> Result<Opened, ReachError> {
    let (dialed, failures) = dial(node, peer, destination.into(), By::default()).await?;
    let standing = make(node, peer, destination.into(), dialed).await?;
    let no_way = |reason: String| ReachError::no_way(format!("a trunk to {peer}: {reason}"));
    let stream = established(&standing.kept, standing.kept.trunk.open()).await.map_err(no_way)?;
    let stream = stream.map_err(|error| no_way(error.to_string()))?;
    opened(&standing, stream, failures).ok_or_else(|| no_way("its way isn't known".to_owned()))
}

fn opened(
    standing: &Arc<Standing>,
    stream: isthmus_carry::trunk::Stream,
    failures: Vec<String>,
) -> Option<Opened> {
    let Last { way, ends } = standing.last();
    let stream = TrunkStream { stream, peer: standing.kept.peer.clone(), ends };
    Some(Opened { stream, standing: standing.clone(), way: way?, failures })
}

/// Opens a stream to a node over a trunk that stands and isn't cut, whoever made it.
pub(crate) async fn over_any(node: &Node, peer: &GridName) -> Option<Opened> {
    let own = node.trunks().own(peer).filter(|own| !own.kept.is_cut());
    over(own.or_else(|| node.trunks().other(peer))).await
}

/// Whether the agent at the other end of a trunk that stands answers over it.
pub(crate) async fn answers(node: &Node, peer: &GridName, destination: Ipv4Addr) -> bool {
    let Some(Opened { stream, .. }) = over_any(node, peer).await else { return false };
    let mut connection = AgentConnection::Stream(stream);
    let asking = async {
        connection.send(&question(destination)).await?;
        connection.receive::<ANSWER_LEN>().await
    };
    let answer = timeout(ANSWER, asking).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| Answer::decode(&answer).is_ok()))
}

/// Opens a stream of this trunk, if there is one. Returns `None` if the trunk ends meanwhile.
async fn over(standing: Option<Arc<Standing>>) -> Option<Opened> {
    let standing = standing?;
    let stream = timeout(OPEN, standing.kept.trunk.open()).await.ok()?.ok()?;
    opened(&standing, stream, Vec::new())
}
