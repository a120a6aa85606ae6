//! Problems of a site, and hints: a pure decision over what its nodes found out.

use isthmus_agent::config::DEFAULT_PORT as AGENTS;
use isthmus_front::format::site as site_of;
use isthmus_plan::egress::Egress;
use isthmus_plan::{Filtering, Mapping, Reachability};
use isthmus_rpc::enums::{filtering_from_wire, mapping_from_wire};
use isthmus_rpc::seen;
use isthmus_wire::proto::{self, Inbound};
use serde::Serialize;

use super::one_address;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Whether this is a problem; otherwise it is a hint.
    pub problem: bool,
    /// The fact, and what to do about it.
    pub text: String,
}

fn problem(text: String) -> Finding {
    Finding { problem: true, text }
}

fn hint(text: String) -> Finding {
    Finding { problem: false, text }
}

/// Findings about a site; `nodes` are its nodes that are up.
pub(crate) fn of_site(site: &proto::Site, nodes: &[&proto::Node], relays: &[proto::Relay]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !site.up {
        findings.push(problem(format!(
            "the gateway of site {} is not attached to the broker: start it, and see its log",
            site.name
        )));
    }
    let gateway = seen::reach_from_wire(site.outside_reach.as_ref());
    if !site.outside_address.is_empty() && gateway.failed() {
        findings.push(problem(format!(
            "the gateway of site {} has `outside` set, but {}; let TCP to {} in or have the NAT forward it to the \
             gateway, correct outside_address, or take both out of section [gateway]: until then no way over \
             that port is planned",
            site.name,
            gateway.clause(),
            site.outside_address
        )));
    }
    let relays_for_others = || relays.iter().any(|relay| relay.up && site_of(&relay.name) == site.name);
    if nodes.is_empty() {
        let text = format!("no agent of site {} is attached to its gateway", site.name);
        findings.push(if relays_for_others() {
            hint(format!("{text}, which relays for other sites"))
        } else {
            problem(text)
        });
    }
    findings.extend(one_address::shared(nodes));
    if !relays.iter().any(|relay| relay.up) {
        findings.push(problem(
            "no relay is attached to the broker: nothing can be found out from outside, and nodes that let \
             nothing in can't be joined; run `isthmus relay` where all sites can reach it"
                .to_owned(),
        ));
        return findings;
    }
    for node in nodes {
        findings.extend(of_node(site.inbound(), node));
    }
    findings
}

/// A finding about the ports outside that a node is let out to; `None` if nothing is wrong with
/// them.
pub(crate) fn of_egress(node: &str, egress: &Egress) -> Option<Finding> {
    let dropped = egress.dropped.contains(&AGENTS);
    dropped.then(|| {
        hint(format!(
            "{node} is not let out to port {AGENTS}, where agents listen: sites that let connections in are \
             joined to it by relays; let TCP out to that port, or let them use another (port_range)"
        ))
    })
}

fn of_node(inbound: Inbound, node: &proto::Node) -> Vec<Finding> {
    let name = &node.name;
    let found = node.seen.clone().unwrap_or_default();
    let mut findings = Vec::new();
    if !found.look_failure.is_empty() {
        findings.push(problem(format!(
            "{name} could not find out again how it is seen from outside; the findings below are older: {}",
            found.look_failure
        )));
    }
    if found.way_out() == proto::WayOut::No {
        let sights = &found.relays;
        let tried: Vec<_> =
            sights.iter().map(|sight| format!("{} at {}", sight.relay, sight.address)).collect();
        return vec![problem(format!(
            "{name} reaches no relay ({}): let TCP out to one of them, or run one on a port that is let out, \
             such as 443",
            tried.join(", ")
        ))];
    }
    for sight in found.relays.iter().filter(|sight| !sight.failure.is_empty()) {
        let proto::RelaySight { relay, address, failure, .. } = sight;
        findings.push(problem(format!("{name} does not reach relay {relay} at {address}: {failure}")));
    }
    if found.measured_unix_ms == 0 {
        findings.push(hint(format!(
            "{name} is still finding out what is let in; run this again in some seconds"
        )));
        return findings;
    }
    findings.extend(let_in(inbound, node, &found));
    let mapping = mapping_from_wire(found.mapping());
    if mapping == Mapping::PortDependent {
        findings.push(hint(format!(
            "the NAT before {name} takes another port for each destination, so punching through it \
             fails: sites that let nothing in are joined to it by relays; endpoint-independent mapping (RFC 5382, \
             REQ-1) at the NAT, or a forwarded port, would help"
        )));
    }
    if filtering_from_wire(found.filtering()) == Filtering::Stateless {
        findings.push(hint(format!(
            "the firewall before {name} keeps no state and drops every SYN: it is joined to another site \
             behind such a firewall by relays"
        )));
    }
    findings
}

