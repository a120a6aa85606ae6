//! What gateways and relays send becomes a record here, if it is accepted.

use isthmus_net::callback::{FIRST_PORT, HTTPS};
use isthmus_rpc::enums::mapping_to_wire;
use isthmus_service::mac::Secret;
use isthmus_wire::bounds::{self, Bounded as _};
use isthmus_wire::{GridName, Label, RelayName, VirtualAddress, proto};

use super::{Refused, Registry, SessionId};
use crate::addresses::{Assignment, Exhausted};
use crate::records::{GatewayRecord, NodeRecord, RelayRecord};

impl Registry {
    /// The address of a node, or an assignment that is to be written for it.
    ///
    /// # Errors
    /// If no address is left.
    pub fn address_of(&self, node: &GridName) -> Result<Result<VirtualAddress, Assignment>, Exhausted> {
        match self.addresses.address(node) {
            Some(address) => Ok(Ok(address)),
            None => self.addresses.propose(node).map(Err),
        }
    }

    /// The record of a gateway that attaches. It replaces a former gateway of the
    /// same site and name and keeps its key, so that tickets under way stay good.
    /// A gateway of a new name gets `new_key`.
    ///
    /// # Errors
    /// If the message names another site, exceeds a bound, or the site has too many
    /// gateways.
    pub fn gateway_record(
        &self,
        site: &Label,
        name: &Label,
        up: &proto::GatewayUp,
        new_key: &Secret,
    ) -> Result<GatewayRecord, Refused> {
        if up.site != site.as_str() {
            return Err(Refused(format!("this gateway's certificate is for site {site}, not {:?}", up.site)));
        }
        up.check()?;
        if let Some(entry) = self.sites.get(site).filter(|entry| !entry.gateways.contains_key(name)) {
            let attached = entry.attached().count();
            if attached >= bounds::GATEWAYS_PER_SITE {
                return Err(Refused(format!("site {site} has {attached} other gateways attached already")));
            }
        }
        let former = self.sites.get(site).and_then(|site| site.gateways.get(name));
        let key = former.map_or(new_key, |former| &former.key).expose().to_vec();
        // The former result holds until the gateway reports a new one.
        let same = former.filter(|former| former.outside_address == up.outside_address);
        let outside_reach = same.and_then(|former| former.outside_reach.clone());
        let mapping = former.map_or(proto::Mapping::Unknown, |former| mapping_to_wire(former.mapping)).into();
        Ok(GatewayRecord { up: up.clone(), key, outside_reach, mapping })
    }

    /// The record of a relay that attaches, or of a gateway that attaches as one. It replaces a former
    /// relay of the same name and keeps its key, so that tickets under way stay good. A relay of a
    /// new name gets `new_key`.
    ///
    /// # Errors
    /// If the message names another relay, has no address, exceeds a bound, the grid has too many
    /// relays, or it wants no gateways as relays.
    pub fn relay_record(
        &self,
        name: &RelayName,
        up: &proto::RelayUp,
        new_key: &Secret,
    ) -> Result<RelayRecord, Refused> {
        if up.name != name.to_string() {
            return Err(Refused(format!("this relay's certificate is for {name}, not {:?}", up.name)));
        }
        up.check()?;
        if matches!(name, RelayName::Gateway(_)) && !self.policy.gateways_relay {
            return Err(Refused("the broker's configuration has `gateways_relay = false`".to_owned()));
        }
        if up.address.is_empty() {
            return Err(Refused("a relay must name the address at which agents reach it".to_owned()));
        }
        let most = match name {
            RelayName::Relay(_) => bounds::RELAYS,
            RelayName::Gateway(gateway) => {
                let entry = self.sites.get(&gateway.site).and_then(|site| site.gateways.get(&gateway.node));
                if !entry.is_some_and(|entry| entry.session.is_some() && entry.outside_address == up.address)
                {
                    return Err(Refused(format!(
                        "{} is not the port outside of gateway {gateway}",
                        up.address
                    )));
                }
                // Where a site's configuration names the place, its agents check no port.
                let port = up.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
                if !port.is_some_and(|port| port >= FIRST_PORT || port == HTTPS) {
                    return Err(Refused(format!("{} has a port of system services", up.address)));
                }
                bounds::RELAYING_GATEWAYS
            }
        };
        let is_same_kind =
            |other: &RelayName| matches!(other, RelayName::Relay(_)) == matches!(name, RelayName::Relay(_));
        let attached = self.attached_relays().filter(|(other, _)| is_same_kind(other)).count();
        if attached >= most && !self.relays.contains_key(name) {
            return Err(Refused(format!("the grid has {attached} others attached already")));
        }
        let key = self.relays.get(name).map_or(new_key, |former| &former.key).expose().to_vec();
        Ok(RelayRecord { up: up.clone(), key })
    }

