//! Plans as a table.

mod parts;
mod reasons;

use super::*;
use crate::ways::Path;

/// An end at `site`, with the facts that `words` name.
fn end(site: &str, words: &str) -> EndFacts {
    let mut end = EndFacts {
        site: site.to_owned(),
        inbound: Inbound::Closed,
        port_let_in: false,
        mapping: Mapping::Unknown,
        filtering: Filtering::Unknown,
        own: Reach::default(),
        outside: Reach::default(),
        attached: true,
        can_traverse: false,
        way_out: WayOut::Yes,
        gateway_let_in: false,
        gateway: Reach::default(),
        gateway_mapping: Mapping::Unknown,
        site_trunk: false,
        met: false,
        may_be_open: false,
        egress: Vec::new(),
        ports: Ports { agent: Some(7730), let_in: Some(7731), gateway: Some(7740) },
    };
    for word in words.split(' ') {
        match word {
            "closed" => {}
            "open" => end.inbound = Inbound::Open,
            "port" => end.port_let_in = true,
            "firewall" => end.mapping = Mapping::Untranslated,
            "nat" => end.mapping = Mapping::EndpointIndependent,
            "symmetric" => end.mapping = Mapping::PortDependent,
            "stateless" => end.filtering = Filtering::Stateless,
            "stateful" => end.filtering = Filtering::PortDependent,
            "auto" => end.inbound = Inbound::Auto,
            "reached" => end.own = reach(Reachability::Reachable, "192.0.2.2:7730", ""),
            "filtered" => end.own = reach(Reachability::Filtered, "192.0.2.2:7730", "no answer within 3 s"),
            "taken" => {
                end.outside =
                    reach(Reachability::Misdirected, "192.0.2.9:7731", "another service answers there");
            }
            "away" => end.attached = false,
            "raw" => end.can_traverse = true,
            "enclosed" => end.way_out = WayOut::No,
            "untried" => end.way_out = WayOut::Unknown,
            "gate" => end.gateway_let_in = true,
            "shut" => {
                end.gateway = reach(Reachability::Filtered, "192.0.2.9:7740", "no answer within 3 s");
            }
            "trunk" => end.site_trunk = true,
            "known" => end.gateway_mapping = Mapping::EndpointIndependent,
            "met" => end.met = true,
            "public" => end.may_be_open = true,
            // The ports that its site lets out to.
            "all" => end.egress = answers(&[443, 7730, 7740, 61_001], &[]),
            "web" => end.egress = answers(&[443], &[7730, 7740, 61_001]),
            other => panic!("{other}"),
        }
    }
    end
}

fn answers(answered: &[u16], silent: &[u16]) -> Vec<Answers> {
    vec![Answers { relay: "hub".to_owned(), answered: answered.to_vec(), silent: silent.to_vec() }]
}

fn reach(result: Reachability, address: &str, detail: &str) -> Reach {
    let text = str::to_owned;
    Reach { result, address: text(address), relay: text("hub"), detail: text(detail) }
}

/// The dials of a plan, each with its route unless the route is end-to-end.
fn dials(plan: &Plan) -> String {
    let way = |step: &Step| match step.route {
        Route::EndToEnd => step.dial.to_string(),
        route => format!("{}/{route}", step.dial),
    };
    plan.steps.iter().map(way).collect::<Vec<_>>().join(" ")
}

fn reason(plan: &Plan, dial: Dial) -> &Reason {
    reason_over(plan, Route::EndToEnd, dial)
}

fn reason_over(plan: &Plan, route: Route, dial: Dial) -> &Reason {
    let way = (route, dial);
    let left_out = plan.left_out.iter().find(|left| (left.route, left.dial) == way);
    let step = plan.steps.iter().find(|step| (step.route, step.dial) == way);
    left_out.map(|left| &left.reason).or(step.map(|step| &step.reason)).unwrap()
}

/// Why the plan has the trunk of the gateways, or why not.
fn site_trunk_reason(plan: &Plan) -> &Reason {
    let way = plan.ways.iter().find(|way| way.transport == Transport::SiteTrunk);
    way.map_or_else(|| reason_over(plan, Route::TwoGateway, Dial::Trunk), |way| &way.reason)
}

