//! Carriers of the trunks between gateways. The broker brings two gateways together; TLS
//! verifies which gateway is there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::accept::{hello, refuse};
use isthmus_carry::trunk::{By, First, Kept, Notices, Trunk, keep};
use isthmus_net::dial::{SocketOptions, direct, introduced};
use isthmus_net::grpc::{self, Repeat};
use isthmus_net::mac::random;
use isthmus_net::rendezvous::Stop;
use isthmus_net::rendezvous::site_trunk::{Order, OrderWay, Reply, Request};
use isthmus_net::secured::Secured;
use isthmus_net::{Deadline, Identity, Late, Role as PartyRole};
use isthmus_plan::Dial;
use isthmus_reach::carrier::keep_alive;
use isthmus_reach::{Expected, secure, service_address};
use isthmus_trunk::{Reason, Role, TrunkId};
use isthmus_wire::GridName;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, SiteTrunkRequest};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{info, warn};

use super::keep::Embedded;
use super::{PROTOCOL, SiteTrunks, Standing, other_gateway};
use crate::gateway::Gateway;

/// How long a dial may take, with its TLS and its request to the broker. A gateway that was ordered
/// to dial has as long.
const DIAL: Duration = Duration::from_secs(4);

/// What a dial to another gateway has brought.
pub(super) enum Got {
    /// A carrier; with the address of the other gateway's port outside if it was dialed there.
    Carrier(Box<Secured>, Option<String>),
    /// A trunk that the other gateway has made.
    Trunk(Arc<Standing>),
}

/// Gets a carrier by this dial, or a whole trunk other than those in `but`. `by` has the address
/// that this end connects from, and the longest segment.
///
/// # Errors
/// What failed, for messages.
pub(super) async fn dial(
    gateway: &Gateway,
    trunks: &SiteTrunks,
    name: &GridName,
    (dial, but, by): (Dial, &[TrunkId], By),
) -> Result<Got, String> {
    let deadline = Deadline::within(DIAL);
    let mut changes = trunks.changes.subscribe();
    let request = Request { gateway: name.clone(), dial, avoid: Vec::new(), segment: by.segment };
    let call = |channel, request| async move { RegistryClient::new(channel).site_trunk(request).await };
    let budget = (Repeat::Never, deadline);
    let arranged = gateway.upstream.call("arrange a carrier", budget, SiteTrunkRequest::from(request), call);
    let reply = arranged.await.map_err(|status| grpc::reason(&status))?;
    match Reply::try_from(reply).map_err(|error| error.to_string())? {
        Reply::Connect(address) => {
            let tls = connect(gateway, trunks, name, (&address, by)).await?;
            Ok(Got::Carrier(Box::new(tls), Some(address)))
        }
        Reply::Relay(stop) => {
            let tcp = to_relay(gateway, &stop, by, deadline).await?;
            Ok(Got::Carrier(Box::new(verified(trunks, name, tcp, deadline).await?), None))
        }
        Reply::Await => {
            trunks.arranged.note(name);
            let working = async {
                loop {
                    if let Some(standing) = trunks.standing(name, but).filter(|it| !it.kept.is_cut()) {
                        return Ok(Got::Trunk(standing));
                    }
                    changes.changed().await.map_err(|error| error.to_string())?;
                }
            };
            let late = |_| format!("it made no trunk within {DIAL:?}");
            deadline.bound(working).await.map_err(late)?
        }
    }
}

/// Connects to the port outside of a gateway.
pub(super) async fn connect(
    gateway: &Gateway,
    trunks: &SiteTrunks,
    name: &GridName,
    (address, by): (&str, By),
) -> Result<Secured, String> {
    let deadline = Deadline::within(DIAL);
    let late = |Late(limit)| format!("no address of {address} within {limit:?}");
    let at = deadline.bound(service_address(address)).await.map_err(late)??;
    if gateway.roster().is_own(at.ip()) || crate::streams::is_this_machine(at.ip()) {
        return Err(format!("{address} is in this site"));
    }
    let tcp = direct(&at.to_string(), options(by), deadline).await;
    verified(trunks, name, tcp.map_err(|error| error.to_string())?, deadline).await
}

fn options(by: By) -> SocketOptions {
    SocketOptions { source: by.rail.source, segment: by.segment, ..SocketOptions::default() }
}

async fn to_relay(gateway: &Gateway, stop: &Stop, by: By, deadline: Deadline) -> Result<TcpStream, String> {
    let failed = |reason: String| format!("relay {}: {reason}", stop.relay.as_deref().unwrap_or_default());
    let places = gateway.directory.relay_places();
    let at = deadline.bound(places.resolve(&stop.address)).await.map_err(|late| failed(late.to_string()))?;
    let at = at.map_err(failed)?.to_string();
    introduced(&at, &stop.ticket, options(by), deadline).await.map_err(|error| failed(error.to_string()))
}