    /// The record of a node that a gateway announces. `None` if the node has attached to another
    /// gateway since. The caller has verified what its agent has signed.
    ///
    /// # Errors
    /// If the name isn't allowed, another agent has the name, or the site or the owner has too many
    /// nodes. The attachment stays.
    pub fn node_record(
        &self,
        session: SessionId,
        up: &proto::NodeUp,
    ) -> Result<Option<(GridName, NodeRecord)>, Refused> {
        let (site, gateway) = self.attached_gateway(session)?;
        let node: Label = up.node.parse().map_err(|error| Refused(format!("{error}")))?;
        up.check()?;
        let name = GridName { node, site };
        let known = self.nodes.of_site(&name.site).count();
        if known >= bounds::NODES_PER_SITE && self.addresses.address(&name).is_none() {
            return Err(Refused(format!("site {} has {known} nodes already", name.site)));
        }
        self.check_owner(&name, &up.owner)?;
        if !self.is_taken(&name, &gateway, up)? {
            return Ok(None);
        }
        let record = NodeRecord { contact: up.clone(), gateway: gateway.to_string(), down: false };
        Ok(Some((name, record)))
    }

    /// Refuses a further node of an owner who has too many.
    fn check_owner(&self, name: &GridName, owner: &str) -> Result<(), Refused> {
        let former = self.addresses.address(name).and_then(|address| self.nodes.get(&address));
        let known = former.is_some_and(|former| former.contact.owner == owner);
        let count = self.nodes.count_of(owner);
        if count >= bounds::NODES_PER_OWNER && !known {
            return Err(Refused(format!("user {owner:?} has {count} nodes in the grid already")));
        }
        Ok(())
    }

    /// The record of a node whose gateway reported that its agent is gone. `None` if
    /// the node has attached to another gateway since.
    pub fn node_down_record(
        &self,
        session: SessionId,
        down: &proto::NodeDown,
    ) -> Option<(GridName, NodeRecord)> {
        let (site, gateway) = self.gateway_of(session)?;
        let name = GridName { node: down.node.parse().ok()?, site };
        let entry = self.nodes.get(&self.addresses.address(&name)?)?;
        let record =
            NodeRecord { contact: entry.contact.clone(), gateway: entry.gateway.to_string(), down: true };
        (entry.gateway == gateway).then_some((name, record))
    }

    /// The record of a gateway that reported whether its port outside is reached.
    ///
    /// # Errors
    /// If the gateway isn't attached, or the report exceeds a bound.
    pub fn reach_record(
        &self,
        session: SessionId,
        former: GatewayRecord,
        reach: &proto::Reach,
    ) -> Result<GatewayRecord, Refused> {
        reach.check()?;
        self.attached_gateway(session)?;
        Ok(GatewayRecord { outside_reach: Some(reach.clone()), ..former })
    }

    /// The record of a gateway that reported how it is seen from outside its site.
    ///
    /// # Errors
    /// If the gateway isn't attached.
    pub fn seen_record(
        &self,
        session: SessionId,
        former: GatewayRecord,
        seen: &proto::Seen,
    ) -> Result<GatewayRecord, Refused> {
        self.attached_gateway(session)?;
        Ok(GatewayRecord { mapping: seen.mapping().into(), ..former })
    }
}
