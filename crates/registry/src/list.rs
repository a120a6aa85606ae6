//! Pages of the registry's records.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_rpc::enums::inbound_to_wire;
use isthmus_rpc::page::{BadToken, Page, key_of_node};
use isthmus_wire::bounds::Bounded as _;
use isthmus_wire::proto::{self, list_request::Records};
use isthmus_wire::{GridName, Label, VirtualAddress};

use super::filters::site_of;
use super::{NodeEntry, Presence, Refused, Registry, RelayEntry, SiteEntry, View, contact, filters};

impl Registry {
    /// A page of the records that the caller may see.
    ///
    /// # Errors
    /// If the request or its page token is malformed, or exceeds a bound.
    pub fn list(&self, view: &View, request: &proto::ListRequest) -> Result<proto::ListReply, Refused> {
        request.check().map_err(|error| Refused(error.to_string()))?;
        let mut page = Page::new(request)?;
        let mut reply = proto::ListReply { grid: self.grid.clone(), ..proto::ListReply::default() };
        match &request.records {
            Some(Records::Nodes(filter)) => reply.nodes = self.list_nodes(&mut page, filter)?,
            Some(Records::Sites(filter)) => reply.sites = self.list_sites(&mut page, filter),
            Some(Records::Relays(filter)) => reply.relays = self.list_relays(&mut page, filter),
            Some(Records::Jobs(filter)) => {
                let jobs = self.jobs.with_ids().filter(|(_, job)| view.has_job(job));
                let jobs = jobs.map(|(id, job)| (id.to_string(), job));
                let jobs = jobs.filter(|(id, job)| filters::wants_job(filter, id, job));
                reply.jobs = page.take(jobs.map(|(id, job)| (id, job.clone())));
            }
            Some(Records::Paths(filter)) => reply.paths = self.list_paths(&mut page, filter),
            None => return Err(Refused("the request names no records".to_owned())),
        }
        reply.next_page_token = page.next();
        Ok(reply)
    }

    fn list_nodes(&self, page: &mut Page, filter: &proto::NodeFilter) -> Result<Vec<proto::Node>, Refused> {
        let after = page.after_node()?.map(|name| (name.site, name.node));
        let wanted = |(_, entry): &(VirtualAddress, &NodeEntry)| {
            filters::wants_node(filter, &entry.contact.owner, entry.presence == Presence::Up)
        };
        let record = |(address, entry): (VirtualAddress, &NodeEntry)| {
            let seen = if filter.seen { entry.contact.seen.clone() } else { None };
            (key_of_node(&entry.name), proto::Node { seen, ..self.node(address, entry) })
        };
        if filter.names.is_empty() && filter.sites.is_empty() {
            return Ok(page.take(self.nodes.after(after.as_ref()).filter(wanted).map(record)));
        }
        let named = filter.names.iter().filter_map(|name| name.parse::<GridName>().ok());
        let mut chosen: BTreeSet<(Label, Label)> = named.map(|name| (name.site, name.node)).collect();
        for site in filter.sites.iter().filter_map(|site| site.parse::<Label>().ok()) {
            let nodes = self.nodes.of_site(&site);
            chosen.extend(nodes.map(|(_, entry)| (entry.name.site.clone(), entry.name.node.clone())));
        }
        let chosen = chosen.into_iter().filter(|key| after.as_ref().is_none_or(|after| key > after));
        // Whoever asks by name learns of a node that hasn't attached since the broker started.
        let is_named = !filter.names.is_empty() && filter.owner.is_empty() && !filter.up;
        let chosen = chosen.filter_map(|(site, node)| {
            let name = GridName { node, site };
            let address = self.addresses.address(&name)?;
            match self.nodes.get(&address) {
                Some(entry) => Some((address, entry)).filter(|found| wanted(found)).map(record),
                None => is_named.then(|| (key_of_node(&name), contact::unattached(&name, address))),
            }
        });
        Ok(page.take(chosen))
    }

