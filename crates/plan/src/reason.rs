//! Why a way is in a plan, or why it is left out.

use std::time::Duration;

use crate::path::Path;
use crate::{Reach, Told};

/// Why a way may work, or why it can't, each with its text for plans and
/// messages. Sites are given by their names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The texts document the variants.
pub enum Reason {
    // Why a way may work.
    #[error("both nodes are in site {site}")]
    SameSite { site: String },
    #[error("site {site} lets connections in")]
    LetsIn { site: String },
    #[error("site {site} lets connections in: {}", .found.clause())]
    LetsInMeasured { site: String, found: Reach },
    #[error("site {site} lets connections from the other site in, as an earlier connection has shown, though {}", .found.clause())]
    LetsInMet { site: String, found: Reach },
    #[error(
        "site {site} may let connections in: its node has a public address, and there is no relay to try it"
    )]
    MayLetIn { site: String },
    #[error("site {site} lets a port in for the node")]
    PortLetIn { site: String },
    #[error("both sites let connections out from ports that are known outside")]
    PortsKnown,
    #[error("the firewall of site {site} may let an answer out without having seen the SYN")]
    MayAnswer { site: String },
    #[error("both sites let connections out")]
    BothLetOut,
    #[error("the gateway of site {site} can be reached from outside")]
    GatewayLetIn { site: String },
    #[error("site {initiator} lets connections in, and the gateway of site {acceptor} dials for its node")]
    GatewayDials { initiator: String, acceptor: String },
    #[error("a node without a way out goes over its gateway")]
    GatewayForEnclosed,
    #[error("gateways dial out, as the nodes are not to dial each other")]
    GatewaysInstead,
    #[error("the gateways of both sites keep a trunk, and encrypt")]
    GatewaysTrunk,
    #[error("the broker's configuration says so for the two sites")]
    TrunksAlways,
    #[error("the broker's configuration forbids trunks between the two sites")]
    TrunksNever,
    #[error("data is encrypted: a trunk does that once, and outlives cuts")]
    Encrypted,
    #[error("{} % of segments are lost over {rtt:.1?}: a trunk is faster", f64::from(*.loss_ppm) / 1e4)]
    Lossy { loss_ppm: u32, rtt: Duration },
    #[error("data isn't encrypted, and {}", .path.as_fast())]
    Plain { path: Path },
    #[error("if the node's agent hasn't signed that it is at its address")]
    Unsigned,

    // Why a way can't work.
    #[error("site {site} lets nothing in")]
    LetsNothingIn { site: String },
    #[error("site {site} lets nothing in: {}", .found.clause())]
    NotReached { site: String, found: Reach },
    #[error("site {site} is declared open, but {}", .found.clause())]
    DeclaredOpen { site: String, found: Reach },
    #[error("whether site {site} lets connections in is not known: {}", .found.clause())]
    NotMeasured { site: String, found: Reach },
    #[error("site {site} lets every port in")]
    EveryPortLetIn { site: String },
    #[error("no port of the node is let in by site {site}")]
    NoPortLetIn { site: String },
    #[error("a port is declared as let in for the node, but {}", .found.clause())]
    PortNotReached { found: Reach },
    #[error("no relay is attached to the broker")]
    NoRelay,
    #[error("relay {relay} has as many connections as it takes, and no other one may join the two nodes")]
    RelayFull { relay: String },
    #[error("only gateways relay, and none of them may join these two sites")]
    GatewaysJoinNone,
    #[error("no relay is attached to the broker, so it is unknown how the nodes are seen from outside")]
    NoRelayForBoth,
    #[error("no relay is attached to the broker, so it is unknown how the initiator is seen from outside")]
    NoRelayForInitiator,
    #[error("how nodes of site {site} are seen from outside is not known")]
    MappingUnknown { site: String },
    #[error("the NAT of site {site} takes another port for each destination")]
    PortPerDestination { site: String },
    #[error("sites {initiator} and {acceptor} both drop every SYN: their firewalls keep no state")]
    BothStateless { initiator: String, acceptor: String },
    #[error("site {site} lets every connection in")]
    EverythingLetIn { site: String },
    #[error(
        "the agent of the node of site {site} may not send raw packets; its log names the remedy, such as \
         `setcap cap_net_raw=ep` on isthmus-raw, or the agent's user in the group isthmus"
    )]
    NoRawPackets { site: String },
    #[error("the firewall of site {site} keeps state, and lets no answer out to what it dropped")]
    KeepsState { site: String },
    #[error("nodes of site {site} have no outside address of their own")]
    NoOwnAddress { site: String },
    #[error("the gateway of site {site} is not attached to the broker")]
    Detached { site: String },
    #[error("the node of site {site} has no way out but its gateway")]
    NoWayOut { site: String },
    #[error("the node of site {site} has a way out itself")]
    HasWayOut { site: String },
    #[error("the gateway of site {site} has no port outside")]
    NoGatewayPort { site: String },
    #[error("the gateway of site {site} is not reached at its port outside: {}", .found.clause())]
    GatewayNotReached { site: String, found: Reach },
    #[error("site {site} lets connections in to the node itself")]
    NodeLetIn { site: String },
    #[error("the gateways of site {site} keep no trunks with other sites")]
    NoSiteTrunk { site: String },
    #[error("data between sites {initiator} and {acceptor} is not encrypted anyway")]
    RawAnyway { initiator: String, acceptor: String },
    #[error(
        "the gateways of sites {initiator} and {acceptor} can't reach each other: no port outside is reached, they can't punch, and no relay may be used"
    )]
    NoCarrier { initiator: String, acceptor: String },
    #[error("forbidden between sites {initiator} and {acceptor} by the broker's configuration")]
    Forbidden { initiator: String, acceptor: String },
    #[error("there is no such way")]
    NoSuchWay,

    // Additions to another reason.
    #[error(
        "{why}; {:.1} ms there and back{} by measurement", .round_trip.as_secs_f64() * 1000.0,
        if *.over_relay { " over the nearest relay" } else { "" }
    )]
    Measured { why: Box<Reason>, round_trip: Duration, over_relay: bool },
    #[error(
        "{why}, but site {site} seems to let nothing out to {}",
        .port.map_or_else(|| "such ports".to_owned(), |port| format!("port {port}"))
    )]
    NotLetOut { why: Box<Reason>, site: String, port: Option<u16> },
    #[error("{why}, but it failed before: {failure}")]
    FailedBefore { why: Box<Reason>, failure: String },
    /// A reason that another process sent.
    #[error("{0}")]
    Received(Told),
}

impl Reason {
    /// Puts an addition around this reason.
    pub(crate) fn add(&mut self, addition: impl FnOnce(Box<Self>) -> Self) {
        let why = std::mem::replace(self, Self::NoSuchWay);
        *self = addition(Box::new(why));
    }
}