fn alpha() -> String {
    "alpha".to_owned()
}

fn beta() -> String {
    "beta".to_owned()
}

const UNMEASURED: RoundTrips =
    RoundTrips { relay: None, to_acceptors_gateway: None, to_initiators_gateway: None };
const PAIR: PairFacts = PairFacts {
    trusted: false,
    relays: 1,
    gateways_join_none: false,
    forbidden: Forbidden::NOTHING,
    round_trips: UNMEASURED,
    pin: None,
    path: Path { rtt: None, loss_ppm: None },
};

#[test]
fn ways_in_their_order() {
    for (initiator, acceptor, relays, want) in [
        ("closed", "open", 2, "direct relay"),
        ("open", "closed", 1, "reverse relay"),
        ("open firewall", "nat", 1, "reverse punch relay"),
        ("open firewall", "open firewall", 1, "direct reverse punch relay"),
        ("nat", "port nat", 1, "port-range punch relay"),
        ("port symmetric", "symmetric", 1, "reverse relay"),
        ("nat", "nat", 1, "punch relay"),
        ("firewall", "nat", 1, "punch relay"),
        ("symmetric", "nat", 1, "relay"),
        ("nat", "symmetric", 1, "relay"),
        ("nat", "closed", 1, "relay"),
        ("nat", "nat", 0, ""),
        ("open", "closed", 0, "reverse"),
        ("closed", "closed away", 1, ""),
        ("firewall raw", "firewall raw", 1, "punch traverse relay"),
        ("nat raw", "firewall raw", 1, "punch traverse relay"),
        ("open firewall raw", "firewall raw", 1, "reverse punch traverse relay"),
        ("firewall raw", "firewall raw", 0, "traverse"),
        ("nat raw", "firewall raw", 0, ""),
        ("symmetric raw", "firewall raw", 1, "relay"),
        ("firewall raw stateless", "firewall raw stateless", 1, "traverse relay"),
        ("firewall raw", "firewall raw stateful", 1, "punch relay"),
        ("nat raw", "firewall raw open filtered", 1, "punch traverse relay"),
        ("firewall raw", "nat raw", 1, "punch relay"),
        ("firewall raw", "open firewall raw", 1, "direct punch relay"),
        ("firewall raw", "firewall", 1, "punch relay"),
        ("firewall", "firewall raw", 1, "punch relay"),
        ("firewall raw", "firewall raw away", 1, ""),
        ("open", "closed away", 1, ""),
        ("nat", "open nat reached", 1, "direct punch relay"),
        ("nat", "open nat filtered", 1, "punch relay"),
        ("open nat filtered", "nat", 1, "punch relay"),
        ("nat", "auto nat reached", 1, "direct punch relay"),
        ("auto nat reached", "nat", 1, "reverse punch relay"),
        ("nat", "auto nat filtered", 1, "punch relay"),
        ("nat", "auto nat", 1, "punch relay"),
        ("nat", "closed nat reached", 1, "punch relay"),
        ("nat", "port open nat filtered", 1, "port-range punch relay"),
        ("nat", "port taken nat", 1, "punch relay"),
        ("port taken nat", "nat", 1, "punch relay"),
        ("firewall stateless", "firewall stateless", 1, "relay"),
        ("firewall stateless", "firewall stateful", 1, "punch relay"),
        ("firewall stateless", "firewall", 1, "punch relay"),
        // An earlier connection between the sites counts for more than a relay's
        // attempt, and for less than policy.
        ("nat", "open nat filtered met", 1, "direct punch relay"),
        ("open nat filtered met", "nat", 1, "reverse punch relay"),
        ("nat", "auto nat filtered met", 1, "direct punch relay"),
        ("nat", "closed nat filtered met", 1, "punch relay"),
        ("nat", "auto nat met", 1, "punch relay"),
        ("nat", "open nat away", 1, "direct"),
        // Without relays nobody has tried whether a public address is let in.
        ("nat", "auto public", 0, "direct"),
        ("auto public", "nat", 0, "reverse"),
        ("auto public", "auto public", 0, "direct reverse"),
        ("nat", "port auto public", 0, "port-range direct"),
        ("port auto public", "nat", 0, "reverse"),
        ("nat", "closed public", 0, ""),
        ("nat", "auto public enclosed", 0, ""),
        ("nat", "auto public met", 0, "direct"),
        ("nat", "port auto public met", 0, "direct port-range"),
        ("nat", "port nat away", 1, "port-range"),
    ] {
        let pair = PairFacts { relays, ..PAIR };
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        assert_eq!(dials(&plan), want, "{initiator} to {acceptor}, {relays} relays");
        assert_eq!(plan.steps.len() + plan.left_out.len(), 17, "each way is in it or left out");
        assert!(plan.encrypted);
    }
}

