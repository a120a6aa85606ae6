//! Lists of records in pages, and the directory.

use super::*;

/// A registry of two sites with `count` nodes each, one of which belongs to another owner.
fn with_nodes(count: usize) -> Registry {
    let mut registry = registry(&[]);
    for site in ["beta", "alpha"] {
        let session = registry.gateway(site);
        for node in 0..count {
            let owner = if node == 1 { "bob" } else { "anna" };
            let up = proto::NodeUp {
                owner: owner.to_owned(),
                slots: 2,
                ..node_up(&format!("n{node}"), "10.0.0.1:7730")
            };
            registry.node_up(session, &up).unwrap();
        }
        registry.node_down(session, &proto::NodeDown { node: "n0".to_owned() });
    }
    registry
}

/// All nodes, page by page, with the size of each page.
fn pages(registry: &Registry, filter: &proto::NodeFilter, page_size: u32) -> (Vec<String>, Vec<usize>) {
    let (mut names, mut sizes, mut page_token) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let records = Some(Records::Nodes(filter.clone()));
        let reply = registry
            .list(&View::All, &proto::ListRequest { page_token, page_size, records, ..Default::default() })
            .unwrap();
        assert!(bounds::encoded_len(&reply) < bounds::MESSAGE_BYTES);
        sizes.push(reply.nodes.len());
        names.extend(reply.nodes.into_iter().map(|node| node.name));
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            return (names, sizes);
        }
    }
}

#[test]
fn nodes_are_listed_by_name_site_and_owner() {
    let registry = with_nodes(3);
    let filter = |names: &[&str], sites: &[&str], owner: &str, up| proto::NodeFilter {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        sites: sites.iter().map(|name| (*name).to_owned()).collect(),
        owner: owner.to_owned(),
        up,
        ..Default::default()
    };
    for (filter, want) in [
        (filter(&[], &[], "", false), "n0.alpha n1.alpha n2.alpha n0.beta n1.beta n2.beta"),
        (filter(&[], &[], "", true), "n1.alpha n2.alpha n1.beta n2.beta"),
        (filter(&[], &[], "anna", true), "n2.alpha n2.beta"),
        (filter(&[], &["beta"], "", false), "n0.beta n1.beta n2.beta"),
        (filter(&["n2.alpha"], &["beta"], "anna", true), "n2.alpha n2.beta"),
        (filter(&["n1.beta", "n1.beta", "n7.beta", "?"], &[], "", false), "n1.beta"),
        (filter(&[], &["delta"], "", false), ""),
    ] {
        for page_size in [0, 1, 2, 100] {
            let (names, sizes) = pages(&registry, &filter, page_size);
            assert_eq!(names.join(" "), want, "{filter:?} {page_size}");
            let most = if page_size == 0 { 6 } else { page_size as usize };
            assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");
        }
    }
}

/// The node has its address from before the broker started.
#[test]
fn a_node_that_has_not_attached_since_the_broker_started_is_listed_by_its_name() {
    let mut registry = with_nodes(2);
    let Assignment { node, address, .. } = registry.addresses.propose(&"n7.beta".parse().unwrap()).unwrap();
    registry.addresses.fold_address(node, address);
    let by_name = proto::NodeFilter { names: vec!["n7.beta".to_owned()], ..Default::default() };
    let of_site = proto::NodeFilter { sites: vec!["beta".to_owned()], ..Default::default() };
    for (filter, want) in [
        (by_name.clone(), "n7.beta"),
        (of_site, "n0.beta n1.beta"),
        (proto::NodeFilter { up: true, ..by_name.clone() }, ""),
        (proto::NodeFilter { owner: "anna".to_owned(), ..by_name }, ""),
    ] {
        assert_eq!(pages(&registry, &filter, 0).0.join(" "), want, "{filter:?}");
    }
}

#[test]
fn a_list_goes_on_where_it_was_while_nodes_come_and_go() {
    let mut registry = with_nodes(4);
    let nodes = |page_token| proto::ListRequest {
        page_token,
        page_size: 2,
        records: Some(Records::Nodes(proto::NodeFilter { up: true, ..Default::default() })),
        ..Default::default()
    };
    let names = |reply: &proto::ListReply| {
        reply.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(" ")
    };
    let first = registry.list(&View::All, &nodes(Vec::new())).unwrap();
    assert_eq!(names(&first), "n1.alpha n2.alpha");
    let alpha = SessionId(2);
    registry.node_down(alpha, &proto::NodeDown { node: "n2".to_owned() });
    registry.node_up(alpha, &node_up("n0", "10.0.0.1:7730")).unwrap();
    registry.node_up(alpha, &node_up("n9", "10.0.0.1:7730")).unwrap();
    let second = registry.list(&View::All, &nodes(first.next_page_token)).unwrap();
    assert_eq!(names(&second), "n3.alpha n9.alpha", "none twice, none left out that stays");
}

