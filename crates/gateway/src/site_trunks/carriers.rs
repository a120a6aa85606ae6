//! Carriers of the trunks between gateways. The dialer opens them; TLS verifies which gateway is
//! there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::accept::{hello, refuse};
use isthmus_carry::trunk::{By, Dialed, First, Kept, Notices, Trunk, keep};
use isthmus_identity::secured::Secured;
use isthmus_net::dial::SocketOptions;
use isthmus_plan::Dial;
use isthmus_reach::carrier::keep_alive;
use isthmus_reach::{Purpose, Reached};
use isthmus_rpc::enums::{dial_from_wire, dial_name};
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::listen;
use isthmus_service::mac::random;
use isthmus_trunk::{Reason, Role, TrunkId};
use isthmus_wire::{GridName, hello};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, info};

use super::dialing::{asked, dialer};
use super::keep::Embedded;
use super::{PROTOCOL, SiteTrunks, Standing, other_gateway};
use crate::gateway::Gateway;

/// How long the other end may take to say its first HELLO.
const ESTABLISHED: Duration = Duration::from_secs(10);
/// How long a party may take to say for which rendezvous it connects.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// How long it may take to find whether another gateway may make a trunk.
const LOOKUP: Duration = Duration::from_secs(3);

/// How a carrier was dialed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CarrierWay {
    pub(super) dial: Dial,
    /// The relay on the way; empty if there is none.
    pub(super) relay: String,
}

/// What the dialing of a carrier on a rail is told.
pub(super) fn purpose<'a>(trunks: &'a SiteTrunks, name: &'a GridName, by: By) -> Purpose<'a> {
    let options = SocketOptions { source: by.rail.source, segment: by.segment, ..SocketOptions::default() };
    Purpose { options, node: Some(name), ..Purpose::tls(&trunks.client, None) }
}

/// Dials a carrier along the plan.
///
/// # Errors
/// Each step with its failure.
pub(super) async fn dial(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    by: By,
) -> Result<Dialed<CarrierWay>, String> {
    let peer = Peer::Gateway(name.clone());
    let reached = dialer(gateway, trunks).reach(peer, purpose(trunks, name, by)).await;
    dialed(reached.map_err(|error| error.to_string())?)
}

/// Takes a connection to another gateway as a carrier.
///
/// # Errors
/// If that gateway keeps no trunks.
pub(super) fn dialed(reached: Reached) -> Result<Dialed<CarrierWay>, String> {
    let dial = dial_from_wire(reached.dial);
    let dial = dial.ok_or_else(|| format!("there is no dial {}", dial_name(reached.dial)))?;
    let (way, segment) = (CarrierWay { dial, relay: reached.relay }, reached.segment);
    let tls = reached.carrier.encrypted().map_err(|error| error.to_string())?;
    Ok(Dialed { tls: with_trunks(tls, &reached.node)?, way, segment })
}

/// Checks that the gateway at the other end keeps trunks, which the protocol name shows.
///
/// # Errors
/// If it keeps none.
pub(super) fn with_trunks(tls: Secured, gateway: &GridName) -> Result<Secured, String> {
    match tls.get_ref().1.alpn_protocol() {
        Some(PROTOCOL) => Ok(tls),
        _ => Err(format!("gateway {gateway} has no trunks")),
    }
}

/// Takes a connection to the port outside: a carrier, or a connection that this gateway waits for.
///
/// # Errors
/// If it is refused; a verified gateway is told why.
pub(crate) async fn arrived(gateway: Arc<Gateway>, mut tcp: TcpStream) -> io::Result<()> {
    if listen::first_byte(&tcp, INTRODUCTION).await? != hello::RENDEZVOUS.first_byte() {
        return accept(gateway, tcp).await;
    }
    let mut bytes = [0; hello::RENDEZVOUS_LEN];
    timeout(INTRODUCTION, tcp.read_exact(&mut bytes)).await??;
    let id = hello::RENDEZVOUS.decode(&bytes).map_err(io::Error::other)?;
    let trunks = gateway.site_trunks.as_ref();
    if trunks.is_some_and(|trunks| trunks.dialing.rendezvous.arrived(id, tcp)) {
        return Ok(());
    }
    Err(io::Error::other("nobody waits for this rendezvous"))
}