#[test]
fn ways_over_gateways() {
    for (initiator, acceptor, relays, want) in [
        // A gateway stands in for a node that can't dial out.
        ("enclosed", "open", 1, "direct/gateway-out relay/gateway-out"),
        ("enclosed", "port nat", 1, "port-range/gateway-out relay/gateway-out"),
        ("enclosed", "nat", 1, "relay/gateway-out"),
        ("enclosed", "nat", 0, ""),
        ("open", "enclosed", 1, "reverse/one-gateway relay/one-gateway"),
        ("port nat", "enclosed", 0, "reverse/one-gateway"),
        ("nat", "enclosed", 1, "relay/one-gateway"),
        ("enclosed", "enclosed", 1, "relay/two-gateway"),
        // A gateway that can be reached needs no relay.
        ("nat", "nat gate", 0, "direct/one-gateway"),
        ("nat gate", "nat", 0, "reverse/gateway-out"),
        ("nat gate", "nat gate", 0, "direct/one-gateway reverse/gateway-out"),
        ("nat", "nat gate", 1, "punch direct/one-gateway relay"),
        ("symmetric gate", "symmetric", 1, "reverse/gateway-out relay"),
        ("nat", "enclosed gate", 1, "direct/one-gateway relay/one-gateway"),
        ("enclosed gate", "nat", 1, "reverse/gateway-out relay/gateway-out"),
        ("enclosed", "enclosed gate", 0, "direct/two-gateway"),
        ("enclosed gate", "enclosed", 0, "reverse/two-gateway"),
        ("enclosed gate", "enclosed gate", 1, "direct/two-gateway reverse/two-gateway relay/two-gateway"),
        ("open", "enclosed gate", 0, "direct/one-gateway reverse/one-gateway"),
        ("enclosed gate", "open gate", 0, "direct/gateway-out reverse/gateway-out"),
        // Nodes that can be reached need no gateway.
        ("nat", "open gate", 1, "direct relay"),
        ("open gate", "nat", 1, "reverse relay"),
        // A port that was tried and not reached is none.
        ("nat", "nat gate shut", 1, "punch relay"),
        ("nat gate shut", "nat", 1, "punch relay"),
        ("nat gate shut", "nat gate", 0, "direct/one-gateway"),
        ("enclosed", "enclosed gate shut", 1, "relay/two-gateway"),
        // The way out is unknown: the first steps are as if there were a way out.
        ("untried", "open", 0, "direct direct/gateway-out"),
        ("untried", "untried", 1, "relay relay/one-gateway relay/gateway-out relay/two-gateway"),
        // The broker can't order the acceptor, or its gateway, to dial.
        ("nat", "nat gate away", 1, ""),
        ("nat gate", "nat away", 1, ""),
        ("enclosed", "open away", 1, "direct/gateway-out"),
    ] {
        let found = plan(&end("alpha", initiator), &end("beta", acceptor), &PairFacts { relays, ..PAIR });
        assert_eq!(dials(&found), want, "{initiator} to {acceptor}, {relays} relays");
    }
}