#[test]
fn a_page_ends_where_its_bytes_do() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    let sight = proto::RelaySight { failure: "x".repeat(bounds::TEXT), ..Default::default() };
    let seen = proto::Seen { relays: vec![sight; bounds::SIGHTS], ..Default::default() };
    for node in 0..50 {
        let up =
            proto::NodeUp { seen: Some(seen.clone()), ..node_up(&format!("n{node:02}"), "10.0.0.1:7730") };
        registry.node_up(alpha, &up).unwrap();
    }
    let (names, sizes) = pages(&registry, &proto::NodeFilter { seen: true, ..Default::default() }, 0);
    assert!(names.len() == 50 && names.is_sorted() && sizes.len() > 3, "{sizes:?}");
    let (_, sizes) = pages(&registry, &proto::NodeFilter::default(), 0);
    assert_eq!(sizes, [50], "without what they found out");
}

#[test]
fn malformed_requests_are_refused() {
    let registry = with_nodes(1);
    let nodes = || Some(Records::Nodes(proto::NodeFilter::default()));
    let names = |count: usize| {
        Some(Records::Nodes(proto::NodeFilter { names: vec!["n".to_owned(); count], ..Default::default() }))
    };
    for (name, page_token, records, want) in [
        ("nothing", vec![], None, "the request names no records"),
        ("no text", vec![0xff], nodes(), "this page token is not of this grid"),
        ("no node", b"whatever".to_vec(), nodes(), "this page token is not one of a list of nodes"),
        (
            "many names",
            vec![],
            names(bounds::NAMES + 1),
            "names in a request: 257 is too many, at most 256 may be sent",
        ),
    ] {
        let request = proto::ListRequest { page_token, records, ..Default::default() };
        assert_eq!(registry.list(&View::All, &request).unwrap_err().to_string(), want, "{name}");
    }
}

#[test]
fn sites_have_sums() {
    let mut registry = with_nodes(4);
    let job = proto::JobReport {
        job: "01".repeat(16),
        nodes: vec!["n1.alpha".to_owned()],
        owner: "bob".to_owned(),
        ..Default::default()
    };
    registry.job_report(SessionId(2), job).unwrap();
    let sites = registry.grid().sites;
    let sums: Vec<_> = sites
        .iter()
        .map(|site| (site.name.as_str(), site.nodes_up, site.nodes_down, site.slots, site.jobs))
        .collect();
    assert_eq!(sums, [("alpha", 3, 1, 6, 1), ("beta", 3, 1, 6, 0)]);
    let one = registry.all(Records::Sites(proto::SiteFilter { names: vec!["beta".to_owned()] })).sites;
    assert_eq!((one.len(), one[0].gateways[0].nodes), (1, 3));
    for (site, job, want) in [
        ("alpha", String::new(), 1),
        ("beta", String::new(), 0),
        ("", String::new(), 1),
        ("", "01".repeat(16), 1),
        ("alpha", "01".repeat(16), 1),
        ("beta", "01".repeat(16), 0),
        ("", "02".repeat(16), 0),
    ] {
        let filter = proto::JobFilter { site: site.to_owned(), job: job.clone() };
        assert_eq!(registry.all(Records::Jobs(filter)).jobs.len(), want, "{site} {job}");
    }
}

#[test]
fn relays_are_listed_with_the_ports_that_answered_other_sites() {
    let mut registry = registry(&[]);
    registry.relay("hub");
    for (site, answered) in [("alpha", vec![443]), ("beta", vec![7730, 12_345]), ("gamma", vec![80])] {
        let session = registry.gateway(site);
        let host = proto::PortAnswers { relay: "hub".to_owned(), answered, silent: vec![80] };
        let seen = proto::Seen { egress: vec![host], ..Default::default() };
        registry
            .node_up(session, &proto::NodeUp { seen: Some(seen), ..node_up("n1", "10.0.0.1:7730") })
            .unwrap();
    }
    for (site, want) in [("alpha", &[80, 7730][..]), ("gamma", &[443, 7730]), ("", &[])] {
        let filter = proto::RelayFilter { asking_site: site.to_owned() };
        assert_eq!(registry.all(Records::Relays(filter)).relays[0].answered, want, "{site}");
    }
}

