use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"
[wan]
subnet = "198.51.100.0/24"
[[host]]
name = "hub"
address = "198.51.100.10"
roles = ["broker", "relay"]
[[site]]
name = "alpha"
kind = "nat"
subnet = "192.168.1.0/24"
link = { delay = "2.5 ms", rate = "1 Gbit/s" }
nodes = [{ name = "n1", host_name = "node1", roles = ["gateway", "agent"] }, { name = "n2", slots = 2 }]
[[site]]
name = "beta"
kind = "nat"
subnet = "192.168.1.0/24"
outside = "198.51.100.22"
nodes = [{ name = "n1", address = "192.168.1.2" }, { name = "n2" }]
[[site]]
name = "gamma"
kind = "firewall"
subnet = "203.0.113.0/26"
nodes = [{ name = "n1" }]
"#;

#[test]
fn a_grid_is_read_with_its_defaults() {
    let grid = Grid::parse(GOOD, "grid.toml", "three-sites").unwrap();
    assert_eq!(grid.name, "three-sites");
    assert_eq!(grid.wan.router, Ipv4Addr::new(198, 51, 100, 1));
    let [alpha, beta, gamma] = grid.sites.as_slice() else { panic!("three sites") };
    assert_eq!(alpha.router, Ipv4Addr::new(192, 168, 1, 1));
    assert_eq!(alpha.outside, Ipv4Addr::new(198, 51, 100, 2));
    assert_eq!(alpha.link.up.queue, ByteSize(1_250_000), "one bandwidth-delay product of 10 ms");
    assert_eq!(alpha.nodes[0].host_name, "node1");
    assert_eq!(alpha.nodes[1].slots, Some(2));
    assert_eq!(beta.outside, Ipv4Addr::new(198, 51, 100, 22));
    assert_eq!(beta.nodes[1].address, Ipv4Addr::new(192, 168, 1, 3));
    assert!(beta.link.is_plain());
    assert_eq!(gamma.kind, SiteKind::Firewall);
    let machines: Vec<_> = grid.machines().map(|(name, _)| name).collect();
    assert_eq!(machines, ["hub", "n1.alpha", "n2.alpha", "n1.beta", "n2.beta", "n1.gamma"]);
}

#[test]
fn a_checked_grid_survives_serialisation() {
    let grid = Grid::parse(GOOD, "grid.toml", "three-sites").unwrap();
    let text = serde_json::to_string(&grid).unwrap();
    assert_eq!(serde_json::from_str::<Grid>(&text).unwrap(), grid);
}

#[test]
fn every_kind_and_key_of_a_site_is_read() {
    let grid = Grid::parse(ALL, "grid.toml", "all").unwrap();
    let [alpha, beta, gamma, delta] = grid.sites.as_slice() else { panic!("four sites") };
    assert_eq!(alpha.subnet, "192.168.1.0/24".parse().unwrap(), "the default behind a NAT");
    assert_eq!(alpha.unsolicited, Unsolicited::Reset);
    let range = |text: &str| text.parse::<PortRange>().unwrap();
    assert_eq!(alpha.forward, [Forward { ports: range("7000-7099"), to: "front".into() }]);
    assert_eq!(alpha.egress, Some(vec![range("443"), range("7700-7720")]));
    assert_eq!(alpha.lan_rate, Some("1 Gbit/s".parse().unwrap()));
    assert!(alpha.node("front").unwrap().way_out && !alpha.node("n1").unwrap().way_out);
    assert_eq!(alpha.node("n1").unwrap().via.as_deref(), Some("front"));
    let [fast, far] = alpha.rails.as_slice() else { panic!("two rails") };
    assert_eq!(fast.router, Ipv4Addr::new(10, 10, 0, 1));
    assert_eq!(fast.rate, Some("10 Gbit/s".parse().unwrap()));
    assert_eq!(fast.uplink, None);
    assert_eq!(far.uplink.unwrap().link.up.delay, "5 ms".parse().unwrap());
    assert_eq!(alpha.address_on(fast, &alpha.nodes[1]), Ipv4Addr::new(10, 10, 0, 77));
    assert_eq!(
        (beta.kind, gamma.kind, delta.kind),
        (SiteKind::StatelessFirewall, SiteKind::SymmetricNat, SiteKind::CarrierNat)
    );
    assert_eq!(beta.subnet, "203.0.113.0/26".parse().unwrap(), "the default of public sites");
    let links: Vec<_> = grid.links().map(|(name, _)| name).collect();
    assert_eq!(links, ["hub", "alpha", "alpha/far", "beta", "gamma", "delta"]);
    assert_eq!(grid.hosts[0].port, Some(443));
}