#[test]
fn ways_over_the_trunk_of_two_sites() {
    let words = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>();
    let never = |text| Forbidden::never(&words(text));
    let only = |text| Forbidden::all_but(&words(text));
    let (initiator_site, acceptor_site) = (alpha(), beta());
    let no_carrier = Reason::NoCarrier { initiator: initiator_site.clone(), acceptor: acceptor_site.clone() };
    let forbidden = Reason::Forbidden { initiator: initiator_site, acceptor: acceptor_site };
    let off = |site: String| Reason::NoSiteTrunk { site };
    let on = Reason::GatewaysTrunk;
    for (initiator, acceptor, relays, policy, want) in [
        ("nat trunk", "nat trunk", 1, Forbidden::NOTHING, on.clone()),
        ("nat trunk gate", "nat trunk", 0, Forbidden::NOTHING, on.clone()),
        ("nat trunk", "nat trunk gate", 0, Forbidden::NOTHING, on.clone()),
        ("enclosed trunk", "enclosed trunk gate", 0, Forbidden::NOTHING, on.clone()),
        ("nat trunk", "nat", 1, Forbidden::NOTHING, off(beta())),
        ("nat", "nat trunk", 1, Forbidden::NOTHING, off(alpha())),
        ("nat trunk", "nat trunk away", 1, Forbidden::NOTHING, Reason::Detached { site: beta() }),
        ("nat trunk away", "nat trunk", 1, Forbidden::NOTHING, Reason::Detached { site: alpha() }),
        ("nat trunk", "nat trunk", 0, Forbidden::NOTHING, no_carrier.clone()),
        ("nat trunk gate shut", "nat trunk gate shut", 0, Forbidden::NOTHING, no_carrier.clone()),
        // Policy names the trunk, its route, or the dials of its carriers.
        ("nat trunk", "nat trunk", 1, never("trunk"), forbidden.clone()),
        ("nat trunk", "nat trunk", 1, never("two-gateway"), forbidden.clone()),
        ("nat trunk", "nat trunk", 1, only("relay"), forbidden),
        ("nat trunk", "nat trunk", 1, only("trunk"), on.clone()),
        ("nat trunk", "nat trunk", 1, only("two-gateway"), on.clone()),
        ("nat trunk", "nat trunk", 1, never("relay"), no_carrier.clone()),
        ("nat trunk", "nat trunk gate", 1, never("relay"), on.clone()),
        ("nat trunk", "nat trunk gate", 1, only("relay trunk"), on),
        ("nat trunk", "nat trunk gate", 0, only("relay trunk"), no_carrier.clone()),
        // Both gateways' ports are known outside.
        ("nat trunk known", "nat trunk known", 1, never("relay"), Reason::GatewaysTrunk),
        ("nat trunk known", "nat trunk", 1, never("relay"), no_carrier.clone()),
        ("nat trunk known", "nat trunk known", 1, never("punch relay"), no_carrier),
    ] {
        let pair = PairFacts { relays, forbidden: policy, ..PAIR };
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        let what = format!("{initiator} to {acceptor}, {relays} relays, {policy:?}");
        let is_planned = want == Reason::GatewaysTrunk;
        assert_eq!(*site_trunk_reason(&plan), want, "{what}");
        assert_eq!(plan.has_site_trunk(), is_planned, "{what}");
        let by_agents = (Transport::Trunk, Encryption::Agents);
        let ways: Vec<_> = plan.ways.iter().map(|way| (way.transport, way.transport.encryption())).collect();
        let first = is_planned.then_some((Transport::SiteTrunk, Encryption::Gateways));
        assert_eq!(ways, first.into_iter().chain([by_agents]).collect::<Vec<_>>(), "{what}");
        assert!(plan.takes_site_trunk || !plan.has_site_trunk(), "{what}");
        assert!(plan.steps.iter().all(|step| step.dial != Dial::Trunk), "{what}");
    }
    let trusted = PairFacts { trusted: true, ..PAIR };
    let plan = plan(&end("alpha", "nat trunk"), &end("beta", "open trunk gate"), &trusted);
    let raw = Reason::RawAnyway { initiator: alpha(), acceptor: beta() };
    assert_eq!(*site_trunk_reason(&plan), raw);
    assert_eq!((dials(&plan).as_str(), plan.ways[0].transport), ("direct relay", Transport::Socket));
}

