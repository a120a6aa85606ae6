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
        egress: Egress::Unknown,
        attached: true,
        can_traverse: false,
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
            "shut" => end.egress = Egress::None,
            "away" => end.attached = false,
            "raw" => end.can_traverse = true,
            other => panic!("{other}"),
        }
    }
    end
}

fn reach(result: Reachability, address: &str, detail: &str) -> Reach {
    let text = str::to_owned;
    Reach { result, address: text(address), relay: text("hub"), detail: text(detail) }
}

fn dials(plan: &Plan) -> String {
    plan.steps.iter().map(|step| step.dial.to_string()).collect::<Vec<_>>().join(" ")
}

fn reason(plan: &Plan, dial: Dial) -> &str {
    let left_out = plan.left_out.iter().find(|left| left.dial == dial).map(|left| left.reason.as_str());
    let step = plan.steps.iter().find(|step| step.dial == dial).map(|step| step.reason.as_str());
    left_out.or(step).unwrap_or_default()
}

const PAIR: PairFacts = PairFacts { trusted: false, relays: 1, forbidden: Dials::NONE };

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
        ("shut", "open", 1, "direct"),
        ("open", "shut", 1, "reverse"),
        ("nat", "open nat away", 1, "direct"),
        ("nat", "port nat away", 1, "port-range"),
    ] {
        let pair = PairFacts { relays, ..PAIR };
        let plan = plan(&end("alpha", initiator), &end("beta", acceptor), &pair);
        assert_eq!(dials(&plan), want, "{initiator} to {acceptor}, {relays} relays");
        assert_eq!(plan.steps.len() + plan.left_out.len(), Dial::ALL.len(), "each dial is in it or left out");
        assert!(plan.encrypted);
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
        ("nat", "shut", 1, Dial::Relay, "a node of site beta reaches no relay"),
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
    let pair = |forbidden| PairFacts { forbidden, ..PAIR };
    let (alpha, beta) = (end("alpha", "open nat"), end("beta", "nat"));
    let never = plan(&alpha, &beta, &pair(Dials::of(&[Dial::Reverse])));
    assert_eq!(dials(&never), "punch relay");
    let why = "forbidden between sites alpha and beta by the broker's configuration";
    assert_eq!(reason(&never, Dial::Reverse), why);
    assert_eq!(reason(&never, Dial::Direct), "site beta lets nothing in", "it can't be had anyway");
    let only = plan(&alpha, &beta, &pair(Dials::all_but(&[Dial::Relay])));
    assert_eq!(dials(&only), "relay");
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
