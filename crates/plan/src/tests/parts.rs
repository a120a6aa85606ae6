//! Who dials whom, and what each party sends first, as a table.

use super::*;
use crate::parts::{End, Part, Party, Shown, Target, needs_broker, parts};
use crate::policy::Choice;

fn target(target: Target) -> &'static str {
    match target {
        Target::Agent(End::Initiator) => "initiator",
        Target::Agent(End::Acceptor) => "acceptor",
        Target::LetIn(End::Initiator) => "initiator's port",
        Target::LetIn(End::Acceptor) => "acceptor's port",
        Target::Seen(End::Initiator) => "initiator as seen",
        Target::Seen(End::Acceptor) => "acceptor as seen",
        Target::Gateway(End::Initiator) => "gateway i",
        Target::Gateway(End::Acceptor) => "gateway a",
        Target::Relay => "relay",
    }
}

/// A part as "dials TARGET SHOWN", "waits for PARTY" or "takes in".
fn words(part: Part) -> String {
    let shown = |shown| match shown {
        Shown::Nothing => "",
        Shown::Ticket(End::Initiator) => ", ticket i",
        Shown::Ticket(End::Acceptor) => ", ticket a",
        Shown::Rendezvous => ", rendezvous",
    };
    match part {
        Part::Waits(Party::Node(end)) => format!("waits for {}", target(Target::Agent(end))),
        Part::Waits(Party::Gateway(end)) => format!("waits for {}", target(Target::Gateway(end))),
        Part::Dials(to, first) => format!("dials {}{}", target(to), shown(first)),
        Part::TakesIn => "takes in".to_owned(),
    }
}

/// The parts of the initiator, its gateway, the acceptor's gateway and the acceptor, as words.
fn row(initiator: &str, acceptor: &str, way: (Route, Dial), pair: &PairFacts) -> Result<[String; 4], Reason> {
    let found = parts(way, &end("alpha", initiator), &end("beta", acceptor), pair)?;
    let gateway = |part: Option<Part>| part.map(words).unwrap_or_default();
    Ok([
        words(found.initiator),
        gateway(found.initiators_gateway),
        gateway(found.acceptors_gateway),
        words(found.acceptor),
    ])
}

/// A route, a dial, the two ends, and the parts of initiator, its gateway, the
/// acceptor's gateway and acceptor.
type Row = (Route, Dial, [&'static str; 2], Result<[&'static str; 4], Reason>);

const NEAR: &str = "dials gateway i, ticket i";
const FAR: &str = "dials gateway a, ticket a";

fn from_the_initiator() -> Vec<Row> {
    use Dial::{Direct, PortRange, Punch, Relay, Reverse, Traverse};
    use Route::{EndToEnd, OneGateway};
    vec![
        (EndToEnd, Direct, ["nat", "open"], Ok(["dials acceptor", "", "", "waits for initiator"])),
        (EndToEnd, PortRange, ["nat", "port"], Ok(["dials acceptor's port", "", "", "waits for initiator"])),
        (
            EndToEnd,
            Reverse,
            ["open", "nat"],
            Ok(["waits for acceptor", "", "", "dials initiator, rendezvous"]),
        ),
        (EndToEnd, Punch, ["nat", "nat"], Ok(["dials acceptor as seen", "", "", "dials initiator as seen"])),
        (EndToEnd, Traverse, ["nat raw", "firewall raw"], Ok(["dials acceptor", "", "", "takes in"])),
        (EndToEnd, Relay, ["nat", "nat"], Ok(["dials relay, ticket i", "", "", "dials relay, ticket a"])),
        (
            OneGateway,
            Direct,
            ["nat", "nat gate"],
            Ok(["dials gateway a, ticket i", "", "waits for initiator", FAR]),
        ),
        (OneGateway, PortRange, ["nat", "port gate"], Err(Reason::NoSuchWay)),
        (
            OneGateway,
            Reverse,
            ["open", "enclosed"],
            Ok(["waits for gateway a", "", "dials initiator, rendezvous", FAR]),
        ),
        (OneGateway, Punch, ["nat", "nat gate"], Err(Reason::NoSuchWay)),
        (OneGateway, Traverse, ["nat raw", "firewall raw gate"], Err(Reason::NoSuchWay)),
        (
            OneGateway,
            Relay,
            ["nat", "enclosed"],
            Ok(["dials relay, ticket i", "", "dials relay, ticket a", FAR]),
        ),
    ]
}