#[test]
fn gateways_dial_each_other_along_a_plan_of_their_own() {
    let words = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>();
    let never = |text| Forbidden::never(&words(text));
    for (initiator, acceptor, relays, policy, want) in [
        ("open firewall trunk", "open nat trunk", 1, Forbidden::NOTHING, "direct reverse punch relay"),
        ("nat trunk", "open nat trunk", 0, Forbidden::NOTHING, "direct"),
        ("open nat trunk", "nat trunk", 0, Forbidden::NOTHING, "reverse"),
        ("nat trunk", "nat trunk", 1, Forbidden::NOTHING, "punch relay"),
        ("nat trunk", "symmetric trunk", 1, Forbidden::NOTHING, "relay"),
        ("nat trunk", "open filtered nat trunk", 1, Forbidden::NOTHING, "punch relay"),
        ("nat trunk", "open nat trunk", 1, never("direct end-to-end one-gateway"), "punch relay"),
        ("nat trunk", "nat trunk", 1, never("direct reverse punch relay"), "punch relay"),
        ("nat trunk", "nat trunk", 1, never("trunk"), ""),
        ("nat", "nat trunk", 1, Forbidden::NOTHING, ""),
    ] {
        let pair = PairFacts { relays, forbidden: policy, ..PAIR };
        let plan = site_trunk::carriers(&end("alpha", initiator), &end("beta", acceptor), &pair);
        let what = format!("{initiator} to {acceptor}, {relays} relays, {policy:?}");
        assert_eq!(dials(&plan), want, "{what}");
        assert_eq!(plan.takes_site_trunk, !want.is_empty(), "{what}");
    }
}

#[test]
fn both_ends_take_the_trunk_that_one_of_them_may_dial() {
    let words = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>();
    let only = |text| Forbidden::all_but(&words(text));
    let never = |text| Forbidden::never(&words(text));
    for (ends, relays, policy, to_acceptor, to_initiator, taken) in [
        (["nat trunk", "nat trunk gate"], 0, only("direct trunk"), true, false, true),
        (["nat trunk", "nat trunk gate"], 0, only("reverse trunk"), false, true, true),
        (["nat trunk", "nat trunk gate"], 0, Forbidden::NOTHING, true, true, true),
        (["nat trunk", "nat trunk gate shut"], 0, only("direct trunk"), false, false, false),
        (["nat trunk", "nat trunk gate"], 1, never("trunk"), false, false, false),
        (["nat trunk", "nat trunk gate"], 1, never("two-gateway"), false, false, false),
        (["nat trunk", "nat gate"], 1, Forbidden::NOTHING, false, false, false),
    ] {
        let pair = PairFacts { relays, forbidden: policy, ..PAIR };
        let (initiator, acceptor) = (end("alpha", ends[0]), end("beta", ends[1]));
        let (there, back) = (plan(&initiator, &acceptor, &pair), plan(&acceptor, &initiator, &pair));
        let found =
            (there.has_site_trunk(), back.has_site_trunk(), there.takes_site_trunk, back.takes_site_trunk);
        assert_eq!(found, (to_acceptor, to_initiator, taken, taken), "{ends:?} {relays} {policy:?}");
    }
    let trusted = PairFacts { trusted: true, ..PAIR };
    assert!(!plan(&end("alpha", "nat trunk"), &end("beta", "nat trunk gate"), &trusted).takes_site_trunk);
}

#[test]
fn detours_are_ordered_by_what_was_measured() {
    let (initiator, acceptor) = (end("alpha", "symmetric gate"), end("beta", "symmetric gate shut"));
    for (to_acceptors, to_initiators, relay, want) in [
        (None, None, Some(10), "reverse/gateway-out relay"),
        (None, Some(20), Some(10), "relay reverse/gateway-out"),
        (None, Some(10), Some(20), "reverse/gateway-out relay"),
        // The gateway answered the initiator, but not a relay.
        (Some(5), Some(10), Some(20), "direct/one-gateway reverse/gateway-out relay"),
        (Some(15), Some(10), Some(20), "reverse/gateway-out direct/one-gateway relay"),
    ] {
        let milliseconds = |time: Option<u64>| time.map(std::time::Duration::from_millis);
        let round_trips = RoundTrips {
            relay: milliseconds(relay),
            to_acceptors_gateway: milliseconds(to_acceptors),
            to_initiators_gateway: milliseconds(to_initiators),
        };
        let plan = plan(&initiator, &acceptor, &PairFacts { round_trips, ..PAIR });
        assert_eq!(dials(&plan), want);
    }
}

