//! What follows from the contact that a node's agent has announced: the node's record, and its end
//! of a plan. Gateways answer by this, too.

use std::net::SocketAddr;

use isthmus_net::callback::{check, is_private};
use isthmus_rpc::seen;
use isthmus_wire::{GridName, VirtualAddress, proto};

/// The record of a node, as lists show it. `up` says whether its agent runs.
pub fn node(name: &GridName, address: VirtualAddress, contact: &proto::NodeUp, up: bool) -> proto::Node {
    proto::Node {
        name: name.to_string(),
        virtual_address: address.ip().into(),
        address: contact.address.clone(),
        host_name: contact.host_name.clone(),
        owner: contact.owner.clone(),
        slots: contact.slots,
        version: contact.version.clone(),
        architecture: contact.architecture.clone(),
        up,
        outside_address: contact.outside_address.clone(),
        gone: false,
        submits: contact.submits.clone(),
        pilot: contact.pilot.clone(),
        seen: None,
        signed: None,
    }
}

/// The record of a node of which no agent is known to be attached.
pub fn unattached(name: &GridName, address: VirtualAddress) -> proto::Node {
    node(name, address, &proto::NodeUp::default(), false)
}

/// The end of a plan at a node whose gateway is attached. `site` has the facts of all gateways of
/// the node's site together.
pub fn end(name: &GridName, contact: &proto::NodeUp, site: proto::SiteFacts) -> proto::End {
    proto::End {
        node: name.to_string(),
        inbound: site.inbound,
        outside_address: seen::let_in_at(&contact.outside_address, site.inbound(), contact.seen.as_ref()),
        seen: contact.seen.clone(),
        attached: true,
        // No plan depends on them.
        virtual_address: 0,
        gateway: String::new(),
        can_traverse: contact.can_traverse,
        gateway_outside: site.gateway_outside,
        gateway_reach: site.gateway_reach,
        site_trunk: site.site_trunk,
        gateway_mapping: site.gateway_mapping,
        public: is_public(&contact.address),
    }
}

/// Whether an address, `HOST:PORT`, is one that all sites may use.
fn is_public(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| check(address).is_ok() && !is_private(address.ip()))
}
