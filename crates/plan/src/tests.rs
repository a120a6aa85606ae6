//! Plans as a table.

use super::*;

/// An end, in a few words.
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
        met: false,
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
                    reach(Reachability::Misdirected, "192.0.2.9:7731", "somebody else answers there");
            }
            "away" => end.attached = false,
            "raw" => end.can_traverse = true,
            "enclosed" => end.way_out = WayOut::No,
            "untried" => end.way_out = WayOut::Unknown,
            "gate" => end.gateway_let_in = true,
            "shut" => {
                end.gateway = reach(Reachability::Filtered, "192.0.2.9:7740", "no answer within 3 s");
            }
            "met" => end.met = true,
            // What its site lets out.
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

/// The dials, with their route unless that is end-to-end.
fn dials(plan: &Plan) -> String {
    let way = |step: &Step| match step.route {
        Route::EndToEnd => step.dial.to_string(),
        route => format!("{}/{route}", step.dial),
    };
    plan.steps.iter().map(way).collect::<Vec<_>>().join(" ")
}

fn reason(plan: &Plan, dial: Dial) -> &str {
    reason_over(plan, Route::EndToEnd, dial)
}

fn reason_over(plan: &Plan, route: Route, dial: Dial) -> &str {
    let way = (route, dial);
    let left_out = plan.left_out.iter().find(|left| (left.route, left.dial) == way);
    let step = plan.steps.iter().find(|step| (step.route, step.dial) == way);
    left_out.map(|left| left.reason.as_str()).or(step.map(|step| step.reason.as_str())).unwrap_or_default()
}

const UNMEASURED: RoundTrips =
    RoundTrips { relay: None, to_acceptors_gateway: None, to_initiators_gateway: None };
const PAIR: PairFacts =
    PairFacts { trusted: false, relays: 1, forbidden: Forbidden::NOTHING, round_trips: UNMEASURED };

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
        // What the two sites have seen of each other counts for more than what a
        // relay has; but not for more than policy.
        ("nat", "open nat filtered met", 1, "direct punch relay"),
        ("open nat filtered met", "nat", 1, "reverse punch relay"),
        ("nat", "auto nat filtered met", 1, "direct punch relay"),
        ("nat", "closed nat filtered met", 1, "punch relay"),
        ("nat", "auto nat met", 1, "punch relay"),
        ("nat", "open nat away", 1, "direct"),
        ("nat", "port nat away", 1, "port-range"),
    ] {
        let pair = PairFacts { relays, ..PAIR };
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        assert_eq!(dials(&plan), want, "{initiator} to {acceptor}, {relays} relays");
        assert_eq!(plan.steps.len() + plan.left_out.len(), 16, "each way is in it or left out");
        assert!(plan.encrypted);
    }
}

#[test]
fn ways_over_gateways() {
    for (initiator, acceptor, relays, want) in [
        // Who can't dial out, its gateway stands in for.
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
        // Nobody knows: first as if there were a way out.
        ("untried", "open", 0, "direct direct/gateway-out"),
        ("untried", "untried", 1, "relay relay/one-gateway relay/gateway-out relay/two-gateway"),
        // Nobody can tell the acceptor, or its gateway.
        ("nat", "nat gate away", 1, ""),
        ("nat gate", "nat away", 1, ""),
        ("enclosed", "open away", 1, "direct/gateway-out"),
    ] {
        let mut found = plan(&end("alpha", initiator), &end("beta", acceptor), &PairFacts { relays, ..PAIR });
        assert_eq!(dials(&found), want, "{initiator} to {acceptor}, {relays} relays");
        found.left_out.retain(|left| left.reason.is_empty());
        assert_eq!(found.left_out, []);
    }
}