#[test]
fn reasons_of_ways_over_gateways_left_out() {
    use Route::{GatewayOut, OneGateway, TwoGateway};
    let shut = reach(Reachability::Filtered, "192.0.2.9:7740", "no answer within 3 s");
    for (initiator, acceptor, relays, (route, dial), want) in [
        ("nat", "nat", 1, (OneGateway, Dial::Direct), Reason::NoGatewayPort { site: beta() }),
        ("nat", "open gate", 1, (OneGateway, Dial::Direct), Reason::NodeLetIn { site: beta() }),
        ("enclosed", "nat gate", 1, (OneGateway, Dial::Direct), Reason::NoWayOut { site: alpha() }),
        ("nat", "nat", 1, (GatewayOut, Dial::Direct), Reason::HasWayOut { site: alpha() }),
        (
            "nat",
            "nat gate shut",
            1,
            (OneGateway, Dial::Direct),
            Reason::GatewayNotReached { site: beta(), found: shut },
        ),
        ("nat", "nat", 1, (OneGateway, Dial::Relay), Reason::HasWayOut { site: beta() }),
        ("enclosed", "nat", 0, (GatewayOut, Dial::Relay), Reason::NoRelay),
        ("enclosed", "nat", 1, (Route::EndToEnd, Dial::Relay), Reason::NoWayOut { site: alpha() }),
        ("nat", "nat gate away", 1, (OneGateway, Dial::Direct), Reason::Detached { site: beta() }),
        ("nat", "enclosed", 1, (TwoGateway, Dial::Reverse), Reason::NoGatewayPort { site: alpha() }),
    ] {
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &PairFacts { relays, ..PAIR });
        assert_eq!(*reason_over(&plan, route, dial), want, "{initiator} to {acceptor}: {dial} {route}");
    }
}

#[test]
fn reasons_of_ways_left_out() {
    let filtered = || reach(Reachability::Filtered, "192.0.2.2:7730", "no answer within 3 s");
    let taken = reach(Reachability::Misdirected, "192.0.2.9:7731", "another service answers there");
    for (initiator, acceptor, relays, dial, want) in [
        ("nat", "nat", 1, Dial::Direct, Reason::LetsNothingIn { site: beta() }),
        ("nat", "nat", 1, Dial::PortRange, Reason::NoPortLetIn { site: beta() }),
        ("nat", "open", 1, Dial::PortRange, Reason::EveryPortLetIn { site: beta() }),
        ("nat", "nat", 1, Dial::Reverse, Reason::LetsNothingIn { site: alpha() }),
        ("nat", "symmetric", 1, Dial::Punch, Reason::PortPerDestination { site: beta() }),
        ("closed", "nat", 1, Dial::Punch, Reason::MappingUnknown { site: alpha() }),
        ("nat", "nat", 0, Dial::Punch, Reason::NoRelayForBoth),
        ("firewall raw", "firewall", 1, Dial::Traverse, Reason::NoRawPackets { site: beta() }),
        ("symmetric raw", "firewall raw", 1, Dial::Traverse, Reason::PortPerDestination { site: alpha() }),
        ("nat raw", "firewall raw", 0, Dial::Traverse, Reason::NoRelayForInitiator),
        ("firewall raw", "firewall raw stateful", 1, Dial::Traverse, Reason::KeepsState { site: beta() }),
        ("firewall raw", "nat raw", 1, Dial::Traverse, Reason::NoOwnAddress { site: beta() }),
        ("firewall raw", "open raw", 1, Dial::Traverse, Reason::EverythingLetIn { site: beta() }),
        ("nat", "nat", 0, Dial::Relay, Reason::NoRelay),
        ("nat", "open filtered", 1, Dial::Direct, Reason::DeclaredOpen { site: beta(), found: filtered() }),
        ("nat", "auto filtered", 1, Dial::Direct, Reason::NotReached { site: beta(), found: filtered() }),
        ("nat", "auto", 1, Dial::Direct, Reason::NotMeasured { site: beta(), found: Reach::default() }),
        ("port taken", "nat", 1, Dial::Reverse, Reason::PortNotReached { found: taken }),
        (
            "firewall stateless",
            "firewall stateless",
            1,
            Dial::Punch,
            Reason::BothStateless { initiator: alpha(), acceptor: beta() },
        ),
        ("nat", "open filtered met", 1, Dial::Direct, Reason::LetsInMet { site: beta(), found: filtered() }),
        ("nat", "nat away", 1, Dial::Relay, Reason::Detached { site: beta() }),
        ("open", "nat away", 1, Dial::Reverse, Reason::Detached { site: beta() }),
    ] {
        let pair = PairFacts { relays, ..PAIR };
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        assert_eq!(*reason(&plan, dial), want, "{initiator} to {acceptor}: {dial}");
    }
}

