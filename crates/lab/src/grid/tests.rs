use std::net::Ipv4Addr;

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
fn faults_are_named_with_their_line() {
    let replaced = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from:?}");
        GOOD.replacen(from, to, 1)
    };
    for (text, line, says) in [
        (replaced("\"beta\"", "\"alpha\""), 15, "name of another host or site"),
        (replaced("\"beta\"", "\"hub\""), 15, "name of another host or site"),
        (replaced("{ name = \"n2\", slots = 2 }", "{ name = \"N1\" }"), 13, "has a node \"n1\" already"),
        (replaced("slots = 2", "slots = 0"), 13, "slots must be at least 1"),
        (
            replaced("\"198.51.100.22\"", "\"198.51.100.10\""),
            18,
            "address of both host \"hub\" and the router",
        ),
        (replaced("\"198.51.100.22\"", "\"198.51.101.1\""), 18, "no host address of 198.51.100.0/24"),
        (replaced("\"192.168.1.2\"", "\"192.168.1.1\""), 19, "address of both the router and node \"n1\""),
        (replaced("\"192.168.1.2\"", "\"192.168.1.255\""), 19, "no host address"),
        (replaced("203.0.113.0/26", "198.51.100.128/26"), 23, "overlaps with 198.51.100.0/24"),
        (replaced("192.168.1.0/24", "192.168.1.5/24"), 11, "write 192.168.1.0/24"),
        (replaced("192.168.1.0/24", "192.168.1.0/31"), 11, "no room"),
        (replaced("\"broker\", ", ""), 7, "need a broker"),
        (replaced("\"gateway\", ", ""), 13, "no node with the gateway role"),
        (replaced("\"broker\"", "\"agent\""), 7, "belong to a site's nodes"),
        (replaced("slots = 2", "roles = [\"gateway\"]"), 13, "has a gateway already"),
        (replaced("slots = 2", "roles = [\"relay\"]"), 13, "must be reachable"),
        (replaced("name = \"hub\"", "name = \"router\""), 5, "reserved"),
        (replaced("name = \"hub\"", "name = \"a_b\""), 5, "not a valid name"),
        (replaced("\"node1\"", "\"no de\""), 13, "not a host name"),
        (replaced("rate = \"1 Gbit/s\"", "queue = \"1 MB\""), 12, "needs a rate"),
        (replaced("rate = \"1 Gbit/s\"", "rate = \"1 bit/s\""), 12, "below the smallest"),
        (format!("share = [\"tmp\"]{GOOD}"), 1, "absolute path"),
        (format!("trusted = [[\"alpha\", \"omega\"]]{GOOD}"), 1, "\"omega\" is no site"),
        (String::new(), 1, "no nodes"),
    ] {
        let error = Grid::parse(&text, "grid.toml", "lab").unwrap_err();
        let GridError::Meaning { line: at, ref message, .. } = error else { panic!("{error}") };
        assert!(message.contains(says), "expected {says:?} in {message:?}");
        assert_eq!(at, line, "{message}");
    }
}

#[test]
fn what_is_no_grid_file_is_pointed_at() {
    for (from, to, says) in [
        ("kind = \"nat\"", "kind = \"nut\"", "unknown variant `nut`"),
        ("kind = \"nat\"", "kinds = \"nat\"", "unknown field `kinds`"),
        ("\"2.5 ms\"", "\"2.5 mm\"", "\"2.5 mm\" is not a delay"),
        ("\"198.51.100.10\"", "\"198.51.100\"", "invalid IPv4 address"),
        ("[[host]]", "[[host]", "line 4"),
    ] {
        let error = Grid::parse(&GOOD.replacen(from, to, 1), "grid.toml", "lab").unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("line "), "expected {says:?} in {error}");
    }
}