fn over_the_initiators_gateway() -> Vec<Row> {
    use Dial::{Direct, PortRange, Punch, Relay, Reverse, Traverse};
    use Route::{GatewayOut, TwoGateway};
    vec![
        (GatewayOut, Direct, ["enclosed", "open"], Ok([NEAR, "dials acceptor", "", "waits for gateway i"])),
        (
            GatewayOut,
            PortRange,
            ["enclosed", "port"],
            Ok([NEAR, "dials acceptor's port", "", "waits for gateway i"]),
        ),
        (
            GatewayOut,
            Reverse,
            ["nat gate", "nat"],
            Ok([NEAR, "waits for acceptor", "", "dials gateway i, ticket a"]),
        ),
        (GatewayOut, Punch, ["enclosed", "nat"], Err(Reason::NoSuchWay)),
        (GatewayOut, Traverse, ["enclosed raw", "firewall raw"], Err(Reason::NoSuchWay)),
        (
            GatewayOut,
            Relay,
            ["enclosed", "nat"],
            Ok([NEAR, "dials relay, ticket i", "", "dials relay, ticket a"]),
        ),
        (
            TwoGateway,
            Direct,
            ["enclosed", "enclosed gate"],
            Ok([NEAR, "dials gateway a, ticket i", "waits for gateway i", FAR]),
        ),
        (TwoGateway, PortRange, ["enclosed", "enclosed port gate"], Err(Reason::NoSuchWay)),
        (
            TwoGateway,
            Reverse,
            ["enclosed gate", "enclosed"],
            Ok([NEAR, "waits for gateway a", "dials gateway i, ticket a", FAR]),
        ),
        (TwoGateway, Punch, ["enclosed", "enclosed gate"], Err(Reason::NoSuchWay)),
        (TwoGateway, Traverse, ["enclosed raw", "enclosed gate raw"], Err(Reason::NoSuchWay)),
        (
            TwoGateway,
            Relay,
            ["enclosed", "enclosed"],
            Ok([NEAR, "dials relay, ticket i", "dials relay, ticket a", FAR]),
        ),
    ]
}

/// Every route with every dial, between ends that allow it if any ends do.
#[test]
fn every_way_gives_each_party_its_part() {
    let mut seen = Vec::new();
    for (route, dial, [initiator, acceptor], want) in
        from_the_initiator().into_iter().chain(over_the_initiators_gateway())
    {
        let found = row(initiator, acceptor, (route, dial), &PAIR);
        if let Ok([initiator, near, far, acceptor]) = want {
            // The initiator's side alone acts, and shows nothing between the sites.
            let across = if near.is_empty() { initiator } else { near };
            let alone = far.is_empty() && acceptor.starts_with("waits") && !across.contains(',');
            assert_eq!(needs_broker((route, dial)), !alone || across.starts_with("waits"), "{route} {dial}");
        }
        assert_eq!(found, want.map(|parts| parts.map(str::to_owned)), "{route} {dial}");
        seen.push((route, dial));
    }
    // The gateways arrange a trunk between them.
    let of_nodes = || Dial::ALL.iter().filter(|dial| **dial != Dial::Trunk);
    let all: Vec<_> = Route::ALL.iter().flat_map(|route| of_nodes().map(|dial| (*route, *dial))).collect();
    assert_eq!(seen, all);
    for route in Route::ALL {
        let found = row("nat trunk gate", "nat trunk gate", (*route, Dial::Trunk), &PAIR);
        assert_eq!(found, Err(Reason::NoSuchWay), "{route}");
    }
}

#[test]
fn impossible_ways_are_refused_with_the_reason() {
    use Route::{EndToEnd, GatewayOut, OneGateway, TwoGateway};
    let no_relay = PairFacts { relays: 0, ..PAIR };
    let never = |word: &str| PairFacts { forbidden: Forbidden::never(&[word.parse().unwrap()]), ..PAIR };
    for (way, [initiator, acceptor], pair, want) in [
        ((EndToEnd, Dial::Relay), ["nat", "nat"], no_relay, Reason::NoRelay),
        ((EndToEnd, Dial::Reverse), ["nat", "nat"], PAIR, Reason::LetsNothingIn { site: alpha() }),
        ((OneGateway, Dial::Direct), ["nat", "nat"], PAIR, Reason::NoGatewayPort { site: beta() }),
        ((OneGateway, Dial::Direct), ["nat", "open gate"], PAIR, Reason::NodeLetIn { site: beta() }),
        ((OneGateway, Dial::Reverse), ["nat", "enclosed"], PAIR, Reason::LetsNothingIn { site: alpha() }),
        ((GatewayOut, Dial::Direct), ["nat", "open"], PAIR, Reason::HasWayOut { site: alpha() }),
        ((GatewayOut, Dial::Direct), ["enclosed", "nat"], PAIR, Reason::LetsNothingIn { site: beta() }),
        ((GatewayOut, Dial::Reverse), ["nat gate", "nat away"], PAIR, Reason::Detached { site: beta() }),
        ((TwoGateway, Dial::Relay), ["enclosed", "enclosed"], no_relay, Reason::NoRelay),
        (
            (TwoGateway, Dial::Relay),
            ["enclosed", "enclosed"],
            never("two-gateway"),
            Reason::Forbidden { initiator: alpha(), acceptor: beta() },
        ),
    ] {
        assert_eq!(row(initiator, acceptor, way, &pair), Err(want), "{way:?}");
    }
}

#[test]
fn the_initiator_is_dialed_where_it_is_let_in() {
    for (initiator, want) in [
        ("open", "initiator"),
        ("port", "initiator's port"),
        ("open port", "initiator"),
        ("open filtered port", "initiator's port"),
        ("open filtered met", "initiator"),
        // Measurement has not found the port, and there is no other.
        ("port taken", "initiator's port"),
    ] {
        let [.., acceptor] = row(initiator, "nat", (Route::EndToEnd, Dial::Reverse), &PAIR).unwrap();
        assert_eq!(acceptor, format!("dials {want}, rendezvous"), "{initiator}");
    }
}
