//! Has one node of each pair of sites measure the path to the other in the
//! background. If a relay didn't reach a site that may be open, the node also tries
//! a direct connection.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isthmus_plan::measuring::{self, Task};
use isthmus_plan::{Dial, Inbound, Route};
use isthmus_rpc::contact::plan_from_facts;
use isthmus_rpc::seen;
use isthmus_wire::proto;
use isthmus_wire::{GridName, Label, VirtualAddress};

use super::fold::changed;
use super::paths::orders;
use super::site_paths::{initiator, site_pair};
use super::{Effect, NodeEntry, Party, Presence, Registry};
use crate::policy::Measure;

/// Most sites that take part, because every round looks at all their pairs.
const MOST_SITES: usize = 256;
/// Shortest time between two direct connections to a site that a relay doesn't reach.
const DOUBT: Duration = Duration::from_secs(3600);

/// A node that measures for its site.
struct Delegate<'a> {
    address: VirtualAddress,
    entry: &'a NodeEntry,
    gateway: Party,
    doubt: Doubt,
}

/// A measurement between two sites that is ordered.
struct Ordered {
    /// The node that measures, and the node that is measured.
    nodes: (GridName, GridName),
    /// Whether a direct connection is tried, too.
    try_direct: bool,
    /// The orders to both nodes.
    effects: [Effect; 2],
}

/// Whether a site may be open to other sites though a relay failed to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    None,
    /// The site declares `auto`.
    Some,
    /// The site declares `open`.
    Strong,
}

impl Registry {
    /// Orders the measurements between sites that are due.
    pub fn measure_due(&mut self, now_unix_seconds: u64) -> Vec<Effect> {
        if self.policy.measure == Measure::Off {
            return Vec::new();
        }
        let now = now_unix_seconds;
        let delegates = self.delegates();
        let parties = self.parties(&delegates, now);
        let mut pairs = Vec::new();
        for (a, one) in delegates.iter().enumerate() {
            for (b, other) in delegates.iter().enumerate().skip(a + 1) {
                let sites = site_pair(&one.entry.name.site, &other.entry.name.site);
                let doubt = one.doubt.max(other.doubt) > Doubt::None && self.is_untried(&sites, now);
                pairs.push(self.site_paths.pair(&sites, [a, b], doubt, now));
            }
        }
        let mut begun = Vec::new();
        for task in measuring::due(&parties, &pairs) {
            let both = pairs.get(task.pair).map(|pair| pair.parties.map(|party| delegates.get(party)));
            if let Some([Some(a), Some(b)]) = both {
                let sites = site_pair(&a.entry.name.site, &b.entry.name.site);
                begun.push((sites, self.order(a, b, task, now)));
            }
        }
        let mut effects = Vec::new();
        for (sites, order) in begun {
            self.site_paths.begin(&sites, order.as_ref().map(|order| order.nodes.clone()), now);
            if let Some(order) = order {
                if order.try_direct {
                    self.site_paths.trying(&sites, now);
                }
                effects.extend(order.effects);
            }
        }
        effects
    }

    /// The measurement that is ordered. `None` if the plan has no step and no direct connection is
    /// to be tried.
    fn order(&self, a: &Delegate<'_>, b: &Delegate<'_>, task: Task, now: u64) -> Option<Ordered> {
        let (a_site, b_site) = (&a.entry.name.site, &b.entry.name.site);
        let usual = initiator(a_site, b_site) == a_site;
        // The site that may be open is the destination.
        let (from, to) = match a.doubt.cmp(&b.doubt) {
            Ordering::Less => (a, b),
            Ordering::Greater => (b, a),
            Ordering::Equal if usual => (a, b),
            Ordering::Equal => (b, a),
        };
        let try_direct = to.doubt > Doubt::None
            && self.is_untried(&site_pair(a_site, b_site), now)
            && !self.policy.forbidden.between(a_site, b_site).contains(Route::EndToEnd, Dial::Direct);
        let facts = self.facts(&from.entry.name.site, to.entry);
        if plan_from_facts(&self.end(from.entry), &facts).steps.is_empty() && !try_direct {
            return None;
        }
        let order = proto::MeasureOrder {
            node: from.entry.name.node.to_string(),
            destination: to.address.ip().into(),
            background: true,
            transfer: task.transfer,
            try_direct,
            initiator: String::new(),
        };
        let nodes = (from.entry.name.clone(), to.entry.name.clone());
        let effects = orders(&nodes, [to.gateway.clone(), from.gateway.clone()], order);
        Some(Ordered { nodes, try_direct, effects })
    }