#[test]
fn reasons_of_steps() {
    let reached = reach(Reachability::Reachable, "192.0.2.2:7730", "");
    let (initiator, acceptor) = (alpha(), beta());
    for (initiator, acceptor, (route, dial), want) in [
        ("nat", "open", (Route::EndToEnd, Dial::Direct), Reason::LetsIn { site: beta() }),
        (
            "nat",
            "auto reached",
            (Route::EndToEnd, Dial::Direct),
            Reason::LetsInMeasured { site: beta(), found: reached },
        ),
        ("nat", "port nat", (Route::EndToEnd, Dial::PortRange), Reason::PortLetIn { site: beta() }),
        ("nat", "nat", (Route::EndToEnd, Dial::Punch), Reason::PortsKnown),
        ("nat raw", "firewall raw", (Route::EndToEnd, Dial::Traverse), Reason::MayAnswer { site: beta() }),
        ("nat", "nat", (Route::EndToEnd, Dial::Relay), Reason::BothLetOut),
        ("nat", "nat gate", (Route::OneGateway, Dial::Direct), Reason::GatewayLetIn { site: beta() }),
        (
            "open",
            "enclosed",
            (Route::OneGateway, Dial::Reverse),
            Reason::GatewayDials { initiator, acceptor },
        ),
        ("nat", "enclosed", (Route::OneGateway, Dial::Relay), Reason::GatewayForEnclosed),
    ] {
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &PAIR);
        assert_eq!(*reason_over(&plan, route, dial), want, "{initiator} to {acceptor}: {dial} {route}");
    }
}

#[test]
fn forbidden_ways_are_left_out() {
    let words = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>();
    let never = |text| PairFacts { forbidden: Forbidden::never(&words(text)), ..PAIR };
    let only = |text| PairFacts { forbidden: Forbidden::all_but(&words(text)), ..PAIR };
    for (initiator, acceptor, pair, want) in [
        ("open nat", "nat", never("reverse"), "punch relay"),
        ("open nat", "nat", only("relay"), "relay"),
        ("nat", "enclosed", never("one-gateway"), ""),
        ("enclosed", "enclosed", never("relay"), ""),
        ("nat", "nat", only("end-to-end"), "punch relay"),
        ("nat", "enclosed", only("end-to-end"), ""),
        ("nat", "nat", never("end-to-end"), "relay/one-gateway relay/gateway-out relay/two-gateway"),
        ("nat", "open", only("two-gateway"), "relay/two-gateway"),
        (
            "nat",
            "open gate",
            never("end-to-end"),
            "direct/one-gateway direct/gateway-out direct/two-gateway \
             relay/one-gateway relay/gateway-out relay/two-gateway",
        ),
        ("nat", "nat gate", only("two-gateway direct"), "direct/two-gateway"),
        ("open", "nat", only("one-gateway"), "reverse/one-gateway relay/one-gateway"),
    ] {
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        assert_eq!(dials(&plan), want, "{initiator} to {acceptor}: {:?}", pair.forbidden);
    }
    let never = plan(&end("alpha", "open nat"), &end("beta", "nat"), &never("reverse"));
    let forbidden = Reason::Forbidden { initiator: alpha(), acceptor: beta() };
    assert_eq!(*reason(&never, Dial::Reverse), forbidden);
    let nothing_in = Reason::LetsNothingIn { site: beta() };
    assert_eq!(*reason(&never, Dial::Direct), nothing_in, "it is impossible anyway");
}

