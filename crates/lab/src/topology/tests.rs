use super::*;

fn built(text: &str) -> Topology {
    topology(&Grid::parse(text, "test", "test").unwrap())
}

const GRID: &str = r#"
    [[host]]
    name = "hub"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    link = { delay = "2.5 ms" }
    nodes = [{ name = "n1", host_name = "node1" }, { name = "a-very-long-name-of-a-node" }]
    [[site]]
    name = "gamma"
    kind = "firewall"
    subnet = "203.0.113.0/26"
    nodes = [{ name = "n1" }]
    [[site]]
    name = "delta"
    kind = "open"
    subnet = "203.0.113.64/26"
    link = { rate = "1 Gbit/s" }
"#;

#[test]
fn every_machine_is_there_once() {
    let topology = built(GRID);
    let names: Vec<_> = topology.machines.iter().map(|machine| machine.name.as_str()).collect();
    let expected = [
        "wan",
        "hub",
        "router.alpha",
        "n1.alpha",
        "a-very-long-name-of-a-node.alpha",
        "router.gamma",
        "n1.gamma",
        "router.delta",
    ];
    assert_eq!(names, expected);
    assert_eq!(topology.machines[3].host_name, "node1");
}

#[test]
fn only_links_that_do_something_are_emulated() {
    let topology = built(GRID);
    let emulated: Vec<_> = topology.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(emulated, ["alpha", "delta"]);
    assert_eq!(topology.wires.len(), 5, "hub, two nodes of alpha, router and node of gamma");
    for port in topology.wires.iter().flatten() {
        assert!(port.interface.len() <= LONGEST_INTERFACE, "{}", port.interface);
    }
}

#[test]
fn the_wide_area_knows_no_private_address() {
    let topology = built(GRID);
    let wan = topology.machines[0].ip_commands.join("\n");
    assert!(!wan.contains("192.168"), "{wan}");
    assert!(wan.contains("route add 203.0.113.0/26 via 198.51.100.4 dev 2-gamma onlink"), "{wan}");
    assert!(wan.contains("route add 203.0.113.64/26 dev 3-delta"), "{wan}");
    assert!(wan.contains("route add 198.51.100.3/32 dev 1-alpha src 198.51.100.1"), "{wan}");
}

/// A machine of a grid that has a single site of `kind`, with `keys` in the site's table.
fn machine(kind: &str, keys: &str, name: &str) -> Machine {
    let text = format!(
        "[[site]]\nname = 'alpha'\nkind = '{kind}'\n{keys}\n\
         nodes = [{{ name = 'n1' }}, {{ name = 'n2', way_out = false }}, {{ name = 'n3' }}]"
    );
    built(&text).machines.into_iter().find(|machine| machine.name == name).unwrap()
}

#[test]
fn each_kind_of_site_has_its_rules() {
    for (kind, translates, remembers) in [
        ("open", false, false),
        ("firewall", false, true),
        ("stateless-firewall", false, false),
        ("nat", true, true),
        ("symmetric-nat", true, true),
        ("carrier-nat", true, true),
    ] {
        let rules = machine(kind, "", "router.alpha").rules.unwrap_or_default();
        assert_eq!(rules.contains("masquerade"), translates, "{kind}");
        assert_eq!(rules.contains("fully-random"), kind == "symmetric-nat");
        // Either would put connection tracking to work.
        assert_eq!(rules.contains("ct state") || rules.contains("type nat"), remembers, "{kind}");
    }
    let carrier = machine("carrier-nat", "unsolicited = 'reset'", "carrier.alpha").rules.unwrap();
    assert!(carrier.contains("masquerade") && carrier.contains("reject with tcp reset"), "{carrier}");
    let open = built("[[site]]\nname = 'alpha'\nkind = 'open'\nnodes = [{ name = 'n1' }]");
    assert_eq!(open.machines[1].rules, None);
}

#[test]
fn a_site_without_conditions_asks_for_no_empty_sets() {
    for kind in ["open", "firewall", "stateless-firewall", "nat", "symmetric-nat", "carrier-nat"] {
        let rules = machine(kind, "egress = []", "router.alpha").rules.unwrap();
        assert!(!rules.contains("{  }"), "{rules}");
    }
}

#[test]
fn a_rail_with_a_link_has_routes_of_its_own() {
    let keys = "rails = [
        { name = 'fast', subnet = '10.10.0.0/24', rate = '10 Gbit/s' },
        { name = 'far', subnet = '10.11.0.0/24', link = {} }]";
    let router = machine("nat", keys, "router.alpha");
    let commands = router.ip_commands.join("\n");
    assert!(
        commands.contains("route add default via 198.51.100.1 dev wan-far onlink table 102"),
        "{commands}"
    );
    assert!(commands.contains("rule add priority 200 from 10.11.0.0/24 lookup 102"), "{commands}");
    assert_eq!(commands.matches("rule add").count(), 3, "no rule for a rail without a link: {commands}");
    assert_eq!(router.tc_commands.len(), 3, "one for each node's port on the fast rail");
    let rules = router.rules.unwrap();
    assert!(rules.contains("oifname { \"wan\", \"wan-far\" } ip saddr { 10.10.0.0/24 } drop"), "{rules}");

    let node = machine("nat", keys, "n1.alpha");
    let commands = node.ip_commands.join("\n");
    assert!(commands.contains("address add 10.10.0.2/24 dev fast"), "{commands}");
    assert!(commands.contains("route add default via 10.11.0.1 dev far table 102"), "{commands}");
    assert!(commands.contains("rule add priority 200 from 10.11.0.2 lookup 102"), "{commands}");
    assert_eq!(
        node.tc_commands,
        ["qdisc add dev fast root tbf rate 10000000000bit burst 312500 limit 6250000"]
    );
    let shut_in = machine("nat", keys, "n2.alpha").ip_commands.join("\n");
    assert!(!shut_in.contains("default") && !shut_in.contains("rule"), "{shut_in}");
}

#[test]
fn a_carrier_stands_between_the_router_and_the_wide_area() {
    let topology = built(
        "[[site]]\nname = 'alpha'\nkind = 'carrier-nat'\nlink = { delay = '1 ms' }\nnodes = [{ name = 'n1' }]",
    );
    let names: Vec<_> = topology.machines.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!(names, ["wan", "router.alpha", "carrier.alpha", "n1.alpha"]);
    let [link] = topology.links.as_slice() else { panic!("one link") };
    assert_eq!((link.name.as_str(), link.near.machine), ("alpha", 2));
    let router = topology.machines[1].ip_commands.join("\n");
    assert!(router.contains("address add 100.64.0.2/30 dev wan"), "{router}");
    assert!(!router.contains("198.51.100"), "the outside address is the carrier's: {router}");
}
