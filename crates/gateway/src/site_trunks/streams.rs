//! Streams between the nodes of two sites, over the trunk of their gateways.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_carry::trunk::Stream;
use isthmus_carry::{Traffic, Uncounted};
use isthmus_identity::Identity;
use isthmus_reach::carrier::keep_alive;
use isthmus_rpc::connection;
use isthmus_rpc::rendezvous::{Request, RequestWay};
use isthmus_service::clock::unix_seconds;
use isthmus_service::lock;
use isthmus_wire::proto::{self, dial_request, rendezvous_reply};
use isthmus_wire::site_stream::SiteStream;
use isthmus_wire::ticket::{Side, TICKET_LEN};
use isthmus_wire::{Label, VirtualAddress};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tracing::{debug, warn};

use super::choose::stream_to;
use super::waiting::Shown;
use super::{Opening, SiteTrunks};
use crate::gateway::Gateway;

/// How long a node may take to connect with its ticket: as long as a side waits at a relay.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the first message of a stream may take, and the lookup of its initiator.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// Opens a stream for a node of this site, whose agent connects with the ticket in the reply.
/// Doesn't ask the broker, unless there is no trunk yet or the plan isn't known.
///
/// # Errors
/// `UNAVAILABLE` if there is no way over a trunk. `RESOURCE_EXHAUSTED` if too many streams are
/// being opened.
pub(crate) async fn open(
    gateway: &Arc<Gateway>,
    (caller, from): (&Identity, IpAddr),
    (request, destination): (&Request, Ipv4Addr),
) -> Result<proto::RendezvousReply, Status> {
    let off = || Status::unavailable(format!("the gateway of site {} keeps no trunks", gateway.site));
    let trunks = gateway.site_trunks.as_ref().ok_or_else(off)?;
    let address = |ip| VirtualAddress::new(ip).ok_or_else(|| Status::invalid_argument("no virtual address"));
    let whom = SiteStream { destination: address(destination)?, initiator: address(request.initiator)? };
    let far = gateway.over_trunk(caller.name(), destination).await?;
    let place = trunks.opening.take(&far.site).ok_or_else(|| {
        let site = &far.site;
        Status::resource_exhausted(format!("too many streams to site {site} are being opened at once"))
    })?;
    let stream = stream_to(gateway, trunks, &far).await?;
    stream.send(&whom.encode());
    let traffic: Arc<dyn Traffic> = match &request.way {
        RequestWay::OverGateways { job: Some(job), .. } => {
            trunks.carried.count(caller.name(), *job, destination)
        }
        _ => Arc::new(Uncounted),
    };
    let ticket = expect(trunks, Side::Initiator, from, Opening { stream, _share: place, traffic });
    let at = proto::AtOwnGateway { ticket: ticket.to_vec(), ..proto::AtOwnGateway::default() };
    let way = Some(rendezvous_reply::Way::OwnGateway(at));
    Ok(proto::RendezvousReply { way, gateways: vec![far.to_string()], ..Default::default() })
}

/// Takes a stream that another gateway has opened: orders the node's agent to connect.
///
/// # Errors
/// Why the stream is refused. It is dropped then, which the initiator learns.
pub(super) async fn take(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    peer: &Identity,
    mut stream: Stream,
) -> Result<(), String> {
    let site = peer.site().ok_or("the gateway has no site")?;
    let place = trunks.taking.take(site);
    let place = place.ok_or_else(|| format!("site {site} opens too many streams at once"))?;
    let bytes = timeout(INTRODUCTION, stream.receive()).await.map_err(|_| "no first message in time")?;
    let bytes = bytes.map_err(|error| error.to_string())?;
    let SiteStream { destination, initiator } =
        SiteStream::decode(&bytes).map_err(|error| error.to_string())?;
    let attached = gateway.roster().attached(destination);
    let (node, from) = attached.ok_or_else(|| format!("{destination} is no node of this gateway"))?;
    let far = timeout(INTRODUCTION, gateway.taken_over_trunk(&node, initiator.ip())).await;
    let far = far.map_err(|_| "the initiator isn't found in time")?;
    let far = far.map_err(|status| status.message().to_owned())?;
    // A captured gateway speaks for the nodes of its own site alone.
    if far.site != *site {
        return Err(format!("{initiator} is no node of the site of {peer}"));
    }
    // The gateway of the initiator counts for both.
    let opening = Opening { stream, _share: place, traffic: Arc::new(Uncounted) };
    let ticket = expect(trunks, Side::Acceptor, from, opening);
    let at = proto::AtOwnGateway { ticket: ticket.to_vec(), ..proto::AtOwnGateway::default() };
    order(gateway, &node, initiator, at)
}

fn order(
    gateway: &Gateway,
    node: &Label,
    initiator: VirtualAddress,
    at: proto::AtOwnGateway,
) -> Result<(), String> {
    let request = proto::DialRequest {
        node: node.to_string(),
        initiator: initiator.ip().into(),
        way: Some(dial_request::Way::SiteTrunk(at)),
        ..proto::DialRequest::default()
    };
    let effect = gateway.roster().dial(request).map_err(|refused| refused.to_string())?;
    gateway.carry_out(vec![effect]);
    Ok(())
}

/// Keeps a stream until its node connects, for a while; returns the node's ticket.
fn expect(trunks: &Arc<SiteTrunks>, side: Side, node: IpAddr, opening: Opening) -> [u8; TICKET_LEN] {
    let connection = connection::new_id();
    let now = unix_seconds(SystemTime::now());
    let ticket = lock(&trunks.waiting).add((connection, side), node, opening, (&trunks.key, now));
    let trunks = trunks.clone();
    tokio::spawn(connection::scope_of(Some(connection.into()), async move {
        sleep(PATIENCE).await;
        if lock(&trunks.waiting).remove(connection).is_some() {
            debug!("a node did not connect for its stream");
        }
    }));
    ticket
}

/// Joins the socket of a node that has connected with a ticket to the stream that waits for the
/// node. Returns the socket if no stream waits.
pub(crate) fn arrived(
    trunks: &SiteTrunks,
    ticket: &[u8; TICKET_LEN],
    tcp: TcpStream,
    peer: SocketAddr,
) -> Option<TcpStream> {
    let now = unix_seconds(SystemTime::now());
    let shown = lock(&trunks.waiting).show(ticket, peer.ip(), (&trunks.key, now));
    match shown {
        Shown::Unknown => return Some(tcp),
        Shown::Refused(reason) => warn!(%peer, reason, "refused a ticket"),
        Shown::Admitted(Opening { stream, _share, traffic }) => {
            keep_alive(&tcp);
            let attached = tcp.into_std().and_then(|tcp| stream.attach(tcp, traffic).map(drop));
            if let Err(error) = attached {
                warn!(%peer, %error, "a node's connection can't be carried");
            }
        }
    }
    None
}
