//! How a node is seen from outside, between the wire form and that of
//! `isthmus-plan`.

use std::time::Duration;

use isthmus_plan::{Answers, Reach, Reachability};
use isthmus_wire::proto;

use crate::enums::{reachability_from_wire, reachability_to_wire};
use crate::probe::Outcome;

/// Whether an agent can be reached, as it is sent.
pub fn reach_to_wire(reach: &Reach) -> proto::Reach {
    proto::Reach {
        result: reachability_to_wire(reach.result).into(),
        address: reach.address.clone(),
        relay: reach.relay.clone(),
        detail: reach.detail.clone(),
    }
}

/// Whether an agent can be reached, as it was received.
pub fn reach_from_wire(reach: Option<&proto::Reach>) -> Reach {
    let Some(reach) = reach else { return Reach::default() };
    let result = reachability_from_wire(reach.result());
    Reach { result, address: reach.address.clone(), relay: reach.relay.clone(), detail: reach.detail.clone() }
}

/// Which ports outside have answered, as it is sent.
pub fn answers_to_wire(answers: Answers) -> proto::PortAnswers {
    let ports = |ports: Vec<u16>| ports.into_iter().map(u32::from).collect();
    proto::PortAnswers {
        relay: answers.relay,
        answered: ports(answers.answered),
        silent: ports(answers.silent),
    }
}

/// Which ports outside have answered, as it was received.
pub fn answers_from_wire(answers: &[proto::PortAnswers]) -> Vec<Answers> {
    let ports = |ports: &[u32]| ports.iter().filter_map(|port| u16::try_from(*port).ok()).collect();
    let one = |at: &proto::PortAnswers| Answers {
        relay: at.relay.clone(),
        answered: ports(&at.answered),
        silent: ports(&at.silent),
    };
    answers.iter().map(one).collect()
}

/// The part of a node's measurements whose change makes plans out of date. Times of day are left out,
/// and so are lengths of round trips: they change with each measurement, and a plan is made anew for
/// another reason before long. Whether a round trip is known stays.
pub fn for_plans(seen: Option<&proto::Seen>) -> proto::Seen {
    let mut seen = seen.cloned().unwrap_or_default();
    for sight in seen.relays.iter_mut().chain(&mut seen.gateways) {
        sight.round_trip_us = u64::from(round_trip(sight).is_some());
        sight.failure = String::new();
    }
    for sights in [&mut seen.relays, &mut seen.gateways] {
        sights.sort_by(|a, b| (&a.relay, &a.address).cmp(&(&b.relay, &b.address)));
    }
    proto::Seen { measured_unix_ms: 0, look_failure: String::new(), ..seen }
}

/// The round trip to a relay or gateway, if it was reached.
pub fn round_trip(sight: &proto::RelaySight) -> Option<Duration> {
    let reached = sight.failure.is_empty() && sight.round_trip_us > 0;
    reached.then(|| Duration::from_micros(sight.round_trip_us))
}

/// Judges a reach test at its target. `came` says that the relay's connection arrived there. Only
/// an arrival counts as reached, whatever the relay reports.
pub fn judge_probe(came: bool, reply: Option<Result<Outcome, String>>) -> (Reachability, String) {
    if came {
        return (Reachability::Reachable, String::new());
    }
    let outcome = match reply {
        Some(Ok(outcome)) => outcome,
        Some(Err(reason)) => return (Reachability::Unknown, reason),
        None => return (Reachability::Unknown, "the relay's report was lost".to_owned()),
    };
    match outcome {
        Outcome::Connected => (Reachability::Misdirected, "another service answers there".to_owned()),
        Outcome::Refused(detail) => (Reachability::Refused, detail),
        Outcome::NoAnswer(detail) => (Reachability::Filtered, detail),
        Outcome::NotDone(detail) => (Reachability::Unknown, detail),
        Outcome::Prepared(_) => {
            (Reachability::Unknown, "the relay prepared a port, and did not dial".to_owned())
        }
    }
}

