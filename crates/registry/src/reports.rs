//! Reports that become no record: other brokers need not have them.

use isthmus_rpc::seen;
use isthmus_wire::bounds::Bounded as _;
use isthmus_wire::{GridName, proto};

use super::{Refused, Registry, SessionId};

impl Registry {
    /// Takes in findings that a gateway reported of its nodes, and that no plan depends on.
    ///
    /// # Errors
    /// If the gateway isn't attached, or the report exceeds a bound.
    pub fn nodes_seen(&mut self, session: SessionId, found: proto::NodesSeen) -> Result<(), Refused> {
        found.check()?;
        let (site, gateway) = self.attached_gateway(session)?;
        for found in found.nodes {
            let name = found.node.parse().map(|node| GridName { node, site: site.clone() });
            let address = name.ok().and_then(|name| self.addresses.address(&name));
            let entry = address.and_then(|address| self.nodes.get_mut(&address));
            let Some(entry) = entry.filter(|entry| entry.gateway == gateway) else { continue };
            // A finding that plans depend on comes with a record, before this or after it.
            if seen::for_plans(entry.contact.seen.as_ref()) == seen::for_plans(found.seen.as_ref()) {
                entry.contact.seen = found.seen;
            }
        }
        Ok(())
    }

    /// Takes in the counters that a relay reported.
    pub fn relay_report(&mut self, session: SessionId, report: proto::RelayReport) {
        if let Some(relay) = self.relays.values_mut().find(|relay| relay.session == Some(session)) {
            relay.report = report;
        }
    }
}