const ALL: &str = r#"
[[host]]
name = "hub"
roles = ["broker"]
port = 443
[[site]]
name = "alpha"
kind = "nat"
unsolicited = "reset"
forward = [{ ports = "7000-7099", to = "front" }]
egress = [443, "7700-7720"]
lan_rate = "1 Gbit/s"
rails = [
  { name = "fast", subnet = "10.10.0.0/24", rate = "10 Gbit/s" },
  { name = "far", subnet = "10.11.0.0/24", link = { delay = "5 ms" }, outside = "198.51.100.9" },
]
nodes = [
  { name = "front", roles = ["gateway"] },
  { name = "n1", address = "192.168.1.77", roles = ["agent"], way_out = false, via = "front" },
]
[[site]]
name = "beta"
kind = "stateless-firewall"
forward = [{ ports = "80", to = "n1" }, { ports = "80", to = "n2" }]
nodes = [{ name = "n1" }, { name = "n2" }]
[[site]]
name = "gamma"
kind = "symmetric-nat"
nodes = [{ name = "n1" }]
[[site]]
name = "delta"
kind = "carrier-nat"
nodes = [{ name = "n1" }]
"#;

/// Checks the message about `text` with `from` replaced by `to`, and the line that it names.
fn refused(text: &str, from: &str, to: &str, line: usize, want: &str) {
    assert!(text.contains(from), "{from:?}");
    let text = text.replacen(from, to, 1);
    let error = Grid::parse(&text, "grid.toml", "lab").unwrap_err();
    let GridError::Invalid { line: at, ref message, ref excerpt, .. } = error else { panic!("{error}") };
    assert!(message.contains(want), "expected {want:?} in {message:?}");
    assert_eq!(at, line, "{message}");
    let marks_the_line = excerpt.contains(&format!("\n{line} | ")) && excerpt.contains("^");
    assert!(marks_the_line || line == 1, "{error}");
}

#[test]
fn faults_are_named_with_their_line() {
    for (from, to, line, want) in [
        ("\"beta\"", "\"alpha\"", 15, "name of another host or site"),
        ("\"beta\"", "\"hub\"", 15, "name of another host or site"),
        ("{ name = \"n2\", slots = 2 }", "{ name = \"N1\" }", 13, "has a node \"n1\" already"),
        ("slots = 2", "slots = 0", 13, "slots must be at least 1"),
        ("slots = 2", "features = [\"gpu\"]", 13, "give the node the slurmd role"),
        ("slots = 2", "features = [\"a b\"]", 13, "is no feature"),
        ("\"198.51.100.22\"", "\"198.51.100.10\"", 18, "address of both host \"hub\" and the router"),
        ("\"198.51.100.22\"", "\"198.51.101.1\"", 18, "no host address of 198.51.100.0/24"),
        ("\"192.168.1.2\"", "\"192.168.1.1\"", 19, "address of both the router and node \"n1\""),
        ("\"192.168.1.2\"", "\"192.168.1.255\"", 19, "no host address"),
        ("203.0.113.0/26", "198.51.100.128/26", 23, "overlaps with 198.51.100.0/24"),
        ("192.168.1.0/24", "192.168.1.5/24", 11, "write 192.168.1.0/24"),
        ("192.168.1.0/24", "192.168.1.0/31", 11, "no room"),
        ("\"broker\", ", "", 7, "need a broker"),
        ("\"gateway\", ", "", 13, "no node with the gateway role"),
        ("\"broker\"", "\"agent\"", 7, "belong to a site's nodes"),
        ("slots = 2", "roles = [\"relay\"]", 13, "must be reachable"),
        ("name = \"hub\"", "name = \"router\"", 5, "reserved"),
        ("name = \"hub\"", "name = \"a_b\"", 5, "not a valid name"),
        ("\"node1\"", "\"no de\"", 13, "not a host name"),
        ("rate = \"1 Gbit/s\"", "queue = \"1 MB\"", 12, "needs a rate"),
        ("rate = \"1 Gbit/s\"", "rate = \"1 bit/s\"", 12, "below the smallest"),
        ("\n[wan]", "share = [\"tmp\"]\n[wan]", 1, "absolute path"),
        ("\n[wan]", "trusted = [[\"alpha\", \"omega\"]]\n[wan]", 1, "\"omega\" is no site"),
        ("\n[wan]", "pairs = [{ sites = [\"alpha\", \"omega\"] }]\n[wan]", 1, "\"omega\" is no site"),
    ] {
        refused(GOOD, from, to, line, want);
    }
    let error = Grid::parse("", "grid.toml", "lab").unwrap_err().to_string();
    assert!(error.starts_with("grid.toml:1: no nodes"), "{error}");
}