    fn list_sites(&self, page: &mut Page, filter: &proto::SiteFilter) -> Vec<proto::Site> {
        let jobs = self.jobs.by_site();
        let sites = self.sites.iter().filter(|(name, _)| filters::wants_site(filter, name));
        page.take(sites.map(|(name, entry)| {
            (name.to_string(), self.site(name, entry, jobs.get(name).copied().unwrap_or_default()))
        }))
    }

    /// A site's record, with sums over its nodes.
    fn site(&self, name: &Label, entry: &SiteEntry, jobs: u32) -> proto::Site {
        let mut attached: BTreeMap<&Label, u32> = BTreeMap::new();
        let (mut nodes_up, mut nodes_down, mut slots) = (0, 0, 0);
        for (_, node) in self.nodes.of_site(name) {
            if node.presence == Presence::Up {
                *attached.entry(&node.gateway).or_default() += 1;
                nodes_up += 1;
                slots += u64::from(node.contact.slots);
            } else {
                nodes_down += 1;
            }
        }
        proto::Site {
            name: name.to_string(),
            inbound: inbound_to_wire(entry.declared().inbound).into(),
            up: entry.is_attached(),
            trusted: self.policy.trusted.of(name).map(Label::to_string).collect(),
            version: entry.versions(),
            outside_address: entry.outside_addresses(),
            measure_off: entry.measure_off(),
            outside_reach: entry.outside_reach(),
            gateways: entry.gateways_to_wire(|gateway| attached.get(gateway).copied().unwrap_or_default()),
            nodes_up,
            nodes_down,
            slots,
            jobs,
            places: self.policy.places.of(name),
        }
    }

    fn list_relays(&self, page: &mut Page, filter: &proto::RelayFilter) -> Vec<proto::Relay> {
        let answered =
            if filter.asking_site.is_empty() { BTreeMap::new() } else { self.answered(&filter.asking_site) };
        // Pages go by the order of texts.
        let by_name: BTreeMap<String, &RelayEntry> =
            self.relays.iter().map(|(name, entry)| (name.to_string(), entry)).collect();
        page.take(by_name.into_iter().map(|(name, entry)| {
            let ports = answered.get(name.as_str()).into_iter().flatten();
            let relay = proto::Relay {
                name: name.clone(),
                address: entry.address.clone(),
                up: entry.session.is_some(),
                full: entry.is_full(),
                connections: entry.report.connections,
                bytes: entry.report.bytes,
                version: entry.version.clone(),
                answered: ports.copied().collect(),
            };
            (name, relay)
        }))
    }

    /// The ports of each relay's host that have answered nodes of other sites.
    fn answered(&self, asking_site: &str) -> BTreeMap<&str, BTreeSet<u32>> {
        let mut answered: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for entry in self.nodes.values().filter(|entry| entry.name.site.as_str() != asking_site) {
            for host in entry.contact.seen.iter().flat_map(|seen| &seen.egress) {
                let ports = answered.entry(&host.relay).or_default();
                // Agents try a few ports only; this bounds the record.
                ports.extend(host.answered.iter().filter(|port| is_tried(**port)));
            }
        }
        answered
    }

    fn list_paths(&self, page: &mut Page, filter: &proto::PathFilter) -> Vec<proto::PathReport> {
        let wanted = |path: &proto::PathReport| {
            filter.site.is_empty() || site_of(&path.from) == filter.site || site_of(&path.to) == filter.site
        };
        if filter.between_sites {
            page.take(self.site_paths.by_pair().filter(|(_, path)| wanted(path)))
        } else {
            let paths = self.paths.by_pair().filter(|(_, path)| wanted(path));
            page.take(paths.map(|(key, path)| (key, path.clone())))
        }
    }
}

fn is_tried(port: u32) -> bool {
    u16::try_from(port).is_ok_and(|port| isthmus_plan::egress::TRIED.contains(&port))
}

impl From<BadToken> for Refused {
    fn from(error: BadToken) -> Self {
        Self(error.to_string())
    }
}