#[test]
fn steps_that_are_not_let_out_come_last() {
    for (initiator, acceptor, want) in [
        ("nat all", "open nat all", "direct punch relay"),
        ("nat web", "open nat all", "relay direct punch"),
        ("nat all", "nat web", "relay punch"),
        ("nat web", "open nat web", "direct punch relay"),
        ("nat web", "open nat", "direct punch relay"),
        ("nat web", "port nat all", "relay port-range punch"),
        ("open nat all", "nat web", "relay reverse punch"),
        ("port nat all", "nat web", "relay reverse punch"),
        ("nat web", "enclosed gate all", "relay/one-gateway direct/one-gateway"),
    ] {
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &PAIR);
        assert_eq!(dials(&plan), want, "{initiator} to {acceptor}");
    }
    let plan = plan(&end("alpha", "nat web"), &end("beta", "open all"), &PAIR);
    let why = Box::new(Reason::LetsIn { site: beta() });
    assert_eq!(*reason(&plan, Dial::Direct), Reason::NotLetOut { why, site: alpha(), port: Some(7730) });
}

#[test]
fn within_a_site_the_plan_is_direct() {
    let plan = plan(&end("alpha", "nat"), &end("alpha", "symmetric away"), &PairFacts { relays: 0, ..PAIR });
    assert_eq!((dials(&plan).as_str(), plan.left_out.len(), plan.encrypted), ("direct", 0, false));
    assert_eq!(*reason(&plan, Dial::Direct), Reason::SameSite { site: alpha() });
}

#[test]
fn a_trusted_pair_is_not_encrypted() {
    let trusted = PairFacts { trusted: true, ..PAIR };
    assert!(!plan(&end("alpha", "nat"), &end("beta", "open"), &trusted).encrypted);
}

#[test]
fn failed_steps_go_last() {
    let failure = |dial, reason: &str| Failure { route: Route::EndToEnd, dial, reason: reason.to_owned() };
    for (name, failures, want) in [
        ("nothing failed", vec![], "direct reverse relay"),
        ("direct failed", vec![failure(Dial::Direct, "no answer")], "reverse relay direct"),
        ("relay failed", vec![failure(Dial::Relay, "refused")], "direct reverse relay"),
        (
            "two failed",
            vec![failure(Dial::Reverse, "refused"), failure(Dial::Direct, "no answer")],
            "relay direct reverse",
        ),
    ] {
        let mut plan = plan(&end("alpha", "open"), &end("beta", "open"), &PAIR);
        plan.demote(&failures);
        assert_eq!(dials(&plan), want, "{name}");
        let marked =
            plan.steps.iter().filter(|step| matches!(step.reason, Reason::FailedBefore { .. })).count();
        assert_eq!(marked, failures.len(), "{name}");
    }
}

#[test]
fn a_site_trunk_that_failed_comes_after_the_agents_trunk() {
    let mut plan = plan(&end("alpha", "nat trunk"), &end("beta", "nat trunk"), &PAIR);
    let transports = |plan: &Plan| plan.ways.iter().map(|way| way.transport).collect::<Vec<_>>();
    assert_eq!(transports(&plan), [Transport::SiteTrunk, Transport::Trunk]);
    let (route, dial) = site_trunk::WAY;
    plan.demote(&[Failure { route, dial, reason: "no answer".to_owned() }]);
    assert_eq!(transports(&plan), [Transport::Trunk, Transport::SiteTrunk]);
    assert!(matches!(plan.ways[1].reason, Reason::FailedBefore { .. }), "{:?}", plan.ways);
}