#[test]
fn detours_are_ordered_by_what_was_measured() {
    let (initiator, acceptor) = (end("alpha", "symmetric gate"), end("beta", "symmetric gate shut"));
    for (to_acceptors, to_initiators, relay, want) in [
        (None, None, Some(10), "reverse/gateway-out relay"),
        (None, Some(20), Some(10), "relay reverse/gateway-out"),
        (None, Some(10), Some(20), "reverse/gateway-out relay"),
        // The initiator itself was answered, where a relay was not.
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
fn what_is_left_out_over_gateways_says_why() {
    use Route::{GatewayOut, OneGateway, TwoGateway};
    for (initiator, acceptor, relays, (route, dial), want) in [
        ("nat", "nat", 1, (OneGateway, Dial::Direct), "the gateway of site beta has no port outside"),
        (
            "nat",
            "open gate",
            1,
            (OneGateway, Dial::Direct),
            "site beta lets connections in to the node itself",
        ),
        (
            "enclosed",
            "nat gate",
            1,
            (OneGateway, Dial::Direct),
            "the node of site alpha has no way out but its gateway",
        ),
        ("nat", "nat", 1, (GatewayOut, Dial::Direct), "the node of site alpha has a way out itself"),
        (
            "nat",
            "nat gate shut",
            1,
            (OneGateway, Dial::Direct),
            "the gateway of site beta is not reached at its port outside: relay hub could not reach \
             192.0.2.9:7740: no answer within 3 s",
        ),
        ("nat", "nat", 1, (OneGateway, Dial::Relay), "the node of site beta has a way out itself"),
        ("enclosed", "nat", 0, (GatewayOut, Dial::Relay), "no relay is attached to the broker"),
        (
            "enclosed",
            "nat",
            1,
            (Route::EndToEnd, Dial::Relay),
            "the node of site alpha has no way out but its gateway",
        ),
        (
            "nat",
            "nat gate away",
            1,
            (OneGateway, Dial::Direct),
            "the gateway of site beta is not attached to the broker",
        ),
        ("nat", "enclosed", 1, (TwoGateway, Dial::Reverse), "the gateway of site alpha has no port outside"),
    ] {
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &PairFacts { relays, ..PAIR });
        assert_eq!(reason_over(&plan, route, dial), want, "{initiator} to {acceptor}: {dial} {route}");
    }
}

#[test]
fn what_is_left_out_says_why() {
    for (initiator, acceptor, relays, dial, want) in [
        ("nat", "nat", 1, Dial::Direct, "site beta lets nothing in"),
        ("nat", "nat", 1, Dial::PortRange, "no port of the node is let in by site beta"),
        ("nat", "nat", 1, Dial::Reverse, "site alpha lets nothing in"),
        ("nat", "symmetric", 1, Dial::Punch, "the NAT of site beta takes another port for each destination"),
        ("closed", "nat", 1, Dial::Punch, "how nodes of site alpha are seen from outside is not known"),
        (
            "firewall raw",
            "firewall",
            1,
            Dial::Traverse,
            "the agent of the node of site beta has no right to raw packets; where isthmus-raw is installed there, \
             `setcap cap_net_raw=ep` on it as root gives it that",
        ),
        (
            "symmetric raw",
            "firewall raw",
            1,
            Dial::Traverse,
            "the NAT of site alpha takes another port for each destination",
        ),
        (
            "firewall raw",
            "nat raw",
            1,
            Dial::Traverse,
            "nodes of site beta have no address outside of their own",
        ),
        ("firewall raw", "open raw", 1, Dial::Traverse, "site beta lets every connection in"),
        ("nat", "nat", 0, Dial::Relay, "no relay is attached to the broker"),
        (
            "nat",
            "open filtered",
            1,
            Dial::Direct,
            "site beta is declared open, but relay hub could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (
            "nat",
            "auto",
            1,
            Dial::Direct,
            "whether site beta lets connections in is not known: no relay has tried to reach it yet",
        ),
        (
            "port taken",
            "nat",
            1,
            Dial::Reverse,
            "a port is said to be let in for the node, but relay hub could not reach 192.0.2.9:7731: \
             somebody else answers there",
        ),
        (
            "firewall stateless",
            "firewall stateless",
            1,
            Dial::Punch,
            "sites alpha and beta both drop whatever begins a connection: their firewalls keep no state",
        ),
        (
            "nat",
            "open filtered met",
            1,
            Dial::Direct,
            "site beta lets connections from the other site in, as one has shown, though relay hub could not \
             reach 192.0.2.2:7730: no answer within 3 s",
        ),
        ("nat", "nat away", 1, Dial::Relay, "the gateway of site beta is not attached to the broker"),
        ("open", "nat away", 1, Dial::Reverse, "the gateway of site beta is not attached to the broker"),
    ] {
        let pair = PairFacts { relays, ..PAIR };
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        assert_eq!(reason(&plan, dial), want, "{initiator} to {acceptor}: {dial}");
    }
}

#[test]
fn what_is_forbidden_is_left_out() {
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
    let (alpha, beta) = (end("alpha", "open nat"), end("beta", "nat"));
    let never = plan(&alpha, &beta, &never("reverse"));
    let why = "forbidden between sites alpha and beta by the broker's configuration";
    assert_eq!(reason(&never, Dial::Reverse), why);
    assert_eq!(reason(&never, Dial::Direct), "site beta lets nothing in", "it can't be had anyway");
}

#[test]
fn what_is_not_let_out_comes_last() {
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
    assert_eq!(
        reason(&plan, Dial::Direct),
        "site beta lets connections in, but site alpha seems to let nothing out to port 7730"
    );
}

#[test]
fn within_a_site_nothing_else_matters() {
    let plan = plan(&end("alpha", "nat"), &end("alpha", "symmetric away"), &PairFacts { relays: 0, ..PAIR });
    assert_eq!((dials(&plan).as_str(), plan.left_out.len(), plan.encrypted), ("direct", 0, false));
    assert_eq!(reason(&plan, Dial::Direct), "both nodes are in site alpha");
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
        let told = plan.steps.iter().filter(|step| step.reason.contains("failed before")).count();
        assert_eq!(told, failures.len(), "{name}");
    }
}
