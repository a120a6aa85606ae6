//! What the groups got, in words: pure.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_common::quantity::{BitRate, Delay};
use isthmus_front::format::count;
use isthmus_matching::{Links, Offer};
use isthmus_profile::launch::Share;
use isthmus_profile::{Link, Profile};
use isthmus_wire::text::first;

use super::shares::{Part, Parts};

/// Most nodes, or pairs of sites, that a line names.
const NAMED: usize = 8;

/// A line for each group, and one for the networks between the sites in use.
pub(super) fn got(profile: &Profile, nodes: &[Vec<Share>], offer: &Offer) -> String {
    let mut lines: Vec<String> = profile
        .groups
        .iter()
        .zip(nodes)
        .map(|(group, shares)| format!("{}: {}", group.name, of_group(shares)))
        .collect();
    let place = |name: &str| offer.sites.iter().position(|site| site.name.as_str() == name);
    let mut used: Vec<usize> =
        nodes.iter().flatten().filter_map(|share| place(share.node.site.as_str())).collect();
    used.sort_unstable();
    used.dedup();
    let pairs: Vec<String> = used
        .iter()
        .flat_map(|a| used.iter().filter(move |b| a < *b).map(move |b| (*a, *b)))
        .map(|(a, b)| between(offer, &offer.links, (a, b)))
        .collect();
    if !pairs.is_empty() {
        lines.push(first(pairs.iter(), 0, NAMED));
    }
    lines.join("\n")
}

/// A line for each part of each group: on which nodes it would be, and when. `starts` has that for each
/// order, in words.
pub(super) fn planned(profile: &Profile, parts: &Parts, starts: &[String]) -> String {
    let mut lines = String::new();
    for (group, parts) in profile.groups.iter().zip(&parts.groups) {
        for part in parts {
            let (ranks, nodes) = match part {
                Part::Standing { nodes, ranks } => (*ranks, first(nodes.iter(), 0, NAMED)),
                Part::Ordered { order, ranks } => (*ranks, starts.get(*order).cloned().unwrap_or_default()),
            };
            lines += &format!("{}: {} on {nodes}\n", group.name, count(ranks.into(), "rank"));
        }
    }
    lines
}

/// `7 ranks at beta on n1.beta (4), n2.beta (3)`
fn of_group(shares: &[Share]) -> String {
    let mut sites: BTreeMap<&str, Vec<&Share>> = BTreeMap::new();
    for share in shares {
        sites.entry(share.node.site.as_str()).or_default().push(share);
    }
    let each = sites.into_iter().map(|(site, shares)| {
        let ranks = shares.iter().map(|share| u64::from(share.ranks.get())).sum();
        let nodes = shares.iter().map(|share| format!("{} ({})", share.node, share.ranks));
        format!("{} at {site} on {}", count(ranks, "rank"), first(nodes, 0, NAMED))
    });
    each.collect::<Vec<_>>().join("; ")
}

fn between(offer: &Offer, links: &Links, (a, b): (usize, usize)) -> String {
    let name = |place: usize| offer.sites.get(place).map_or("", |site| site.name.as_str());
    let Link { rtt, bytes_per_second } = links.between(a, b);
    let nanos = |rtt: Duration| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
    let rtt = rtt.map(|rtt| Delay(nanos(rtt)).to_string());
    let rate = bytes_per_second.map(|bytes| BitRate(rounded(bytes.saturating_mul(8))).to_string());
    let known: Vec<String> = rtt.into_iter().chain(rate).collect();
    let known = if known.is_empty() { "not measured".to_owned() } else { known.join(" and ") };
    format!("{known} between {} and {}", name(a), name(b))
}

/// A number with its first three digits.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or_default().saturating_sub(2));
    number / unit * unit
}

#[cfg(test)]
mod tests {
    use isthmus_matching::Site;

    use super::*;

    #[test]
    fn groups_are_told_with_what_was_got() {
        let text = "[[group]]\nname = 'a'\nranks = 1\n[[group]]\nname = 'b'\nranks = 7\n";
        let profile = Profile::parse(text, "job.toml").unwrap();
        let share =
            |node: &str, ranks: u32| Share { node: node.parse().unwrap(), ranks: ranks.try_into().unwrap() };
        let nodes = [vec![share("n1.x", 1)], vec![share("n1.y", 4), share("n2.y", 3)]];
        let site =
            |name: &str| Site { name: name.parse().unwrap(), inside: Link::default(), classes: Vec::new() };
        let mut links = Links::unknown(2);
        let known = Link { rtt: Some(Duration::from_micros(10_600)), bytes_per_second: Some(12_512_345) };
        links.set(0, 1, known);
        let mut offer = Offer { sites: vec![site("x"), site("y")], links };
        assert_eq!(
            got(&profile, &nodes, &offer),
            "a: 1 rank at x on n1.x (1)\nb: 7 ranks at y on n1.y (4), n2.y (3)\n\
             10.6 ms and 100 Mbit/s between x and y"
        );
        offer.links = Links::unknown(2);
        assert!(got(&profile, &nodes, &offer).ends_with("\nnot measured between x and y"));
        assert_eq!(got(&profile, &nodes[..1], &offer), "a: 1 rank at x on n1.x (1)");
    }
    #[test]
    fn what_would_be_is_told() {
        let text = "[[group]]\nname = 'a'\nranks = 1\n[[group]]\nname = 'b'\nranks = 7\n";
        let profile = Profile::parse(text, "job.toml").unwrap();
        let groups = vec![
            vec![Part::Standing { nodes: vec!["n1.x".to_owned()], ranks: 1 }],
            vec![Part::Ordered { order: 0, ranks: 7 }],
        ];
        let parts = Parts { orders: Vec::new(), groups };
        let starts = ["2 nodes with 4 cores of Slurm at y: at once".to_owned()];
        assert_eq!(
            planned(&profile, &parts, &starts),
            "a: 1 rank on n1.x\nb: 7 ranks on 2 nodes with 4 cores of Slurm at y: at once\n"
        );
    }
}
