//! Cases made by hand.

use std::time::Duration;

use isthmus_profile::{Group, Link, Needs, Profile};

use crate::testing::{apart, class, group, later, linked, offer, profile, site, split, tag, within};
use crate::{NodeClass, Offer, Refusal, Score, Site, place};

const LONG: Duration = Duration::from_secs(600);

/// Shares as `site.class: nodes x / ranks`, of each group.
fn placed(profile: &Profile, offer: &Offer) -> (Vec<String>, Score) {
    let placement = place(profile, offer, LONG).unwrap();
    assert!(placement.best);
    let groups = placement.groups.iter().map(|group| {
        let shares = group.shares.iter().map(|share| {
            let site = &offer.sites[share.site].name;
            format!("{site}.{}: {}/{}", share.class, share.nodes, share.ranks)
        });
        shares.collect::<Vec<_>>().join(", ")
    });
    (groups.collect(), placement.score)
}

fn score(traffic: u64, ranks: u64, minutes: u64) -> Score {
    Score { traffic, ranks, start: Some(Duration::from_secs(60 * minutes)) }
}

/// Three sites with 4, 3 and 2 nodes of 8 cores each.
fn three() -> Vec<Site> {
    vec![site("a", [class(4, 8)]), site("b", [class(3, 8)]), site("c", [class(2, 8)])]
}

fn gpu(class: NodeClass) -> NodeClass {
    NodeClass { tags: vec![tag("gpu")], ..class }
}

#[test]
fn groups_go_where_there_is_room_with_the_least_traffic() {
    for (name, groups, offer, shares, score) in [
        ("no groups", vec![], offer(three()), vec![], score(0, 0, 0)),
        ("one group", vec![group("g", 9, 9)], offer(three()), vec!["a.0: 2/9"], score(0, 9, 0)),
        (
            "as many ranks as there is room for",
            vec![group("g", 1, 99)],
            offer(three()),
            vec!["a.0: 4/32"],
            score(0, 32, 0),
        ),
        (
            "groups share a site",
            vec![group("g", 8, 8), group("h", 17, 17)],
            offer(three()),
            vec!["a.0: 1/8", "a.0: 3/17"],
            score(0, 25, 0),
        ),
        (
            "a group isn't split",
            vec![group("g", 24, 24), group("h", 24, 24)],
            offer(three()),
            vec!["a.0: 3/24", "b.0: 3/24"],
            score(48, 48, 0),
        ),
        (
            "a group that may be split isn't, if there is room",
            vec![split(group("g", 32, 40))],
            offer(three()),
            vec!["a.0: 4/32"],
            score(0, 32, 0),
        ),
        (
            "a group that may be split is at as few sites as possible",
            vec![split(group("g", 50, 50))],
            offer(three()),
            vec!["a.0: 4/32, b.0: 3/18"],
            score(100, 50, 0),
        ),
        (
            "nodes that can be had soon, for as many ranks",
            vec![group("g", 16, 16)],
            offer([site("a", [later(9, class(9, 8)), later(5, class(9, 8)), later(3, class(1, 8))])]),
            vec!["a.1: 2/16"],
            score(0, 16, 5),
        ),
        (
            "more ranks rather than an early start",
            vec![group("g", 8, 16)],
            offer([site("a", [class(1, 8)]), site("b", [later(60, class(2, 8))])]),
            vec!["b.0: 2/16"],
            score(0, 16, 60),
        ),
        (
            "nodes with tags, and the others for whom needs none",
            vec![
                group("g", 8, 8),
                Group { needs: Needs { tags: vec![tag("gpu")], ..Needs::default() }, ..group("h", 8, 8) },
            ],
            offer([site("a", [gpu(class(1, 8)), class(1, 8)])]),
            vec!["a.1: 1/8", "a.0: 1/8"],
            score(0, 16, 0),
        ),
    ] {
        let got = placed(&profile(groups), &offer);
        assert_eq!(got, (shares.into_iter().map(str::to_owned).collect(), score), "{name}");
    }
}

