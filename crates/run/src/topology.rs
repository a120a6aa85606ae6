//! What the MPI library is told of a job: where its sites are, how far they are from one
//! another, and what groups the user asks for.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_front::format::site;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{
    Group, HeldNode, JobNode, ListReply, PathFilter, PathReport, Ready, Site, SiteFilter, SitePath,
    SitePlace, Topology,
};
use isthmus_wire::text::first;
use isthmus_wire::topology::PATHS_MAX;

/// Most nodes that an error names.
const NAMED_MAX: usize = 8;

/// Fetches what is known of the sites of a job.
///
/// # Errors The error of `list`.
pub async fn of<F, E>(
    nodes: &[JobNode],
    groups: Vec<Group>,
    list: impl Fn(Records) -> F,
) -> Result<Topology, E>
where
    F: Future<Output = Result<ListReply, E>>,
{
    let names: BTreeSet<String> = nodes.iter().map(|node| site(&node.name).to_owned()).collect();
    if names.len() < 2 {
        return Ok(Topology { groups, ..Topology::default() });
    }
    let sites = SiteFilter { names: names.iter().cloned().collect() };
    let paths = PathFilter { between_sites: true, ..PathFilter::default() };
    let (sites, paths) = tokio::try_join!(list(Records::Sites(sites)), list(Records::Paths(paths)))?;
    Ok(Topology { groups, paths: measured(&names, &paths.paths), ..places(&sites.sites) })
}

/// The levels of places that sites name, and the place of each site at each level.
fn places(sites: &[Site]) -> Topology {
    // All sites that name levels name the same ones.
    let levels: Vec<String> = sites
        .iter()
        .map(|site| site.places.iter().map(|place| place.level.clone()).collect::<Vec<_>>())
        .max_by_key(Vec::len)
        .unwrap_or_default();
    let placed = sites.iter().filter(|site| site.places.len() == levels.len() && !levels.is_empty());
    let place = |site: &Site| SitePlace {
        site: site.name.clone(),
        places: site.places.iter().map(|place| place.name.clone()).collect(),
    };
    Topology { sites: placed.map(place).collect(), levels, ..Topology::default() }
}

/// What was measured between these sites. Measurements in both directions make one entry.
fn measured(sites: &BTreeSet<String>, paths: &[PathReport]) -> Vec<SitePath> {
    let mut pairs: BTreeMap<(String, String), SitePath> = BTreeMap::new();
    for report in paths.iter().filter(|report| report.failure.is_empty() && report.round_trip_us > 0) {
        let (from, to) = (site(&report.from), site(&report.to));
        if from == to || !sites.contains(from) || !sites.contains(to) {
            continue;
        }
        let key = (from.min(to).to_owned(), from.max(to).to_owned());
        // One connection carries no more than the worse way.
        let rate = report.sent_bytes_per_second.min(report.received_bytes_per_second);
        let new = SitePath {
            from: key.0.clone(),
            to: key.1.clone(),
            round_trip_us: report.round_trip_us,
            bytes_per_second: rate,
        };
        pairs
            .entry(key)
            .and_modify(|old| {
                old.round_trip_us = old.round_trip_us.min(new.round_trip_us);
                old.bytes_per_second = old.bytes_per_second.max(new.bytes_per_second);
            })
            .or_insert(new);
    }
    pairs.into_values().take(PATHS_MAX).collect()
}

/// Why a job can't go with the MPI library; `None` if it can. An agent of an earlier version
/// doesn't give the library to its ranks, and ranks of other nodes would wait for them.
pub(super) fn without_library(ready: &Ready, head: &str) -> Option<String> {
    let lacks = |node: &&HeldNode| !node.has_topology;
    let own = (!ready.has_topology).then_some(head);
    let all: Vec<&str> =
        own.into_iter().chain(ready.held.iter().filter(lacks).map(|node| node.node.as_str())).collect();
    (!all.is_empty()).then(|| {
        format!(
            "not started: the isthmus of {} is of before the library for MPI; upgrade it there, or give --no-coll",
            first(all.iter(), 0, NAMED_MAX)
        )
    })
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::Place;

    use super::*;

    fn path(from: &str, to: &str, round_trip_us: u64, rates: (u64, u64)) -> PathReport {
        PathReport {
            from: from.to_owned(),
            to: to.to_owned(),
            round_trip_us,
            sent_bytes_per_second: rates.0,
            received_bytes_per_second: rates.1,
            ..PathReport::default()
        }
    }

    #[test]
    fn the_two_ways_of_a_pair_are_one_path() {
        let sites = ["alpha", "beta"].map(str::to_owned).into();
        let failed = PathReport { failure: "no".to_owned(), ..path("n1.alpha", "n1.beta", 1, (1, 1)) };
        let all = [
            path("n2.beta", "n1.alpha", 10_700, (0, 0)),
            path("n1.alpha", "n1.beta", 10_600, (9, 7)),
            path("n1.alpha", "n1.gamma", 5, (1, 1)),
            path("n1.alpha", "n2.alpha", 5, (1, 1)),
            failed,
        ];
        let found = measured(&sites, &all);
        let lines: Vec<_> = found
            .iter()
            .map(|path| (path.from.as_str(), path.to.as_str(), path.round_trip_us, path.bytes_per_second))
            .collect();
        assert_eq!(lines, [("alpha", "beta", 10_600, 7)]);
    }

    #[test]
    fn sites_without_places_are_left_out() {
        let at = |places: &[(&str, &str)]| {
            places
                .iter()
                .map(|(level, name)| Place { level: (*level).to_owned(), name: (*name).to_owned() })
                .collect()
        };
        let site = |name: &str, places| Site { name: name.to_owned(), places, ..Site::default() };
        let found = places(&[site("alpha", at(&[("region", "eu")])), site("beta", Vec::new())]);
        assert_eq!(found.levels, ["region"]);
        assert_eq!(found.sites, [SitePlace { site: "alpha".to_owned(), places: vec!["eu".to_owned()] }]);
        assert_eq!(places(&[site("beta", Vec::new())]), Topology::default());
    }

    #[test]
    fn an_agent_of_before_is_named() {
        let held = |node: &str, has_topology| HeldNode {
            node: node.to_owned(),
            has_topology,
            ..HeldNode::default()
        };
        let ready = |has_topology, held| Ready { has_topology, held, ..Ready::default() };
        assert_eq!(without_library(&ready(true, vec![held("n2.a", true)]), "n1.a"), None);
        let text = without_library(&ready(false, vec![held("n2.a", false), held("n3.a", true)]), "n1.a");
        assert!(text.unwrap().contains("the isthmus of n1.a, n2.a is of before"));
    }
}
