//! Opens a stream to a node, over the trunk that stands or a new one.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::{By, First, Kept, Notices, config, keep};
use isthmus_identity::Identity;
use isthmus_identity::secured::Secured;
use isthmus_net::dial::SocketOptions;
use isthmus_reach::proof::question;
use isthmus_reach::{Found, Purpose, ReachError, Reached};
use isthmus_service::mac::random;
use isthmus_trunk::{Config, Role, TrunkId};
use isthmus_wire::GridName;
use isthmus_wire::preamble::{ANSWER_LEN, Answer};
use tokio::time::timeout;

use super::keep::Embedded;
use super::registry::{CarrierWay, Last, Standing};
use crate::carrying::agent_connection::{AgentConnection, Messages as _, TrunkStream};
use crate::jobs::node::Node;

/// How long the lookup of a plan may take if no trunk to the node works.
const LOOKUP: Duration = Duration::from_secs(15);
/// How long the lookup of a plan may take if a trunk to the node works. While this site's gateway
/// is away, the trunk goes on without the plan.
const LOOKUP_BESIDE_A_TRUNK: Duration = Duration::from_secs(1);
/// How long another agent may take to answer over a trunk that stands.
const ANSWER: Duration = Duration::from_secs(2);
/// How long the first HELLO of the other end may take.
const ESTABLISHED: Duration = Duration::from_secs(10);

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
    let mut reached = dial(node, peer, destination, By::default()).await?;
    let (last, segment) = (last(&reached), reached.segment);
    let failures = std::mem::take(&mut reached.failures);
    let no_way = |reason: String| ReachError::NoWay(vec![format!("a trunk to {peer}: {reason}")]);
    let tls = reached.carrier.encrypted().map_err(|error| no_way(error.to_string()))?;
    // A task of its own: the caller may give up, and the trunk is kept all the same.
    let making = tokio::spawn(make(node.clone(), peer.clone(), destination, tls, (last, segment)));
    let made = making.await.unwrap_or_else(|error| Err(error.to_string()));
    let standing = made.map_err(no_way)?;
    let stream = timeout(ESTABLISHED, standing.kept.trunk.open()).await;
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(no_way(error.to_string())),
        Err(_) => {
            standing.kept.trunk.close(isthmus_trunk::Reason::Silent);
            return Err(no_way(format!("no HELLO within {ESTABLISHED:?}")));
        }
    };
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
    let stream = timeout(ESTABLISHED, standing.kept.trunk.open()).await.ok()?.ok()?;
    opened(&standing, stream, Vec::new())
}

/// Dials a carrier along the whole plan.
///
/// # Errors
/// [`ReachError`].
pub(super) async fn dial(
    node: &Node,
    peer: &GridName,
    destination: Ipv4Addr,
    by: By,
) -> Result<Reached, ReachError> {
    node.dialer().reach(destination, purpose(node, peer, by)).await
}

/// What the dialing of a carrier is told, for a carrier on this rail.
pub(super) fn purpose<'a>(node: &'a Node, peer: &'a GridName, by: By) -> Purpose<'a> {
    let options = SocketOptions { source: by.rail.source, segment: by.segment, ..SocketOptions::default() };
    Purpose { options, node: Some(peer), ..Purpose::tls(&node.tls().trunk, Some(node.owner())) }
}

/// How a connection was dialed.
pub(crate) fn way(reached: &Reached) -> CarrierWay {
    CarrierWay { route: reached.route, dial: reached.dial, relay: reached.relay.clone() }
}

pub(super) fn last(reached: &Reached) -> Last {
    Last { way: Some(way(reached)), ends: reached.carrier.ends().into() }
}

/// Makes a trunk of a first carrier that this end has dialed.
async fn make(
    node: Arc<Node>,
    name: GridName,
    destination: Ipv4Addr,
    tls: Secured,
    (last, segment): (Last, Option<u16>),
) -> Result<Arc<Standing>, String> {
    let id = TrunkId(random());
    let peer = tls.identity().cloned().ok_or("its carrier has no certificate")?;
    let (trunk, notices) =
        node.plane().trunk(own_config(&node, Role::Initiator, id)).map_err(|error| error.to_string())?;
    let made = Made { id, trunk, notices, peer, last, redial: Some((destination, segment)) };
    start(&node, &name, tls, Vec::new(), made).await
}

/// A trunk that has no carrier yet.
pub(super) struct Made {
    pub id: TrunkId,
    pub trunk: isthmus_carry::trunk::Trunk,
    pub notices: Notices,
    pub peer: Identity,
    pub last: Last,
    /// Where this end dials further carriers, and the longest segment of the first carrier; `None`
    /// if the other end has dialed the first.
    pub redial: Option<(Ipv4Addr, Option<u16>)>,
}

/// The configuration of a trunk between agents. The trunk tells what each carrier carries.
pub(super) fn own_config(node: &Node, role: Role, id: TrunkId) -> Config {
    let incarnation = Some(node.facilities().incarnation);
    Config { notes_moved: true, incarnation, ..config(role, id, node.rails()) }
}

/// Registers a trunk, joins its first carrier, and keeps it from here on. `first` is
/// plaintext that was read from the carrier.
pub(super) async fn start(
    node: &Arc<Node>,
    name: &GridName,
    tls: Secured,
    first: Vec<u8>,
    made: Made,
) -> Result<Arc<Standing>, String> {
    let Made { id, trunk, notices, peer, last, redial } = made;
    let kept = Arc::new(Kept::new((id, redial.is_some()), trunk, peer));
    let destination = redial.map(|(destination, _)| destination);
    let standing = Arc::new(Standing::new(kept.clone(), last.clone(), destination));
    node.trunks().peers().add(name, standing.clone())?;
    let (carrier, certificate) = match kept.join(tls, first).await {
        Ok(joined) => joined,
        Err(error) => {
            node.trunks().peers().remove(name, id);
            return Err(error);
        }
    };
    if redial.is_some() {
        standing.joined(carrier, last.clone());
    }
    let first = First { id: carrier, dialed: redial.map(|(_, segment)| (last, segment)) };
    let embedded = Embedded { node: node.clone(), name: name.clone(), standing: standing.clone() };
    tokio::spawn(keep(Arc::new(embedded), kept, notices, (first, certificate)));
    Ok(standing)
}
