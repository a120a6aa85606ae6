//! The trunks that this gateway keeps with gateways of other sites: connections of their
//! nodes are streams of them. Each node dials its own gateway with a ticket, and the
//! gateway joins its socket to a stream. Nothing is opened into a site.
//!
//! | module | what |
//! |---|---|
//! | this one | which trunks stand |
//! | `carried` | bytes of the connections of this site's nodes, by job |
//! | `carriers` | carriers that other gateways dial, or that the broker orders |
//! | `choose` | which trunk a new stream goes over |
//! | `dialing` | the gateway as a party that dials, and is seen from outside |
//! | `known`, `failed` | what was found out to dial; why there is no trunk (plain data) |
//! | `gone` | ends the trunks of a gateway that is gone or has started anew |
//! | `keep` | what a trunk does here: who may be at its other end, streams that the other opens |
//! | `seen` | what users see of them |
//! | `shares` | places that peers share, so that none uses up all |
//! | `streams` | streams between the nodes of two sites |
//! | `waiting` | streams that wait for their node (plain data) |
//!
//! Their carriers are dialed and accepted by `isthmus-link`, as those of agents are.

mod carried;
pub(crate) mod carriers;
mod choose;
pub(crate) mod dialing;
mod failed;
mod gone;
mod keep;
mod known;
mod seen;
mod shares;
pub(crate) mod streams;
mod waiting;

use std::sync::{Arc, Mutex};

use isthmus_carry::Traffic;
use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::{Bbr, Stream};
use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::secured::{ClientTls, ServerTls};
use isthmus_identity::{Credentials, Identity, Role};
use isthmus_link::Peers;
use isthmus_net::rails::{self, Rail};
use isthmus_service::mac::{Secret, random};
use isthmus_service::unidentified::Unidentified;
use isthmus_trunk::{Incarnation, TrunkId};
use isthmus_wire::{GridName, Label, proto};
use tokio::sync::watch;

use crate::config::GatewayConfig;
use shares::{Share, Shares};
use waiting::AwaitedNodes;

/// Protocol name (ALPN, RFC 7301) of a carrier between gateways.
const PROTOCOL: &[u8] = b"isthmus-site-trunk/1";
/// Most streams that are being opened at once in each direction: as many as sides wait at a relay.
const OPENING: usize = 16 * 1024;
/// Most TLS handshakes of carriers at once, of some 80 KiB each.
const HANDSHAKES: usize = 1024;
/// Most verified carriers of all gateways that wait for their HELLO at once.
const JOINING: usize = 1024;
/// Most verified carriers of a single gateway that wait for their HELLO at once. The end that has
/// made a trunk dials up to eight at once.
const JOINING_EACH: usize = 32;
/// Most orders of the broker that are carried out at once.
const ORDERS: usize = 256;

/// A trunk that stands between this gateway and another site's.
type Standing = isthmus_link::Standing<gone::Former>;

/// All trunks of this gateway with other sites' gateways.
pub(crate) struct SiteTrunks {
    plane: Arc<Plane>,
    dialing: known::Dialing,
    /// Names this start of the gateway. By it other gateways learn that this gateway has started
    /// anew, and has none of its former trunks.
    incarnation: Incarnation,
    /// How many streams a trunk takes; `None` is the default.
    streams_per_trunk: Option<u32>,
    rails: Vec<Rail>,
    bbr: Bbr,
    client: ClientTls,
    server: ServerTls,
    peers: Peers<gone::Former, failed::NoStream>,
    /// Sent whenever a trunk works, or has ended.
    changes: watch::Sender<()>,
    /// The key that signs the gateway's own tickets.
    key: Secret,
    waiting: Mutex<AwaitedNodes<Opening>>,
    pub(crate) carried: carried::Carried,
    seen: seen::Last,
    /// Streams that are being opened towards other sites, by site; `taking` counts those opened by
    /// other sites.
    opening: Arc<Shares<Label>>,
    taking: Arc<Shares<Label>>,
    handshakes: Arc<Unidentified>,
    /// Carriers that wait for their HELLO, by gateway.
    joining: Arc<Shares<GridName>>,
    /// Orders of the broker under way, by the site of the gateway that asked for a carrier.
    orders: Arc<Shares<Label>>,
}

/// A stream that is being opened.
struct Opening {
    stream: Stream,
    /// The stream's place among those that are being opened.
    _share: Share<Label>,
    traffic: Arc<dyn Traffic>,
}

impl SiteTrunks {
    pub(crate) fn new(
        credentials: &Credentials,
        plane: Arc<Plane>,
        config: &GatewayConfig,
    ) -> Result<Self, CredentialsError> {
        rails::warn_of_absent(&config.rails);
        Ok(Self {
            plane,
            dialing: known::Dialing::new(credentials)?,
            incarnation: Incarnation(random()),
            streams_per_trunk: config.streams_per_trunk,
            rails: config.rails.clone(),
            bbr: config.bbr,
            client: credentials.client_config(&[PROTOCOL])?,
            server: credentials.server_config(&[PROTOCOL])?,
            peers: Peers::default(),
            changes: watch::Sender::new(()),
            key: Secret::random(),
            waiting: Mutex::default(),
            carried: carried::Carried::default(),
            seen: seen::Last::default(),
            opening: Shares::new(OPENING, OPENING),
            taking: Shares::new(OPENING, OPENING),
            handshakes: Unidentified::new("carriers of gateways", HANDSHAKES),
            joining: Shares::new(JOINING, JOINING_EACH),
            orders: Shares::new(ORDERS, ORDERS),
        })
    }

    /// How this gateway is seen from outside, as the broker was told; `None` if it isn't known.
    pub(crate) fn seen_outside(&self) -> Option<proto::Seen> {
        self.dialing.seen()
    }

    /// Takes in that plans to other sites' gateways may have changed.
    pub(crate) fn plans_changed(&self) {
        self.dialing.plans_changed();
    }

    /// A trunk to a gateway, other than the trunks in `but`: a trunk that works, or else a trunk
    /// that is cut. Which end has made it doesn't matter.
    fn standing(&self, name: &GridName, but: &[TrunkId]) -> Option<Arc<Standing>> {
        let all = self.peers.with(name);
        let mut others = all.iter().rev().filter(|standing| !but.contains(&standing.kept.id));
        let last = others.clone().next();
        others.find(|standing| !standing.kept.is_cut()).or(last).cloned()
    }
}

/// The grid name of a peer, which must be another site's gateway.
fn other_gateway(identity: Option<&Identity>, own_site: &Label) -> Result<GridName, String> {
    let found = identity.filter(|identity| identity.role() == Role::Gateway);
    let site = found.and_then(Identity::site).filter(|site| *site != own_site);
    match (found, site) {
        (Some(identity), Some(site)) => Ok(GridName { node: identity.name().clone(), site: site.clone() }),
        _ => Err(format!(
            "a gateway keeps trunks with gateways of other sites only, and not with {identity:?}"
        )),
    }
}
