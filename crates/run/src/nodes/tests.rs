use super::*;

fn grid() -> Candidates {
    let node = |name: &str, owner: &str, up: bool| Node {
        name: name.to_owned(),
        owner: owner.to_owned(),
        slots: 2,
        up,
        ..Node::default()
    };
    Candidates {
        own: "n1.beta".to_owned(),
        nodes: vec![
            node("n1.alpha", "ada", true),
            node("n2.alpha", "ada", false),
            node("n1.beta", "ada", true),
            node("n1.gamma", "bob", true),
        ],
        sites: vec!["alpha".to_owned(), "empty".to_owned()],
        without_broker: None,
    }
}

#[test]
fn choices() {
    for (name, wanted, want) in [
        ("all that are fit, the head first", &[][..], Ok("n1.beta/2 n1.alpha/2")),
        ("a site", &["alpha"], Ok("n1.beta/0 n1.alpha/2")),
        ("named twice", &["n1.alpha", "alpha", "n1.beta"], Ok("n1.beta/2 n1.alpha/2")),
        (
            "down",
            &["n2.alpha"],
            Err("n2.alpha cannot take part: its agent is not attached (`isthmus status` there says why; \
                 `isthmus up` starts one that doesn't run)"),
        ),
        (
            "another owner's",
            &["n1.gamma"],
            Err(
                "n1.gamma cannot take part: its agent works for \"bob\", this node's for \"ada\" (name other \
                 nodes with --nodes)",
            ),
        ),
        ("of the own site, without its name", &["n1", "n1.alpha"], Ok("n1.beta/2 n1.alpha/2")),
        (
            "unknown",
            &["delta"],
            Err(
                "\"delta\" is neither a node nor a site of this grid; `isthmus status` lists the sites, and \
                 `isthmus status SITE` the nodes of one",
            ),
        ),
        ("a site without nodes of one's own", &["empty", "n1.alpha"], Ok("n1.beta/0 n1.alpha/2")),
        (
            "nothing else",
            &["empty"],
            Err(
                "not started: no node can take part; without site alpha: n2.alpha: its agent is not attached \
                 (`isthmus status` there says why; `isthmus up` starts one that doesn't run)",
            ),
        ),
    ] {
        let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let got = choose(&grid(), &wanted, None).map(|nodes| {
            nodes.iter().map(|node| format!("{}/{}", node.name, node.slots)).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(
            got.map_err(|error| error.to_string()),
            want.map(str::to_owned).map_err(str::to_owned),
            "{name}"
        );
    }
}

#[test]
fn a_gateway_alone_does_not_know_all_names() {
    let gateway = "gateway.beta".to_owned();
    let answer = isthmus_wire::proto::WithoutBroker { gateway, ..Default::default() };
    let alone = Candidates { without_broker: Some(answer), ..grid() };
    let error = choose(&alone, &["n7.alpha".to_owned()], None).unwrap_err().to_string();
    assert!(
        error.starts_with("\"n7.alpha\" is not known here: the broker can't be reached, and gateway.beta ")
    );
    assert!(choose(&alone, &["n1.alpha".to_owned()], None).is_ok());
}

#[test]
fn who_is_left_out_is_named() {
    let mut grid = grid();
    let chosen = choose(&grid, &[], None).unwrap();
    let want = "goes without n2.alpha: its agent is not attached";
    assert_eq!(left_out(&grid, &chosen).unwrap(), want);
    // A site of which nothing is left.
    for node in ["n1.delta", "n2.delta"] {
        grid.nodes.push(Node { name: node.to_owned(), owner: "ada".to_owned(), ..Node::default() });
    }
    let want = "goes without site delta: n2.alpha, n1.delta, n2.delta: its agent is not attached";
    assert_eq!(left_out(&grid, &chosen).unwrap(), want);
    // Two reasons share the line.
    let other = Node { name: "n3.beta".to_owned(), owner: "ada".to_owned(), up: true, ..Node::default() };
    grid.nodes.push(Node { version: "2".to_owned(), ..other });
    let want = want.strip_prefix("goes ").unwrap();
    let want = format!("goes without n3.beta: it runs isthmus 2, this node ; {want}");
    assert_eq!(left_out(&grid, &chosen), Some(want));
    grid.nodes.pop();
    grid.nodes.retain(|node| node.up);
    assert_eq!(left_out(&grid, &chosen), None);
}

#[test]
fn jobs_of_fewer_nodes() {
    let down = format!("without n2.alpha: its agent is not attached ({UNATTACHED})");
    let wants = |there: &str, least| {
        format!("not started: only {there} can take part, and --min-nodes wants {least}")
    };
    let lower = "or give a smaller --min-nodes";
    for (name, wanted, least, want) in [
        ("all, enough", &[][..], 2, Ok("n1.beta n1.alpha")),
        ("all, too few", &[], 3, Err(format!("{}; {down}, {lower}", wants("2 nodes", 3)))),
        ("one that is down, enough", &["n1.alpha", "n2.alpha"], 1, Ok("n1.beta n1.alpha")),
        (
            "one that is down, too few: the head isn't named",
            &["n1.alpha", "n2.alpha"],
            2,
            Err(format!("{}; {down}, {lower}", wants("1 node", 2))),
        ),
        (
            "one of another owner",
            &["n1.alpha", "n1.gamma"],
            1,
            Err("n1.gamma cannot take part: its agent works for \"bob\", this node's for \"ada\" (name other \
                 nodes with --nodes)"
                .to_owned()),
        ),
    ] {
        let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let got = choose(&grid(), &wanted, Some(least)).map_err(|error| error.to_string());
        let got = got.map(|nodes| nodes.into_iter().map(|node| node.name).collect::<Vec<_>>().join(" "));
        assert_eq!(got, want.map(str::to_owned), "{name}");
    }
    let mut all_up = grid();
    all_up.nodes.retain(|node| node.up);
    let got = choose(&all_up, &[], Some(3)).unwrap_err().to_string();
    assert_eq!(got, format!("{}: name other nodes with --nodes, {lower}", wants("2 nodes", 3)));
}

/// The broker knows the name of such a node, and no more.
#[test]
fn a_node_that_has_not_attached_since_the_broker_started() {
    let mut grid = grid();
    grid.nodes.retain(|node| node.up);
    grid.nodes.push(Node { name: "n9.alpha".to_owned(), ..Node::default() });
    let wanted = ["n1.alpha", "n9.alpha"].map(str::to_owned);
    let error = choose(&grid, &wanted, None).unwrap_err();
    assert!(error.may_pass() && error.to_string().starts_with("n9.alpha cannot take part: "), "{error}");
    let chosen = choose(&grid, &wanted, Some(1)).unwrap();
    let line = left_out(&grid, &chosen);
    assert_eq!(line.as_deref(), Some("goes without n9.alpha: its agent is not attached"));
}

#[test]
fn a_head_that_is_not_attached() {
    let grid = Candidates { own: "n9.beta".to_owned(), ..grid() };
    assert_eq!(choose(&grid, &[], None), Err(ChoiceError::NotAttached));
}