/// Findings about connections to a node from outside its site.
fn let_in(inbound: Inbound, node: &proto::Node, found: &proto::Seen) -> Vec<Finding> {
    let name = &node.name;
    let (own, outside) =
        (seen::reach_from_wire(found.own.as_ref()), seen::reach_from_wire(found.outside.as_ref()));
    let translated =
        matches!(mapping_from_wire(found.mapping()), Mapping::EndpointIndependent | Mapping::PortDependent);
    let mut findings = Vec::new();
    if inbound == Inbound::Open && own.failed() {
        findings.push(problem(format!(
            "the site is declared open, but {}; let TCP to {} in, or set `inbound = \"auto\"` in section \
             [gateway]",
            own.clause(),
            node.address
        )));
    }
    if inbound == Inbound::Open && translated {
        findings.push(hint(format!(
            "the site is declared open, but relays see {name} ({}) as {}: only sites that share its private \
             network can connect to it",
            node.address, found.address
        )));
    }
    if !node.outside_address.is_empty() && outside.failed() {
        findings.push(problem(format!(
            "section [agent] of {name} declares a port that is let in, but {}; check the NAT or \
             firewall that lets it in, and port_range and outside_host there",
            outside.clause()
        )));
    }
    if inbound == Inbound::Closed && own.result == Reachability::Reachable {
        findings.push(hint(format!(
            "{}, but the site is declared closed: `inbound = \"auto\"` in section [gateway] would let others \
             connect to {name}",
            own.clause()
        )));
    }
    let reached = [&own, &outside].iter().any(|reach| reach.result == Reachability::Reachable);
    if !reached && inbound != Inbound::Open && node.outside_address.is_empty() {
        let port = node.address.rsplit_once(':').map_or("7730", |(_, port)| port);
        findings.push(hint(if translated {
            format!(
                "no node outside the site can connect to {name}: to allow it, have the NAT at {} forward a TCP port to \
                 it, such as {port}, and set port_range = \"{port}\" and outside_host = \"{}\" in its section \
                 [agent]",
                found.address, found.address
            )
        } else {
            format!("no node outside the site can connect to {name}: to allow it, let TCP to {} in", node.address)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(words: &str) -> proto::Node {
        let reach = |result: proto::Reachability| {
            Some(proto::Reach {
                result: result.into(),
                address: "192.0.2.2:7730".to_owned(),
                relay: "hub".to_owned(),
                detail: "no answer".to_owned(),
            })
        };
        let mut found = proto::Seen {
            mapping: proto::Mapping::Untranslated.into(),
            address: "192.0.2.2".to_owned(),
            way_out: proto::WayOut::Yes.into(),
            measured_unix_ms: 1,
            ..proto::Seen::default()
        };
        let mut node = proto::Node {
            name: "n1.alpha".to_owned(),
            address: "192.0.2.2:7730".to_owned(),
            up: true,
            ..proto::Node::default()
        };
        let sight = |failure: &str| proto::RelaySight {
            relay: "hub".to_owned(),
            address: "198.51.100.10:7720".to_owned(),
            failure: failure.to_owned(),
            ..proto::RelaySight::default()
        };
        for word in words.split_whitespace() {
            match word {
                "nat" => found.mapping = proto::Mapping::EndpointIndependent.into(),
                "symmetric" => found.mapping = proto::Mapping::PortDependent.into(),
                "stateless" => found.filtering = proto::Filtering::Stateless.into(),
                "reached" => found.own = reach(proto::Reachability::Reachable),
                "filtered" => found.own = reach(proto::Reachability::Filtered),
                "forwarded" => found.outside = reach(proto::Reachability::Reachable),
                "unforwarded" => found.outside = reach(proto::Reachability::Filtered),
                "port" => node.outside_address = "192.0.2.2:7731".to_owned(),
                "shut" => {
                    found.way_out = proto::WayOut::No.into();
                    found.relays = vec![sight("no answer")];
                }
                "onedead" => found.relays = vec![sight("no answer")],
                "new" => found.measured_unix_ms = 0,
                "blind" => found.look_failure = "the gateway has not sent the grid's relays".to_owned(),
                other => panic!("{other}"),
            }
        }
        node.seen = Some(found);
        node
    }

    /// The texts of the findings, problems with an exclamation mark before.
    fn found(inbound: Inbound, words: &str) -> Vec<String> {
        let findings = of_node(inbound, &node(words));
        findings.iter().map(|f| format!("{}{}", if f.problem { "!" } else { "" }, f.text)).collect()
    }

    #[test]
    fn problems_and_hints_of_nodes() {
        use Inbound::{Auto, Closed, Open};
        for (inbound, words, want) in [
            (Open, "reached", vec![]),
            (Auto, "reached", vec![]),
            (Auto, "nat port forwarded", vec![]),
            (Open, "filtered", vec!["!the site is declared open, but relay hub could not reach"]),
            (Open, "nat", vec!["the site is declared open, but relays see n1.alpha"]),
            (
                Auto,
                "filtered",
                vec!["no node outside the site can connect to n1.alpha: to allow it, let TCP"],
            ),
            (
                Auto,
                "nat unforwarded",
                vec!["no node outside the site can connect to n1.alpha: to allow it, have the NAT"],
            ),
            (
                Auto,
                "nat port unforwarded",
                vec!["!section [agent] of n1.alpha declares a port that is let in, but relay hub"],
            ),
            (Closed, "reached", vec!["relay hub reached 192.0.2.2:7730, but the site is declared closed"]),
            (
                Auto,
                "symmetric port forwarded",
                vec!["the NAT before n1.alpha takes another port for each destination"],
            ),
            (Auto, "reached stateless", vec!["the firewall before n1.alpha keeps no state"]),
            (Auto, "shut", vec!["!n1.alpha reaches no relay (hub at 198.51.100.10:7720)"]),
            (Auto, "reached onedead", vec!["!n1.alpha does not reach relay hub at 198.51.100.10:7720"]),
            (Open, "reached blind", vec!["!n1.alpha could not find out again how it is seen from outside"]),
            (Open, "new", vec!["n1.alpha is still finding out"]),
        ] {
            let got = found(inbound, words);
            let right =
                got.len() == want.len() && got.iter().zip(&want).all(|(got, want)| got.starts_with(want));
            assert!(right, "{inbound:?} {words}: {got:#?}");
        }
    }

    #[test]
    fn a_port_outside_that_is_not_reached_is_a_problem() {
        let site = |address: &str, result: proto::Reachability| proto::Site {
            name: "alpha".to_owned(),
            up: true,
            outside_address: address.to_owned(),
            outside_reach: Some(proto::Reach {
                result: result.into(),
                address: address.to_owned(),
                relay: "hub".to_owned(),
                detail: "no answer within 3 s".to_owned(),
            }),
            ..proto::Site::default()
        };
        let relays = [proto::Relay { up: true, ..proto::Relay::default() }];
        use proto::Reachability::{Filtered, Reachable, Unknown};
        for (address, result, want) in [
            ("192.0.2.9:7740", Filtered, true),
            ("192.0.2.9:7740", Reachable, false),
            ("192.0.2.9:7740", Unknown, false),
            ("", Filtered, false),
        ] {
            let findings = of_site(&site(address, result), &[&node("reached")], &relays);
            let reported = findings.iter().any(|finding| {
                finding.problem
                    && finding.text.contains("relay hub could not reach 192.0.2.9:7740: no answer within 3 s")
            });
            assert_eq!(reported, want, "{address} {result:?}: {findings:?}");
        }
    }

    #[test]
    fn a_site_without_gateway_agents_or_relays_has_problems() {
        let site = proto::Site { name: "alpha".to_owned(), up: false, ..proto::Site::default() };
        let findings = of_site(&site, &[], &[]);
        assert_eq!((findings.len(), findings.iter().all(|finding| finding.problem)), (3, true));
    }
}