/// The address at which other sites reach a node's agent though its site isn't open: the declared
/// address, or the measured one with `inbound = auto`. Empty if there is none.
pub fn let_in_at(declared: &str, inbound: proto::Inbound, seen: Option<&proto::Seen>) -> String {
    let found = seen.and_then(|seen| seen.outside.as_ref());
    match found {
        Some(found)
            if declared.is_empty()
                && inbound == proto::Inbound::Auto
                && found.result() == proto::Reachability::Reachable =>
        {
            found.address.clone()
        }
        Some(_) | None => declared.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaches_cross_the_wire() {
        for result in [
            Reachability::Unknown,
            Reachability::Reachable,
            Reachability::Filtered,
            Reachability::Refused,
            Reachability::Misdirected,
        ] {
            let reach = Reach { result, address: "a".into(), relay: "r".into(), detail: "d".into() };
            assert_eq!(reach_from_wire(Some(&reach_to_wire(&reach))), reach);
        }
    }

    #[test]
    fn a_measured_port_is_used_if_inbound_is_auto() {
        use proto::Inbound::{Auto, Closed};
        let seen = |result: proto::Reachability| proto::Seen {
            outside: Some(proto::Reach {
                result: result.into(),
                address: "192.0.2.1:7730".to_owned(),
                ..proto::Reach::default()
            }),
            ..proto::Seen::default()
        };
        let (reached, filtered) = (proto::Reachability::Reachable, proto::Reachability::Filtered);
        for (declared, inbound, result, want) in [
            ("", Auto, reached, "192.0.2.1:7730"),
            ("", Auto, filtered, ""),
            ("", Closed, reached, ""),
            ("gate:7731", Auto, reached, "gate:7731"),
            ("gate:7731", Closed, filtered, "gate:7731"),
        ] {
            assert_eq!(let_in_at(declared, inbound, Some(&seen(result))), want, "{declared} {inbound:?}");
        }
        assert_eq!(let_in_at("gate:7731", Auto, None), "gate:7731");
    }

    #[test]
    fn plans_depend_on_neither_clocks_nor_how_long_round_trips_are() {
        let seen = |relays: &[(&str, u64)], measured_unix_ms: u64| {
            let sight = |(relay, round_trip_us): &(&str, u64)| proto::RelaySight {
                relay: (*relay).to_owned(),
                round_trip_us: *round_trip_us,
                failure: if *round_trip_us == 0 { measured_unix_ms.to_string() } else { String::new() },
                ..proto::RelaySight::default()
            };
            let relays = relays.iter().map(sight).collect();
            for_plans(Some(&proto::Seen { relays, measured_unix_ms, ..proto::Seen::default() }))
        };
        let known = seen(&[("away", 0), ("hub", 7)], 1);
        assert_eq!(seen(&[("hub", 9), ("away", 0)], 2), known);
        assert_ne!(seen(&[("hub", 0), ("away", 0)], 2), known, "a relay isn't reached any more");
        assert_ne!(seen(&[("hub", 9)], 2), known);
        assert_eq!(for_plans(None), proto::Seen::default());
    }

    #[test]
    fn only_an_arrived_connection_counts_as_reached() {
        let (reply, detail) = (|outcome: Outcome| Some(Ok(outcome)), String::new);
        for (name, came, reply, want) in [
            ("it came before the relay's report", true, None, Reachability::Reachable),
            ("it came", true, reply(Outcome::Connected), Reachability::Reachable),
            ("another service accepted it", false, reply(Outcome::Connected), Reachability::Misdirected),
            ("refused", false, reply(Outcome::Refused(detail())), Reachability::Refused),
            ("dropped", false, reply(Outcome::NoAnswer(detail())), Reachability::Filtered),
            ("the relay wouldn't", false, reply(Outcome::NotDone(detail())), Reachability::Unknown),
            ("no relay", false, Some(Err("gone".to_owned())), Reachability::Unknown),
        ] {
            assert_eq!(judge_probe(came, reply).0, want, "{name}");
        }
    }
}
