//! Messages from the broker.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_rpc::connection::Connection;
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{Expected, Leg, take_leg};
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::{self, attach_down, dial_request};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::gateway::Gateway;
use crate::roster::{Effect, Refused};
use crate::site_trunks;

pub(super) fn handle(gateway: &Arc<Gateway>, kind: attach_down::Kind) {
    match kind {
        attach_down::Kind::Welcome(welcome) => {
            let Some(address) = VirtualAddress::new(welcome.virtual_address.into()) else {
                let address = Ipv4Addr::from(welcome.virtual_address);
                return warn!(node = welcome.node, %address, "the broker gave an address that is not virtual");
            };
            info!(node = welcome.node, virtual_address = %address, "the broker has accepted a node");
            let effects = gateway.roster().welcome(&welcome.node, address);
            gateway.carry_out(effects);
        }
        attach_down::Kind::Dial(order) if order.node.is_empty() => {
            site_trunks::carriers::ordered(gateway, order)
        }
        attach_down::Kind::Dial(request) => ask_to_dial(gateway, request),
        attach_down::Kind::Measure(order) => {
            let effect = gateway.roster().measure(order);
            pass_to_node(gateway, effect);
        }
        attach_down::Kind::ContactChanged(changed) if changed.virtual_address == 0 => {
            gateway.forget_contacts();
        }
        attach_down::Kind::ContactChanged(changed) => {
            if let Some(address) = VirtualAddress::new(changed.virtual_address.into()) {
                gateway.contact_changed(address);
            }
        }
        attach_down::Kind::Refusal(refusal) => {
            warn!(node = refusal.node, reason = refusal.reason, "the broker refuses a node");
            let effects = gateway.roster().refuse(&refusal.node, &refusal.reason);
            gateway.carry_out(effects);
        }
        attach_down::Kind::Expect(order) => match Expected::try_from(order) {
            Ok(Expected { connection, from, leg }) => {
                gateway.streams.expect(connection, from);
                if let Some(leg) = leg {
                    dial(gateway, leg, from.to_string());
                }
            }
            Err(error) => warn!(%error, "the broker's order to expect a node is ignored"),
        },
        attach_down::Kind::SiteNode(node) => elsewhere(gateway, node),
        attach_down::Kind::Notice(notice) => warn!("{}", notice.text),
        attach_down::Kind::RelayKey(key) => gateway.streams.set_key(&key),
        attach_down::Kind::Revocations(revocations) => gateway.revoked(revocations),
        attach_down::Kind::Directory(directory) => gateway.directory_changed(directory),
        attach_down::Kind::SiteGateways(gateways) => gateway.site_gateways_changed(gateways),
        // Only relays and agents receive these.
        attach_down::Kind::Probe(_)
        | attach_down::Kind::CutOff(_)
        | attach_down::Kind::AnnounceAgain(_)
        | attach_down::Kind::GatewayLost(_) => {}
    }
}

/// How long an agent keeps an attachment that it leaves, with some reserve.
const LEAVING: Duration = Duration::from_secs(3);

/// Takes in that the broker has a node at another gateway of the site, or gone.
fn elsewhere(gateway: &Arc<Gateway>, node: proto::SiteNode) {
    let (effects, doubted) = gateway.roster().elsewhere(node);
    gateway.carry_out(effects);
    let Some(session) = doubted else { return };
    let gateway = gateway.clone();
    tokio::spawn(async move {
        sleep(LEAVING).await;
        // Who has left gets nothing.
        gateway.sessions.send(session, attach_down::Kind::AnnounceAgain(proto::AnnounceAgain {}));
    });
}

/// Passes the broker's request to dial on to its node. If the node must connect to this gateway,
/// the gateway expects the node, and dials its own part meanwhile.
fn ask_to_dial(gateway: &Arc<Gateway>, mut request: proto::DialRequest) {
    if let Some(dial_request::Way::OwnGateway(at)) = &mut request.way {
        let (connection, leg) = match take_leg(at) {
            Ok(taken) => taken,
            Err(error) => return warn!(%error, "the broker's request to dial is ignored"),
        };
        let from = gateway.roster().seen_from(&request.node);
        if let Some(from) = from {
            gateway.streams.expect(connection, from);
        }
        if let Some(leg) = leg {
            dial(gateway, leg, request.node.clone());
        }
    }
    if let Some(connection) = Connection::of_dial(&request) {
        debug!(%connection, node = request.node, "the broker asks a node to dial");
    }
    let effect = gateway.roster().dial(request);
    pass_to_node(gateway, effect);
}

fn pass_to_node(gateway: &Gateway, effect: Result<Effect, Refused>) {
    match effect {
        Ok(effect) => gateway.carry_out(vec![effect]),
        // The node has detached since the broker sent it.
        Err(refused) => debug!(%refused, "the broker's order for a node is ignored"),
    }
}

/// Dials for a node, which connects to this gateway meanwhile.
fn dial(gateway: &Arc<Gateway>, leg: Leg, node: String) {
    let gateway = gateway.clone();
    tokio::spawn(async move {
        if let Err(status) = gateway.dial(&leg).await {
            warn!(node, reason = grpc::reason(&status), "cannot dial for a node");
        }
    });
}
