//! Who starts where, and how pilots end.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::SystemTime;

use super::Host;
use super::parse::{Looked, OnHost};
use super::record::{self, Answers, Record};
use crate::{End, Estimate, Request, State};

fn host(address: &str, pilots: u32, tags: &[&str]) -> Host {
    let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
    Host { address: address.parse().unwrap(), pilots, tags }
}

fn answer(cores: u32, pilots: &[(u64, OnHost)]) -> Option<Looked> {
    Some(Looked { cores, memory_bytes: 1 << 30, pilots: pilots.iter().cloned().collect() })
}

fn record(number: u64, nodes: u32, cores: u32, tags: &[&str]) -> Record {
    let request = Request {
        cores: NonZeroU32::new(cores),
        tags: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        ..Request::of(NonZeroU32::new(nodes).unwrap())
    };
    Record::new(number, &request, "true")
}

fn running(number: u64, hosts: &[&str]) -> Record {
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    Record { hosts, started: Some(100), seconds: Some(60), ..record(number, 1, 1, &[]) }
}

fn answers(of: &[(&str, Option<Looked>)]) -> Answers {
    of.iter().map(|(address, answer)| ((*address).to_owned(), answer.clone())).collect()
}

#[test]
fn pilots_go_to_hosts_that_answer_and_have_room_and_what_is_asked_for() {
    let hosts =
        [host("a", 1, &[]), host("b", 2, &["gpu"]), host("c", 1, &["gpu", "ib"]), host("d", 9, &["gpu"])];
    let looked = answers(&[("a", answer(4, &[])), ("b", answer(4, &[])), ("c", answer(8, &[])), ("d", None)]);
    let places = |asked: &Record, all: &[Record]| {
        record::places(asked, &hosts, &looked, all).map(|places| places.join(""))
    };
    let (one, two) = (running(1, &["a"]), running(2, &["b"]));
    for (asked, all, want) in [
        (record(9, 3, 1, &[]), &[][..], Some("abc")),
        (record(9, 2, 1, &[]), &[one.clone(), two.clone()], Some("bc")),
        (record(9, 2, 1, &["gpu"]), &[two.clone(), two.clone()], None),
        (record(9, 1, 8, &[]), &[], Some("c")),
        (record(9, 1, 1, &["ib", "gpu"]), &[], Some("c")),
        (record(9, 1, 1, &["x"]), &[], None),
        (record(9, 4, 1, &[]), &[], None),
    ] {
        assert_eq!(places(&asked, all).as_deref(), want, "{asked:?}");
    }
    let estimate = |asked: &Record, all: &[Record]| {
        record::estimate(asked, SystemTime::UNIX_EPOCH, &hosts, &looked, all)
    };
    assert_eq!(estimate(&record(9, 3, 1, &[]), &[]), Estimate::At(SystemTime::UNIX_EPOCH));
    assert!(matches!(estimate(&record(9, 3, 1, &[]), std::slice::from_ref(&one)), Estimate::Unknown { .. }));
    assert!(matches!(estimate(&record(9, 1, 1, &[]), &[record(8, 3, 1, &[])]), Estimate::Unknown { .. }));
    assert!(matches!(estimate(&record(9, 4, 1, &[]), &[]), Estimate::Never { .. }));

    let classes = record::capacity(&hosts, &looked, &[one]);
    let counts: Vec<_> =
        classes.iter().map(|class| (class.nodes, class.nodes_free, class.cores_free)).collect();
    assert_eq!(counts, [(1, 0, 0), (1, 1, 4), (1, 1, 8)]);
}

#[test]
fn a_pilot_ends_when_it_has_ended_on_each_host() {
    let ended = |end| OnHost::Ended(end);
    let failed = End::Failed { status: 3, signal: 0 };
    for (a, b, want) in [
        (OnHost::Running, OnHost::Running, None),
        (OnHost::Running, ended(failed.clone()), None),
        (ended(End::Completed), ended(End::Completed), Some(End::Completed)),
        (ended(End::Completed), ended(failed.clone()), Some(failed.clone())),
        (ended(End::TimeLimit), ended(failed.clone()), Some(failed)),
        (ended(End::Completed), ended(End::TimeLimit), Some(End::TimeLimit)),
        (ended(End::Completed), OnHost::Lost, Some(End::NodeFailure)),
    ] {
        let mut pilot = running(7, &["a", "b"]);
        let looked = answers(&[("a", answer(1, &[(7, a.clone())])), ("b", answer(1, &[(7, b.clone())]))]);
        pilot.heard(110, &looked);
        let found = match pilot.state(0, Vec::new()) {
            State::Ended(end) => Some(end),
            _ => None,
        };
        assert_eq!(found, want, "{a:?} {b:?}");
        assert_eq!(pilot.unclean.len(), if want.is_some() { 2 } else { 0 });
    }
}

#[test]
fn a_silent_host_is_waited_for() {
    let mut pilot = running(7, &["a"]);
    let silent = answers(&[("a", None)]);
    for now in [1000, 1200, 1299] {
        assert_eq!(pilot.heard(now, &silent), ["a"], "{now}");
    }
    // It was heard meanwhile.
    pilot.heard(1299, &answers(&[("a", answer(1, &[(7, OnHost::Running)]))]));
    assert_eq!(pilot.heard(1400, &silent), ["a"]);
    assert!(pilot.runs());
    pilot.heard(1700, &silent);
    assert_eq!(pilot.state(0, Vec::new()), State::Ended(End::NodeFailure));
    // A host that is no longer in the list, and one that doesn't know the pilot.
    for looked in [BTreeMap::new(), answers(&[("a", answer(1, &[]))])] {
        let mut pilot = running(7, &["a"]);
        pilot.heard(110, &looked);
        assert_eq!(pilot.state(0, Vec::new()), State::Ended(End::NodeFailure));
    }
}

#[test]
fn a_record_is_read_as_it_was_kept() {
    let mut pilot = running(7, &["a", "b"]);
    pilot.heard(100, &answers(&[("a", None), ("b", None)]));
    pilot.ended(120, &End::Cancelled { by: Some("ada".to_owned()) });
    let text = serde_json::to_string(&pilot).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), pilot);
    assert!(
        matches!(pilot.state(0, Vec::new()), State::Ended(End::Cancelled { by: Some(by) }) if by == "ada")
    );
    let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(160);
    let shown = running(7, &["a"]).state(0, vec!["a".to_owned()]);
    assert_eq!(shown, State::Running { nodes: vec!["a".to_owned()], end: Some(end) });
}