/// Verifies by TLS that the gateway with this name is at the other end.
async fn verified(
    trunks: &SiteTrunks,
    name: &GridName,
    tcp: TcpStream,
    deadline: Deadline,
) -> Result<Secured, String> {
    let (site, own_name) = (Some(name.site.clone()), Some(name.node.clone()));
    let identity =
        Identity::new(PartyRole::Gateway, site, own_name, None).map_err(|error| error.to_string())?;
    let expected = Expected { role: PartyRole::Gateway, server_name: identity.server_name(), owner: None };
    let tls = secure(tcp, &expected, &trunks.client, deadline).await.map_err(|error| error.to_string())?;
    // All gateways of a site have one TLS name.
    if tls.identity().is_none_or(|found| *found.name() != name.node) {
        return Err(format!("the other end is {:?}, not gateway {name}", tls.identity()));
    }
    match tls.get_ref().1.alpn_protocol() {
        Some(PROTOCOL) => Ok(tls),
        _ => Err(format!("gateway {name} has no trunks")),
    }
}

/// Carries out the broker's order to get a carrier for another gateway.
pub(crate) fn ordered(gateway: &Arc<Gateway>, order: proto::SiteTrunkOrder) {
    let Some(trunks) = gateway.site_trunks.clone() else { return };
    let order = match Order::try_from(order) {
        Ok(order) => order,
        Err(error) => return warn!(%error, "the broker's order for a trunk is ignored"),
    };
    match order.way {
        OrderWay::Expect => return trunks.arranged.note(&order.gateway),
        OrderWay::Relay(_) => trunks.arranged.note(&order.gateway),
        OrderWay::Connect(_) => {}
    }
    let Some(place) = trunks.orders.take(&order.gateway.site) else {
        return info!(peer = %order.gateway, "too many orders for trunks with that site at once, one is dropped");
    };
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let Order { gateway: name, way, segment } = order;
        let by = By { segment, ..By::default() };
        let done = async {
            match way {
                OrderWay::Connect(address) => {
                    let tls = connect(&gateway, &trunks, &name, (&address, by)).await?;
                    make(&gateway, &trunks, &name, (tls, by.segment), Some(address)).await.map(drop)
                }
                OrderWay::Relay(stop) => {
                    let tcp = to_relay(&gateway, &stop, by, Deadline::within(DIAL)).await?;
                    accept(gateway.clone(), tcp).await.map_err(|error| error.to_string())
                }
                OrderWay::Expect => Ok(()),
            }
        };
        if let Err(reason) = done.await {
            info!(peer = %name, reason, "no trunk with another site's gateway");
        }
        drop(place);
    });
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
        if let Err(error) = join(&gateway, &trunks, &name, tls).await {
            info!(peer = %name, %error, "a carrier is refused");
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
    if !trunks.arranged.is_with(name).await {
        let reason = format!(
            "the broker has arranged no trunk of gateway {name} with the gateway of site {}: both sites must have \
             `site_trunk` in section [gateway]",
            gateway.site
        );
        return refuse(tls, Reason::Done, reason).await;
    }
    let made = trunks.plane.trunk(trunks.config(Role::Acceptor, hello.trunk))?;
    let first = (tls, first);
    let started = start(gateway, trunks, name, (hello.trunk, None), made, first).await;
    started.map(drop).map_err(io::Error::other)
}

/// Makes a trunk from its first carrier, and waits until the trunk works.
pub(super) async fn make(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    (tls, segment): (Secured, Option<u16>),
    address: Option<String>,
) -> Result<Arc<Standing>, String> {
    let id = TrunkId(random());
    let made = trunks.plane.trunk(trunks.config(Role::Initiator, id)).map_err(|error| error.to_string())?;
    let dialed = ((super::keep::dialed(address.as_deref()), address), segment);
    let standing = start(gateway, trunks, name, (id, Some(dialed)), made, (tls, Vec::new())).await?;
    let mut cut = standing.kept.cut();
    let works = timeout(DIAL, cut.wait_for(Option::is_none)).await.is_ok_and(|works| works.is_ok());
    if works {
        return Ok(standing);
    }
    standing.kept.trunk.close(Reason::Silent);
    Err(format!("no HELLO within {DIAL:?}"))
}

/// Registers a trunk, joins its first carrier, and keeps the trunk from here on. `dialed` is how
/// this end has dialed the carrier, and with which longest segment; `None` if the other end has.
async fn start(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    (id, dialed): (TrunkId, Option<(super::keep::Way, Option<u16>)>),
    (trunk, notices): (Trunk, Notices),
    (tls, first): (Secured, Vec<u8>),
) -> Result<Arc<Standing>, String> {
    let peer = tls.identity().cloned().ok_or("its carrier has no certificate")?;
    let kept = Arc::new(Kept::new((id, dialed.is_some()), trunk, peer));
    let way = dialed.clone().map(|(way, _)| way);
    let standing = Arc::new(Standing {
        name: name.clone(),
        kept: kept.clone(),
        dial: way.as_ref().map(|(dial, _)| *dial).into(),
        address: way.and_then(|(_, address)| address).into(),
        former: super::gone::Former::default(),
    });
    let (carrier, certificate) = kept.join(tls, first).await?;
    trunks.peers.add(name, standing.clone())?;
    let embedded = Embedded { gateway: gateway.clone(), trunks: trunks.clone(), standing: standing.clone() };
    let first = First { id: carrier, dialed };
    tokio::spawn(keep(Arc::new(embedded), kept, notices, (first, certificate)));
    Ok(standing)
}