#[test]
fn a_group_may_be_at_very_many_sites() {
    let sites = (0..1200).map(|index| site(&format!("s{index}"), [class(1, 1)]));
    let (offer, ranks) = (offer(sites), 900);
    let placement = place(&profile([split(group("g", ranks, ranks))]), &offer, LONG).unwrap();
    assert!(placement.best);
    assert_eq!(placement.groups[0].shares.len(), 900);
    // The group, which is the whole job.
    assert_eq!(placement.score, score(2 * 900 * 899, 900, 0));
}

#[test]
fn the_network_decides() {
    let sites = || offer(three());
    let groups = || [group("g", 24, 24), group("h", 16, 16)];
    for (name, between, offer, shares) in [
        (
            "the two that are near enough",
            vec![apart("g", "h", within(2))],
            linked(sites(), &[(0, 1, 9), (0, 2, 9), (1, 2, 2)]),
            vec!["b.0: 3/24", "c.0: 2/16"],
        ),
        (
            "what isn't known isn't near",
            vec![apart("g", "h", within(2))],
            linked(sites(), &[(0, 2, 1)]),
            vec!["a.0: 3/24", "c.0: 2/16"],
        ),
    ] {
        let got = placed(&Profile { between, ..profile(groups()) }, &offer);
        // The whole job, and the pair.
        let wanted = (shares.into_iter().map(str::to_owned).collect(), score(40 + 40, 40, 0));
        assert_eq!(got, wanted, "{name}");
    }
    // Who is named in a pair is put together rather than others.
    let asked = Profile {
        between: vec![apart("g", "i", Link::default())],
        ..profile([group("g", 8, 8), group("h", 8, 8), group("i", 8, 8)])
    };
    let two = offer([site("a", [class(2, 8)]), site("b", [class(1, 8)])]);
    let shares = ["a.0: 1/8", "b.0: 1/8", "a.0: 1/8"].map(str::to_owned).to_vec();
    assert_eq!(placed(&asked, &two), (shares, score(24, 24, 0)));
    // A group that isn't split needs a site whose own network is as asked.
    let mut slow = offer([site("a", [class(9, 8)]), site("b", [class(1, 8)])]);
    slow.sites[0].inside = within(3);
    let asked = profile([Group { inside: within(1), ..group("g", 4, 4) }]);
    assert_eq!(placed(&asked, &slow).0, ["b.0: 1/4"]);
}

#[test]
fn what_keeps_no_rule_is_refused() {
    let pair = |a, b| Profile {
        between: vec![apart(a, b, within(1))],
        ..profile([group("g", 1, 1), group("h", 1, 1)])
    };
    let many = (0..65).map(|index| group(&format!("g{index}"), 1, 1));
    for (name, profile, sites, words) in [
        ("two of one name", profile([group("g", 1, 1), group("g", 1, 1)]), 1, "have the name g"),
        ("no ranks", profile([group("g", 0, 1)]), 1, "g has 0 to 1 ranks"),
        ("an empty range", profile([group("g", 2, 1)]), 1, "g has 2 to 1 ranks"),
        ("a pair with nobody", pair("g", "x"), 1, "no group of that name"),
        ("a pair with itself", pair("g", "g"), 1, "twice"),
        ("too many groups", profile(many), 1, "too many groups: 65, but 64"),
        ("too many sites", pair("g", "h"), 4097, "too many sites: 4097, but 4096"),
    ] {
        let sites = (0..sites).map(|index| site(&format!("s{index}"), [class(9, 9)]));
        let refused = place(&profile, &offer(sites), LONG).unwrap_err().to_string();
        assert!(refused.contains(words), "{name}: {refused}");
    }
    let classes = vec![class(1, 1); 65];
    let refused = place(&pair("g", "h"), &offer([site("s", classes)]), LONG).unwrap_err();
    assert!(matches!(refused, Refusal::TooMany { count: 65, most: 64, .. }), "{refused}");
    let late = place(&pair("g", "h"), &offer(three()), Duration::ZERO).unwrap_err();
    assert_eq!(late, Refusal::OutOfTime { limit: Duration::ZERO });
}
