//! Trunks between gateways: facts, and carriers.

use isthmus_plan::Dial;
use isthmus_rpc::contact::carriers_from_facts;
use isthmus_rpc::rendezvous::{Order, OrderWay, Peer, Port, Reply, ReplyWay, Request};
use isthmus_wire::ticket::{Side, Ticket};

use super::*;

fn up(site: &str, outside: &str, site_trunk: bool) -> proto::GatewayUp {
    let outside_address = outside.to_owned();
    proto::GatewayUp { site_trunk, outside_address, ..gateway_up(site, proto::Inbound::Closed) }
}

fn attach(registry: &mut Registry, name: &str, up: &proto::GatewayUp) -> SessionId {
    registry.attach_gateway(&label(&up.site), &label(name), up, key(&up.site)).unwrap().0
}

/// Sites alpha and beta with a node each; alpha's gateway has a port outside.
fn two_sites(policy: Policy) -> Registry {
    let mut registry = Registry::new("demo", policy);
    for (site, outside) in [("alpha", "gw.alpha:7740"), ("beta", "")] {
        let session = attach(&mut registry, "gateway", &up(site, outside, true));
        registry.node_up(session, &node_up("n1", "10.0.0.1:7730")).unwrap();
    }
    registry
}

const ID: ConnectionId = ConnectionId([5; 16]);

fn way(dial: Dial) -> RequestWay {
    match dial {
        Dial::Reverse => RequestWay::Reverse { rendezvous: ID },
        Dial::Punch => RequestWay::Punch { rendezvous: ID, port: port(), ask: true },
        Dial::Relay => RequestWay::Relay { avoid: Vec::new() },
        other => panic!("{other}"),
    }
}

fn port() -> Port {
    Port { address: "192.0.2.1:4000".parse().unwrap(), signature: vec![7; 72] }
}

/// Has a gateway ask for a carrier. Returns what it is to do if that is known at once, and the order
/// to the other gateway.
fn ask(
    registry: &mut Registry,
    (site, gateway): (&str, &str),
    dial: Dial,
) -> Result<(Option<ReplyWay>, OrderWay), String> {
    let to = Peer::Gateway(gateway.parse().unwrap());
    let request = Request { to, initiator: Ipv4Addr::UNSPECIFIED, way: way(dial), segment: Some(1240) };
    let asked = registry.rendezvous((&label(site), &label("gateway")), &request, ID, 1000);
    let (reply, effects) = asked.map_err(|error| error.to_string())?;
    let order = match <[Effect; 1]>::try_from(effects) {
        Ok([Effect::Send { to, message: attach_down::Kind::Dial(order) }]) => {
            assert_eq!(to, Party::gateway(&label(gateway.split_once('.').unwrap().1), &label("gateway")));
            assert_eq!(order.node, "");
            Order::read(order, "").unwrap()
        }
        other => panic!("{other:?}"),
    };
    let asking = Peer::Gateway(format!("gateway.{site}").parse().unwrap());
    assert_eq!((order.initiator, order.segment), (asking, Some(1240)));
    let reply = reply.way.is_some().then(|| Reply::read(reply, "").unwrap().way);
    Ok((reply, order.way))
}

/// The dials by which a gateway may reach another one, and that one's address.
fn dials(registry: &mut Registry, site: &str, gateway: &str) -> (String, Vec<proto::Dial>) {
    let request = proto::LookupRequest { gateway: gateway.to_owned(), ..Default::default() };
    let reply = registry.lookup((&label(site), &label("gateway")), &request).unwrap();
    let plan = carriers_from_facts(&reply.facts.unwrap());
    (reply.node.unwrap().address, plan.steps.iter().map(proto::PlanStep::dial).collect())
}

#[test]
fn facts_name_the_gateway_and_whether_the_sites_keep_trunks() {
    let mut registry = two_sites(Policy::default());
    let facts = |registry: &mut Registry| {
        let request = proto::LookupRequest { name: "n1.beta".to_owned(), ..Default::default() };
        let reply = registry.lookup((&label("alpha"), &label("gateway")), &request).unwrap();
        let facts = reply.facts.unwrap();
        let (acceptor, initiator) = (facts.acceptor.unwrap(), facts.initiator_site.unwrap());
        (acceptor.gateway, acceptor.site_trunk, initiator.site_trunk)
    };
    assert_eq!(facts(&mut registry), ("gateway".to_owned(), true, true));
    // A second gateway of beta keeps no trunks, so the site doesn't.
    let second = attach(&mut registry, "other", &up("beta", "", false));
    assert_eq!(facts(&mut registry), ("gateway".to_owned(), false, true));
    registry.detach(second);
    assert_eq!(facts(&mut registry), ("gateway".to_owned(), true, true));
    // A node that has moved is reached over another gateway.
    let second = attach(&mut registry, "other", &up("beta", "", true));
    let moved = signed(node_up("n1", "10.0.0.1:7730"), 2);
    let came = registry.node_up(second, &moved).unwrap();
    assert_eq!(facts(&mut registry), ("other".to_owned(), true, true));
    let told = |effect: &Effect| matches!(effect, Effect::Send { to: Party::Gateway { site, .. }, message: attach_down::Kind::ContactChanged(_) } if *site == label("alpha"));
    assert!(came.effects.iter().any(told), "{:?}", came.effects);
}