/// Takes a carrier that another gateway begins TLS on.
///
/// # Errors
/// If the carrier is refused; a verified gateway is told why.
pub(crate) async fn accept(gateway: Arc<Gateway>, tcp: TcpStream) -> io::Result<()> {
    let trunks = gateway.site_trunks.clone().ok_or(io::ErrorKind::ConnectionRefused)?;
    keep_alive(&tcp);
    let place = trunks.handshakes.enter(tcp.peer_addr()?.ip());
    let handshake = grpc::accept(tcp, trunks.server.clone());
    let tls = place.evicted().run_until_cancelled(handshake).await;
    let tls = tls.ok_or_else(|| io::Error::other("too many handshakes"))??;
    drop(place);
    let name = other_gateway(tls.identity(), &gateway.site).map_err(io::Error::other)?;
    if tls.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
        return Err(io::Error::other("no carrier of a trunk"));
    }
    let joining = trunks.joining.take(&name);
    let joining = joining.ok_or_else(|| {
        io::Error::other(format!("too many carriers of gateway {name} have sent no HELLO yet"))
    })?;
    tokio::spawn(async move {
        match join(&gateway, &trunks, &name, tls).await {
            // It has tried whether its dial works.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                debug!(peer = %name, %error, "a carrier ends before its HELLO");
            }
            Err(error) => info!(peer = %name, %error, "a carrier is refused"),
            Ok(()) => {}
        }
        drop(joining);
    });
    Ok(())
}

/// Joins a carrier of another gateway to its trunk. If there is no such trunk, makes the trunk.
async fn join(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    mut tls: Secured,
) -> io::Result<()> {
    let (hello, first) = hello(&mut tls).await?;
    if let Some(standing) = trunks.peers.find(name, hello.trunk) {
        return standing.kept.join(tls, first).await.map(drop).map_err(io::Error::other);
    }
    if hello.standing || hello.role != Role::Initiator {
        let reason = format!("the gateway of site {} has no such trunk any more", gateway.site);
        return refuse(tls, Reason::Trunk, reason).await;
    }
    if let Err(reason) = allowed(gateway, trunks, name).await {
        return refuse(tls, Reason::Done, reason).await;
    }
    let made = trunks.plane.trunk(trunks.config(Role::Acceptor, hello.trunk))?;
    let first = (tls, first);
    let started = start(gateway, trunks, name, (hello.trunk, None), made, first).await;
    started.map(drop).map_err(io::Error::other)
}

/// Whether another gateway may make a trunk with this one: whether both sites keep trunks, and the
/// grid's policy allows it. A gateway of any other site has a certificate, too.
///
/// # Errors
/// The reason why it may not, for the other gateway.
async fn allowed(gateway: &Arc<Gateway>, trunks: &Arc<SiteTrunks>, name: &GridName) -> Result<(), String> {
    let found = asked(gateway, trunks, name, LOOKUP).await;
    let own = &gateway.site;
    let plan = found
        .map_err(|status| {
            format!("the gateway of site {own} can't find gateway {name}: {}", grpc::reason(&status))
        })?
        .plan
        .clone()
        .unwrap_or_default();
    if plan.takes_site_trunk {
        return Ok(());
    }
    let reasons: Vec<_> = plan.left_out.into_iter().map(|left| left.reason).collect();
    Err(format!("the gateway of site {own} takes no trunk of gateway {name}: {}", reasons.join("; ")))
}

/// Makes a trunk from its first carrier, and waits until the trunk works.
pub(super) async fn make(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    Dialed { tls, way, segment }: Dialed<CarrierWay>,
) -> Result<Arc<Standing>, String> {
    let id = TrunkId(random());
    let made = trunks.plane.trunk(trunks.config(Role::Initiator, id)).map_err(|error| error.to_string())?;
    let dialed = Some((way, segment));
    let standing = start(gateway, trunks, name, (id, dialed), made, (tls, Vec::new())).await?;
    let mut cut = standing.kept.cut();
    let works = timeout(ESTABLISHED, cut.wait_for(Option::is_none)).await.is_ok_and(|works| works.is_ok());
    if works {
        return Ok(standing);
    }
    standing.kept.trunk.close(Reason::Silent);
    Err(format!("no HELLO within {ESTABLISHED:?}"))
}

/// Registers a trunk, joins its first carrier, and keeps the trunk from here on. `dialed` is how
/// this end has dialed the carrier, and with which longest segment; `None` if the other end has.
async fn start(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    (id, dialed): (TrunkId, Option<(CarrierWay, Option<u16>)>),
    (trunk, notices): (Trunk, Notices),
    (tls, first): (Secured, Vec<u8>),
) -> Result<Arc<Standing>, String> {
    let peer = tls.identity().cloned().ok_or("its carrier has no certificate")?;
    let kept = Arc::new(Kept::new((id, dialed.is_some()), trunk, peer));
    let standing = Arc::new(Standing {
        name: name.clone(),
        kept: kept.clone(),
        way: dialed.as_ref().map(|(way, _)| way.clone()).into(),
        former: super::gone::Former::default(),
    });
    let (carrier, certificate) = kept.join(tls, first).await?;
    trunks.peers.add(name, standing.clone())?;
    let embedded = Embedded { gateway: gateway.clone(), trunks: trunks.clone(), standing: standing.clone() };
    let first = First { id: carrier, dialed };
    tokio::spawn(keep(Arc::new(embedded), kept, notices, (first, certificate)));
    Ok(standing)
}
