//! Which records a list shows. Gateways list by this, too.

use isthmus_wire::{Label, proto};

/// Whether a list shows the nodes of this owner that are up, or that are not.
pub fn wants_node(filter: &proto::NodeFilter, owner: &str, up: bool) -> bool {
    (filter.owner.is_empty() || owner == filter.owner) && (!filter.up || up)
}

/// Whether a list shows this site.
pub fn wants_site(filter: &proto::SiteFilter, site: &Label) -> bool {
    filter.names.is_empty() || filter.names.iter().any(|name| name == site.as_str())
}

/// Whether a list shows the job that has this id.
pub fn wants_job(filter: &proto::JobFilter, id: &str, job: &proto::JobReport) -> bool {
    let is_there = |node: &String| site_of(node) == filter.site;
    (filter.job.is_empty() || id == filter.job) && (filter.site.is_empty() || job.nodes.iter().any(is_there))
}

/// The site in a grid name; empty if there is none.
pub fn site_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, site)| site)
}
