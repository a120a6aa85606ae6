//! Jobs of 20 groups on 1,000 sites with 100,000 nodes find their places.
#![allow(clippy::expect_used, reason = "a test")]

#[path = "../examples/scale/grids.rs"]
mod grids;

use std::time::Duration;

use fastrand::Rng;
use isthmus_matching::{Refusal, place};

/// Kinds of jobs for which the best is known at once.
const QUICK: [&str; 2] = ["all at one site", "a site for each two groups"];

fn matched(name: &str, job: grids::Job, limit: Duration) {
    let mut random = Rng::with_seed(0);
    let offer = grids::offer(&mut random);
    let nodes = offer.sites.iter().flat_map(|site| &site.classes).map(|class| class.nodes);
    assert_eq!((offer.sites.len(), nodes.sum::<u32>()), (1000, 100_000));
    let profile = job(&mut random);
    assert_eq!(profile.groups.len(), 20);
    let outcome = place(&profile, &offer, limit);
    let impossible = matches!(outcome, Err(Refusal::Impossible(_)));
    assert_eq!(impossible, name == "nowhere near enough", "{name}: {outcome:?}");
    assert!(impossible || outcome.is_ok(), "{name}: {outcome:?}");
}

#[test]
fn large_grids_are_matched() {
    for (name, job) in grids::KINDS.into_iter().filter(|(name, _)| QUICK.contains(name)) {
        matched(name, job, Duration::from_secs(600));
    }
}

#[test]
#[ignore = "test-all"]
fn large_grids_are_matched_for_all_jobs() {
    for (name, job) in grids::KINDS {
        matched(name, job, Duration::from_secs(30));
    }
}