    /// Whether no direct connection was tried within [`DOUBT`].
    fn is_untried(&self, sites: &(Label, Label), now: u64) -> bool {
        self.site_paths.tried(sites, now).is_none_or(|tried| tried >= DOUBT)
    }

    /// Has the gateways of two sites plan anew.
    pub(super) fn between_changed(&self, a: &Label, b: &Label) -> Vec<Effect> {
        let sites = [a, b].into_iter().filter_map(|site| self.sites.get_key_value(site));
        let gateways = sites.flat_map(|(site, entry)| entry.parties(site));
        gateways.map(|to| changed(to, 0)).collect()
    }

    fn parties(&self, delegates: &[Delegate<'_>], now: u64) -> Vec<measuring::Party> {
        let busy: BTreeSet<&str> = self.at_work().filter_map(|node| Some(node.split_once('.')?.1)).collect();
        let asked = self.paths.running(now).flat_map(|(from, to)| [&from.site, &to.site]);
        let measuring: BTreeSet<&Label> = self.site_paths.measuring(now).chain(asked).collect();
        let party = |delegate: &Delegate<'_>| {
            let site = &delegate.entry.name.site;
            measuring::Party {
                busy: busy.contains(site.as_str()),
                last: self.site_paths.begun(site, now),
                measuring: measuring.contains(site),
            }
        };
        delegates.iter().map(party).collect()
    }

    /// A node of each site that takes part, without a job if possible. The node must have probed
    /// its network first: before that, its plans are worse.
    fn delegates(&self) -> Vec<Delegate<'_>> {
        let at_work: BTreeSet<&str> = self.at_work().collect();
        let mut best: BTreeMap<&Label, (bool, Delegate<'_>)> = BTreeMap::new();
        for (address, entry) in self.nodes.iter() {
            let site = &entry.name.site;
            let Some(taking_part) = self.sites.get(site).filter(|site| !site.measure_off()) else { continue };
            if !taking_part.has(&entry.gateway) {
                continue;
            }
            let gateway = Party::gateway(site, &entry.gateway);
            let found_out = entry
                .contact
                .seen
                .as_ref()
                .is_some_and(|seen| seen.measured_unix_ms > 0 || seen.way_out() == proto::WayOut::No);
            if entry.presence != Presence::Up || (!found_out && self.has_relay_for(site)) {
                continue;
            }
            let works = at_work.contains(entry.name.to_string().as_str());
            if best.get(site).is_none_or(|(best_works, _)| *best_works && !works) {
                let doubt = doubt(taking_part.declared().inbound, entry);
                best.insert(site, (works, Delegate { address: *address, entry, gateway, doubt }));
            }
        }
        best.into_values().map(|(_, delegate)| delegate).take(MOST_SITES).collect()
    }

    /// Grid names of the nodes on which jobs run.
    fn at_work(&self) -> impl Iterator<Item = &str> {
        self.jobs.all().flat_map(|job| &job.nodes).map(String::as_str)
    }
}

/// Whether a node may be reached directly though a relay failed to connect. A node whose address is
/// translated may not.
fn doubt(inbound: Inbound, node: &NodeEntry) -> Doubt {
    let Some(seen) = &node.contact.seen else { return Doubt::None };
    let failed = seen::reach_from_wire(seen.own.as_ref()).failed();
    match inbound {
        _ if !failed || seen.mapping() != proto::Mapping::Untranslated => Doubt::None,
        Inbound::Closed => Doubt::None,
        Inbound::Auto => Doubt::Some,
        Inbound::Open => Doubt::Strong,
    }
}
