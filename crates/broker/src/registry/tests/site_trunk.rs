//! Trunks between gateways: facts, and carriers.

use isthmus_net::rendezvous::site_trunk::{Order, OrderWay, Reply, Request};
use isthmus_plan::Dial;
use isthmus_wire::ticket::{Side, Ticket};

use super::*;
use crate::config::PairConfig;

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

fn ask(registry: &mut Registry, (site, gateway): (&str, &str), dial: Dial) -> Result<(Reply, Order), String> {
    let request = Request { gateway: gateway.parse().unwrap(), dial, avoid: Vec::new(), segment: Some(1240) };
    let from = (&label(site), &label("gateway"));
    let asked = registry.site_trunk(from, &request, ConnectionId([5; 16]), 1000);
    let (reply, effects) = asked.map_err(|error| error.to_string())?;
    let order = match <[Effect; 1]>::try_from(effects) {
        Ok([Effect::Send { to, message: attach_down::Kind::SiteTrunk(order) }]) => {
            assert_eq!(to, Party::gateway(&label(gateway.split_once('.').unwrap().1), &label("gateway")));
            Order::try_from(order).unwrap()
        }
        other => panic!("{other:?}"),
    };
    Ok((Reply::try_from(reply).unwrap(), order))
}

#[test]
fn facts_name_the_gateway_and_whether_the_sites_keep_trunks() {
    let mut registry = two_sites(Policy::default());
    let facts = |registry: &mut Registry| {
        let request = proto::LookupRequest { name: "n1.beta".to_owned(), virtual_address: 0 };
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
    let gateway = "gateway.beta".parse().unwrap();
    let expected = Order { gateway, way: OrderWay::Expect, segment: Some(1240) };
    assert_eq!(
        ask(&mut registry, to_alpha, Dial::Direct),
        Ok((Reply::Connect("gw.alpha:7740".to_owned()), expected))
    );
    let no_port = Err("the gateway of site beta has no port outside".to_owned());
    assert_eq!(ask(&mut registry, to_beta, Dial::Direct), no_port);
    assert_eq!(ask(&mut registry, to_alpha, Dial::Reverse), no_port);
    let ordered = Order {
        gateway: "gateway.alpha".parse().unwrap(),
        way: OrderWay::Connect("gw.alpha:7740".to_owned()),
        segment: Some(1240),
    };
    assert_eq!(ask(&mut registry, to_beta, Dial::Reverse), Ok((Reply::Await, ordered)));
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
    registry.attach_relay(&label("hub"), &relay_up, key.clone()).unwrap();
    let Ok((Reply::Relay(near), Order { way: OrderWay::Relay(far), gateway, segment: Some(1240) })) =
        ask(&mut registry, to_beta, Dial::Relay)
    else {
        panic!("no relay")
    };
    assert_eq!(gateway, "gateway.alpha".parse().unwrap());
    for (stop, side) in [(near, Side::Initiator), (far, Side::Acceptor)] {
        assert_eq!((stop.address.as_str(), stop.relay.as_deref()), ("hub:7720", Some("hub")));
        let (ticket, mac) = Ticket::decode(&stop.ticket).unwrap();
        let want = Ticket { connection: ConnectionId([5; 16]), side, expiry_unix_seconds: 1060 };
        assert_eq!(ticket, want);
        assert!(key.verify(&ticket.signed_bytes(), &mac));
    }
}

#[test]
fn carriers_are_refused_where_a_site_or_the_grid_has_none() {
    let never = |text: &str| {
        let sites = ["alpha", "beta"].map(str::to_owned);
        let pair = PairConfig { sites, never: vec![text.to_owned()], only: None, trunk: None };
        two_sites(Policy { forbidden: ForbiddenPairs::new(&[pair]).unwrap(), ..Policy::default() })
    };
    let to_alpha = ("beta", "gateway.alpha");
    let refused = |registry: &mut Registry, to| ask(registry, to, Dial::Direct).unwrap_err();
    let forbidden = "forbidden between sites beta and alpha by the broker's configuration";
    assert_eq!(refused(&mut never("trunk"), to_alpha), forbidden);
    assert_eq!(refused(&mut never("two-gateway"), to_alpha), forbidden);
    assert_eq!(refused(&mut never("direct"), to_alpha), forbidden);
    assert!(ask(&mut never("relay"), to_alpha, Dial::Direct).is_ok());
    let mut registry = two_sites(Policy::default());
    assert_eq!(
        refused(&mut registry, ("beta", "other.alpha")),
        "gateway other of site alpha is not attached to the broker"
    );
    assert_eq!(
        refused(&mut registry, ("gamma", "gateway.alpha")),
        "gateway gateway of site gamma is not attached to the broker"
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
