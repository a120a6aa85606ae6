//! The site's nodes and jobs as records, for answers without the broker.

use isthmus_registry::contact;
use isthmus_wire::{GridName, Label, proto};

use super::Roster;

impl Roster {
    /// All nodes that have an address, in the order of their names. Nodes whose agent isn't
    /// attached are down.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (GridName, proto::Node)> {
        self.addresses.iter().map(|(name, address)| {
            let full_name = GridName { node: name.clone(), site: self.site.clone() };
            let record = match self.contact_of(name) {
                Some(found) => contact::node(&full_name, *address, found, true),
                None => contact::unattached(&full_name, *address),
            };
            (full_name, record)
        })
    }

    /// Running jobs of an owner whose head is attached to this gateway, in the order of
    /// their ids.
    pub(crate) fn jobs_of(&self, owner: &str) -> Vec<proto::JobReport> {
        let jobs = self.agents.values().flat_map(|agent| agent.jobs.values());
        let mut jobs: Vec<_> = jobs.filter(|job| job.owner == owner).cloned().collect();
        jobs.sort_by(|a, b| a.job.cmp(&b.job));
        jobs
    }

    /// How many running jobs have their head at this gateway.
    pub(crate) fn jobs(&self) -> usize {
        self.agents.values().map(|agent| agent.jobs.len()).sum()
    }

    /// What an attached node announced, at this gateway or at another gateway of the site.
    pub(super) fn contact_of(&self, name: &Label) -> Option<&proto::NodeUp> {
        let own = self.agents.get(name).map(|agent| &agent.contact);
        own.or_else(|| self.elsewhere.get(name))
    }
}