/// The names in the directory that gateways are sent; empty if it isn't sent.
fn directory(effects: &[Effect]) -> Vec<String> {
    let names = |entries: &[proto::DirectoryEntry]| {
        entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>()
    };
    let line = |effect: &Effect| match effect {
        Effect::Send { to, message: attach_down::Kind::Directory(directory) } => {
            let all = [names(&directory.relays), names(&directory.gateways)].concat();
            Some(format!("{} {}: {}", who(to), directory.revision, all.join(" ")))
        }
        _ => None,
    };
    effects.iter().filter_map(line).collect()
}

#[test]
fn the_directory_is_sent_at_attachment_and_when_it_has_changed() {
    let mut registry = registry(&[]);
    let (_, effects) =
        registry.come("alpha", "gateway", &gateway_up("alpha", proto::Inbound::Closed)).unwrap();
    assert_eq!(directory(&effects), ["alpha 0: "]);
    assert_eq!(registry.directory_due(), []);
    let (hub, _) = registry.relay("hub");
    let up = proto::GatewayUp {
        outside_address: "b:7740".to_owned(),
        ..gateway_up("beta", proto::Inbound::Closed)
    };
    registry.come("beta", "gateway", &up).unwrap();
    let all = "hub gateway.beta";
    assert_eq!(directory(&registry.directory_due()), [format!("alpha 1: {all}"), format!("beta 1: {all}")]);
    assert_eq!(registry.directory_due(), []);
    let alpha = SessionId(1);
    registry.node_up(alpha, &node_up("n1", "10.0.0.1:7730")).unwrap();
    assert_eq!(registry.directory_due(), [], "nodes are not in it");
    registry.detach(hub);
    assert_eq!(directory(&registry.directory_due()).len(), 2);
    for gateway in 0..100 {
        let up = proto::GatewayUp {
            outside_address: "o:1".to_owned(),
            site: format!("s{gateway}"),
            ..Default::default()
        };
        registry.come(&format!("s{gateway}"), "gateway", &up).unwrap();
    }
    let effects = registry.directory_due();
    assert_eq!(effects.len(), 102);
    let Effect::Send { message: attach_down::Kind::Directory(directory), .. } = &effects[0] else { panic!() };
    assert_eq!(directory.gateways.len(), bounds::DIRECTORY_GATEWAYS);
}

#[test]
fn gateways_of_a_site_and_relays_of_a_grid_are_bounded() {
    let mut registry = registry(&[]);
    let up = gateway_up("alpha", proto::Inbound::Closed);
    let sessions: Vec<_> = (0..bounds::GATEWAYS_PER_SITE)
        .map(|number| registry.come("alpha", &format!("g{number}"), &up).unwrap().0)
        .collect();
    let refused = registry.come("alpha", "one-more", &up).unwrap_err().to_string();
    assert_eq!(refused, "site alpha has 16 other gateways attached already");
    registry.detach(sessions[3]);
    registry.come("alpha", "one-more", &up).unwrap();
    assert_eq!(registry.grid().sites[0].gateways.len(), bounds::GATEWAYS_PER_SITE);
}

#[test]
fn an_owner_has_a_bounded_number_of_nodes() {
    let mut registry = registry(&[]);
    let session = registry.gateway("last");
    let up = |name: &str, owner: &str| proto::NodeUp { owner: owner.to_owned(), ..node_up(name, "a:1") };
    registry.node_up(session, &up("n0", "anna")).unwrap();
    // The nodes have come as if to gateways of four other sites.
    for index in 1..bounds::NODES_PER_OWNER {
        let name: GridName = format!("n{index}.s{}", index / bounds::NODES_PER_SITE).parse().unwrap();
        let address = Ipv4Addr::from_bits(0xf060_0000 + u32::try_from(index).unwrap());
        let contact = up(name.node.as_str(), "anna");
        let entry = NodeEntry { name, gateway: label("gateway"), presence: Presence::Up, contact };
        registry.nodes.insert(VirtualAddress::new(address).unwrap(), entry);
    }
    let refused = registry.node_up(session, &up("n1", "anna")).unwrap_err();
    assert_eq!(refused.0, "user \"anna\" has 65536 nodes in the grid already");
    registry.node_up(session, &up("n1", "berta")).unwrap();
    // A node that is known comes again, and one that was removed may change its owner.
    registry.node_up(session, &up("n0", "anna")).unwrap();
    registry.node_up(session, &up("n0", "berta")).unwrap();
    registry.node_up(session, &up("n2", "anna")).unwrap();
}
