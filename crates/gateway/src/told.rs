//! What the broker told of other sites' nodes and of sites, with its age. It outlives the
//! loss of the broker, but not that of this process. Plain data; the caller has the clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use isthmus_wire::bounds::NODES_PER_SITE;
use isthmus_wire::{GridName, Label, proto};

/// Most nodes that are remembered: as many as a site may have. At about 300 bytes each they take 5
/// MB.
const NODES: usize = NODES_PER_SITE;
/// Most sites that are remembered, at about 1 KiB each.
const SITES: usize = 1024;

/// What the broker told of other sites, with its age.
#[derive(Debug)]
pub(crate) struct Told {
    /// The gateway's own site, of which nothing is remembered: the gateway knows it better.
    own: Label,
    /// The name of the grid.
    grid: String,
    /// The nodes, by site and name.
    nodes: Latest<(Label, Label), proto::Node>,
    sites: Latest<Label, proto::Site>,
}

/// Records with the time at which each was told last.
#[derive(Debug)]
struct Latest<K, M> {
    records: BTreeMap<K, Record<M>>,
    /// The keys in the order in which they were told.
    order: BTreeMap<u64, K>,
    last: u64,
}

#[derive(Debug)]
struct Record<M> {
    message: M,
    at: Instant,
    number: u64,
}

impl<K, M> Default for Latest<K, M> {
    fn default() -> Self {
        Self { records: BTreeMap::new(), order: BTreeMap::new(), last: 0 }
    }
}

impl<K: Ord + Clone, M> Latest<K, M> {
    /// Remembers a record. Beyond `most` records, the record is dropped that was told longest ago.
    fn take(&mut self, key: K, message: M, now: Instant, most: usize) {
        self.last += 1;
        let record = Record { message, at: now, number: self.last };
        if let Some(former) = self.records.insert(key.clone(), record) {
            self.order.remove(&former.number);
        }
        self.order.insert(self.last, key);
        if self.records.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.records.remove(&oldest);
        }
    }
}

impl Told {
    /// Nothing told yet, at a gateway of site `own`.
    pub(crate) fn new(own: Label) -> Self {
        Self { own, grid: String::new(), nodes: Latest::default(), sites: Latest::default() }
    }

    /// Remembers the broker's answer to a request for records.
    pub(crate) fn take(&mut self, reply: &proto::ListReply, now: Instant) {
        self.grid.clone_from(&reply.grid);
        reply.nodes.iter().for_each(|node| self.take_node(node, now));
        for site in &reply.sites {
            if let Ok(name) = site.name.parse()
                && name != self.own
            {
                self.sites.take(name, site.clone(), now, SITES);
            }
        }
    }

    /// Remembers what the broker told of a node.
    pub(crate) fn take_node(&mut self, node: &proto::Node, now: Instant) {
        if let Ok(name) = node.name.parse::<GridName>()
            && name.site != self.own
        {
            let node = proto::Node { seen: None, signed: None, ..node.clone() };
            self.nodes.take((name.site, name.node), node, now, NODES);
        }
    }

    /// The name of the grid; empty if no list was asked for so far.
    pub(crate) fn grid(&self) -> &str {
        &self.grid
    }

    /// The nodes of other sites, in the order of their sites and names, each with the time
    /// since it was told.
    pub(crate) fn nodes(&self, now: Instant) -> impl Iterator<Item = (GridName, &proto::Node, Duration)> {
        self.nodes.records.iter().map(move |((site, node), record)| {
            let name = GridName { node: node.clone(), site: site.clone() };
            (name, &record.message, now.saturating_duration_since(record.at))
        })
    }

    /// How long ago the broker told of a node of another site; `None` if it never did.
    pub(crate) fn age_of(&self, node: &str, now: Instant) -> Option<Duration> {
        let name: GridName = node.parse().ok()?;
        let record = self.nodes.records.get(&(name.site, name.node))?;
        Some(now.saturating_duration_since(record.at))
    }

    /// The other sites, each with the age of its record. A site of which only nodes were told has
    /// the sums over its nodes.
    pub(crate) fn sites(&self, now: Instant) -> BTreeMap<Label, (proto::Site, Duration)> {
        let mut sites: BTreeMap<Label, (proto::Site, Duration)> = BTreeMap::new();
        for (name, node, age) in self.nodes(now) {
            let (site, oldest) = sites.entry(name.site).or_default();
            *(if node.up { &mut site.nodes_up } else { &mut site.nodes_down }) += 1;
            site.slots += if node.up { u64::from(node.slots) } else { 0 };
            *oldest = age.max(*oldest);
        }
        for (name, (site, _)) in &mut sites {
            (site.name, site.up) = (name.to_string(), site.nodes_up > 0);
        }
        sites.extend(self.sites.records.iter().map(|(name, record)| {
            (name.clone(), (record.message.clone(), now.saturating_duration_since(record.at)))
        }));
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, up: bool) -> proto::Node {
        proto::Node { name: name.to_owned(), up, slots: 2, ..proto::Node::default() }
    }

    #[test]
    fn what_was_told_is_remembered_with_its_age() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut told = Told::new("alpha".parse().unwrap());
        let sites = vec![proto::Site { name: "gamma".to_owned(), slots: 9, ..proto::Site::default() }];
        let nodes = vec![node("n2.beta", true), node("n1.alpha", true), node("n1.gamma", false)];
        let reply = proto::ListReply { grid: "demo".to_owned(), nodes, sites, ..Default::default() };
        told.take(&reply, at(0));
        told.take_node(&node("n1.beta", true), at(5));
        told.take_node(&node("n2.beta", false), at(6));
        told.take_node(&node("not a name", true), at(6));
        assert_eq!(told.grid(), "demo");
        let nodes: Vec<_> = told.nodes(at(10)).collect();
        let nodes: Vec<_> =
            nodes.iter().map(|(name, node, age)| (name.to_string(), node.up, age.as_secs())).collect();
        let want = [("n1.beta", true, 5), ("n2.beta", false, 4), ("n1.gamma", false, 10)];
        assert_eq!(nodes, want.map(|(name, up, age)| (name.to_owned(), up, age)));
        let sites: Vec<_> = told.sites(at(10)).into_values().collect();
        let sites: Vec<_> = sites
            .iter()
            .map(|(site, age)| {
                (site.name.as_str(), site.nodes_up, site.nodes_down, site.slots, age.as_secs())
            })
            .collect();
        assert_eq!(sites, [("beta", 1, 1, 2, 5), ("gamma", 0, 0, 9, 10)]);
    }

    #[test]
    fn what_was_told_longest_ago_is_dropped() {
        let mut latest = Latest::default();
        for key in [1, 2, 1, 3, 4] {
            latest.take(key, (), Instant::now(), 2);
        }
        assert_eq!(latest.records.keys().copied().collect::<Vec<_>>(), [3, 4]);
        latest.take(3, (), Instant::now(), 2);
        latest.take(5, (), Instant::now(), 2);
        assert_eq!(latest.records.keys().copied().collect::<Vec<_>>(), [3, 5]);
        assert_eq!(latest.order.len(), 2);
    }
}