#[test]
fn faults_of_kinds_and_rails_are_named_with_their_line() {
    for (from, to, line, want) in [
        ("port = 443", "port = 0", 5, "at least 1"),
        ("[\"broker\"]\nport", "[\"broker\", \"relay\"]\nport", 5, "one role"),
        ("kind = \"nat\"", "kind = \"open\"", 9, "an open site lets everything in"),
        (
            "\"nat\"\nunsolicited = \"reset\"",
            "\"open\"\nsubnet = \"192.168.1.0/24\"",
            10,
            "an open site lets everything in",
        ),
        ("kind = \"nat\"", "kind = \"carrier-nat\"", 10, "no port can be forwarded"),
        ("to = \"front\"", "to = \"n9\"", 10, "no node \"n9\"; it has: front, n1"),
        ("to = \"front\"", "to = \"n1\"", 10, "has no way out, and so none in"),
        (
            "to = \"front\" }",
            "to = \"front\" }, { ports = 7099, to = \"front\" }",
            10,
            "go to node \"front\" already",
        ),
        ("to = \"n2\"", "to = \"n1\"", 24, "go to node \"n1\" already"),
        ("443, ", "443, 7711, ", 11, "have ports in common"),
        ("443, ", "", 11, "can't reach the broker's port 443"),
        ("\"1 Gbit/s\"", "\"1 bit/s\"", 12, "below the smallest"),
        ("10.10.0.0/24", "192.168.1.0/25", 14, "another network of this site"),
        ("10.11.0.0/24", "10.10.0.0/16", 15, "another network of this site"),
        ("10.10.0.0/24", "198.51.100.0/26", 14, "overlaps with the wide area's"),
        ("10.10.0.0/24", "10.10.0.0/26", 14, "no host number 77"),
        ("10.10.0.0/24", "10.10.0.7/24", 14, "write 10.10.0.0/24"),
        ("\"fast\"", "\"lan\"", 14, "another interface"),
        ("\"fast\"", "\"wan-far\"", 14, "another interface"),
        ("\"fast\"", "\"9ast\"", 14, "begin with a letter"),
        ("\"fast\"", "\"a-very-long-rail\"", 14, "at most 11"),
        ("\"fast\"", "\"far\"", 15, "has a rail \"far\" already"),
        ("\"198.51.100.9\"", "\"198.51.100.1\"", 15, "the wide area's router"),
        ("link = { delay = \"5 ms\" }, ", "", 15, "needs a link"),
        ("delay = \"5 ms\"", "burst = 2", 15, "needs a loss"),
        ("[\"agent\"], way", "[\"gateway\"], way", 19, "a gateway must reach the broker"),
        ("via = \"front\"", "via = \"n1\"", 19, "no node with the gateway role; there is: front"),
        ("roles = [\"agent\"], way", "way", 19, "add the agent role"),
    ] {
        refused(ALL, from, to, line, want);
    }
    let carrier = ALL.replace("kind = \"carrier-nat\"", "kind = \"carrier-nat\"\nsubnet = \"100.64.7.0/24\"");
    let error = Grid::parse(&carrier, "grid.toml", "lab").unwrap_err().to_string();
    assert!(error.contains("which carriers use between"), "{error}");
    let carrier = ALL.replace(
        "kind = \"carrier-nat\"",
        "kind = \"carrier-nat\"\nrails = [{ name = \"fast\", subnet = \"10.0.0.0/24\", link = {} }]",
    );
    let error = Grid::parse(&carrier, "grid.toml", "lab").unwrap_err().to_string();
    assert!(error.contains("can't have a link of its own"), "{error}");
}

#[test]
fn what_is_no_grid_file_is_pointed_at() {
    for (from, to, line, want) in [
        ("kind = \"nat\"", "kind = \"nut\"", 10, "unknown variant `nut`"),
        ("kind = \"firewall\"", "kind = \"stateles-firewall\"", 22, "did you mean `stateless-firewall`?"),
        ("kind = \"nat\"", "kinds = \"nat\"", 10, "did you mean `kind`?"),
        ("\"2.5 ms\"", "\"2.5 mm\"", 12, "\"2.5 mm\" is not a delay"),
        ("\"198.51.100.10\"", "\"198.51.100\"", 6, "invalid IPv4 address"),
        ("slots = 2", "forwards = 2", 13, "unknown field `forwards`"),
        ("[[host]]", "[[host]", 4, ""),
    ] {
        refused(GOOD, from, to, line, want);
    }
}

#[test]
fn the_documented_grid_file_is_one() {
    let manual = include_str!("../../../../docs/lab.md");
    let text = manual.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let grid = Grid::parse(text, "docs/lab.md", "manual").unwrap_or_else(|error| panic!("{error}"));
    let alpha = &grid.sites[0];
    assert_eq!(alpha.address_on(&alpha.rails[0], &alpha.nodes[1]), Ipv4Addr::new(10, 10, 0, 7));
}

proptest! {
    /// A file with any change is a valid grid, or the message names a line of it.
    #[test]
    fn a_mangled_file_is_refused_in_one_of_its_lines(at in 0..ALL.len(), length in 0..20usize, put in ".{0,3}") {
        let end = (at + length).min(ALL.len());
        let text = format!("{}{put}{}", &ALL[..at], &ALL[end..]);
        if let Err(error) = Grid::parse(&text, "grid.toml", "lab") {
            let GridError::Invalid { line, .. } = error else { panic!("{error}") };
            prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1);
        }
    }
}