#[test]
fn gateways_are_brought_together_by_each_dial() {
    let mut registry = two_sites(Policy::default());
    let to_alpha = ("beta", "gateway.alpha");
    let to_beta = ("alpha", "gateway.beta");
    assert_eq!(
        dials(&mut registry, "beta", "gateway.alpha"),
        ("gw.alpha:7740".to_owned(), vec![proto::Dial::Direct])
    );
    assert_eq!(dials(&mut registry, "alpha", "gateway.beta"), (String::new(), vec![proto::Dial::Reverse]));
    let no_port = Err("the gateway of site beta has no port outside".to_owned());
    assert_eq!(ask(&mut registry, to_alpha, Dial::Reverse), no_port);
    let ordered = OrderWay::Reverse { rendezvous: ID, address: "gw.alpha:7740".to_owned() };
    assert_eq!(ask(&mut registry, to_beta, Dial::Reverse), Ok((Some(ReplyWay::Awaited), ordered)));
    assert_eq!(
        ask(&mut registry, to_beta, Dial::Relay),
        Err("no relay is attached to the broker".to_owned())
    );
    let relay_up = proto::RelayUp {
        name: "hub".to_owned(),
        address: "hub:7720".to_owned(),
        ..proto::RelayUp::default()
    };
    let key = Secret::new([9; 32]);
    registry.attach_relay(&relay_name("hub"), &relay_up, key.clone()).unwrap();
    let Ok((Some(ReplyWay::Stop(near)), OrderWay::Stop(far))) = ask(&mut registry, to_beta, Dial::Relay)
    else {
        panic!("no relay")
    };
    for (stop, side) in [(near, Side::Initiator), (far, Side::Acceptor)] {
        assert_eq!((stop.address.as_str(), stop.relay.as_deref()), ("hub:7720", Some("hub")));
        let (ticket, mac) = Ticket::decode(&stop.ticket).unwrap();
        assert_eq!(ticket, Ticket { connection: ID, side, expiry_unix_seconds: 1060 });
        assert!(key.verify(&ticket.signed_bytes(), &mac));
    }
}

#[test]
fn gateways_whose_ports_are_known_outside_punch() {
    let mut registry = Registry::new("demo", Policy::default());
    let to_beta = ("alpha", "gateway.beta");
    let sessions = ["alpha", "beta"].map(|site| attach(&mut registry, "gateway", &up(site, "", true)));
    registry.relay("hub");
    let unknown = "how nodes of site alpha are seen from outside is not known".to_owned();
    assert_eq!(ask(&mut registry, to_beta, Dial::Punch), Err(unknown));
    for session in sessions {
        registry.gateway_seen(session, proto::Mapping::EndpointIndependent).unwrap();
    }
    let (_, found) = dials(&mut registry, "alpha", "gateway.beta");
    assert_eq!(found, [proto::Dial::Punch, proto::Dial::Relay]);
    let order = match ask(&mut registry, to_beta, Dial::Punch) {
        Ok((None, OrderWay::Punch { rendezvous, port, ask, .. })) => (rendezvous, port, ask),
        other => panic!("{other:?}"),
    };
    assert_eq!(order, (ID, port(), true));
}

#[test]
fn carriers_are_refused_where_a_site_or_the_grid_has_none() {
    let never = |text: &str| {
        let sites = ["alpha", "beta"].map(str::to_owned);
        let pair = PairConfig { sites, never: vec![text.to_owned()], only: None, trunk: None };
        two_sites(Policy { forbidden: ForbiddenPairs::new(&[pair]).unwrap(), ..Policy::default() })
    };
    let to_beta = ("alpha", "gateway.beta");
    let refused = |registry: &mut Registry, to| ask(registry, to, Dial::Reverse).unwrap_err();
    let forbidden = "forbidden between sites alpha and beta by the broker's configuration";
    assert_eq!(refused(&mut never("trunk"), to_beta), forbidden);
    assert_eq!(refused(&mut never("two-gateway"), to_beta), forbidden);
    assert_eq!(refused(&mut never("reverse"), to_beta), forbidden);
    assert!(ask(&mut never("relay"), to_beta, Dial::Reverse).is_ok());
    let mut registry = two_sites(Policy::default());
    assert_eq!(
        refused(&mut registry, ("beta", "other.alpha")),
        "gateway other.alpha is not attached to the broker"
    );
    assert_eq!(
        refused(&mut registry, ("gamma", "gateway.alpha")),
        "gateway gateway.gamma is not attached to the broker"
    );
    assert_eq!(
        refused(&mut registry, ("alpha", "gateway.alpha")),
        "a site's gateways keep no trunks with each other"
    );
    attach(&mut registry, "gateway", &up("gamma", "gw.gamma:7740", false));
    let off = "the gateways of site gamma keep no trunks with other sites";
    assert_eq!(refused(&mut registry, ("alpha", "gateway.gamma")), off);
    assert_eq!(refused(&mut registry, ("gamma", "gateway.alpha")), off);
}
