//! The registry under sequences of messages.

mod gateways;
mod lists;
mod relays;
mod revoked;
mod several;
mod site_paths;
mod site_trunk;

use std::net::Ipv4Addr;

use isthmus_rpc::probe::{ProbeTarget, Task};
use isthmus_rpc::rendezvous::{Peer, Request, RequestWay};
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{dial_request, rendezvous_reply};
use isthmus_wire::{ConnectionId, JobId, VirtualAddress, bounds};
use prost::Message as _;

use super::*;
use crate::records::{Fact, GatewayRecord};

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn relay_name(text: &str) -> RelayName {
    text.parse().unwrap()
}

fn registry(trusted: &[[&str; 2]]) -> Registry {
    let trusted: Vec<_> = trusted.iter().map(|pair| pair.map(str::to_owned)).collect();
    let policy = Policy { trusted: TrustedPairs::new(&trusted).unwrap(), ..Policy::default() };
    Registry::new("demo", policy)
}

fn gateway_up(site: &str, inbound: proto::Inbound) -> proto::GatewayUp {
    proto::GatewayUp { site: site.to_owned(), inbound: inbound.into(), ..proto::GatewayUp::default() }
}

/// The key of a site's gateway.
fn key(site: &str) -> Secret {
    Secret::new([site.len() as u8 + 100; 32])
}

fn node_up(node: &str, address: &str) -> proto::NodeUp {
    let seen = proto::Seen { way_out: proto::WayOut::Yes.into(), ..proto::Seen::default() };
    proto::NodeUp {
        node: node.to_owned(),
        address: address.to_owned(),
        seen: Some(seen),
        ..proto::NodeUp::default()
    }
}

/// An announcement by an agent that has signed its addresses and this number of its attachment.
/// Whoever feeds the registry has verified it.
fn signed(up: proto::NodeUp, attachment: u64) -> proto::NodeUp {
    let addresses = [&up.address, &up.outside_address];
    let addresses = addresses.into_iter().filter(|address| !address.is_empty()).cloned().collect();
    let contact = proto::AgentContact { addresses, ..Default::default() }.encode_to_vec();
    let signed = Some(proto::SignedContact { contact, ..Default::default() });
    proto::NodeUp { attachment, signed, ..up }
}

/// A new attachment; a test's attachments are numbered in their order.
fn next_session(registry: &mut Registry) -> SessionId {
    registry.last_session += 1;
    crate::records::Lease(registry.last_session)
}

/// What comes of an announcement.
#[derive(Debug)]
struct Came {
    effects: Vec<Effect>,
}

/// Writes records and folds them at once, as the broker does over its store.
impl Registry {
    fn attach_gateway(
        &mut self,
        site: &Label,
        name: &Label,
        up: &proto::GatewayUp,
        new_key: Secret,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        let record = self.gateway_record(site, name, up, &new_key)?;
        let session = next_session(self);
        let (site, name) = (site.clone(), name.clone());
        Ok((session, self.fold(Fact::Gateway { site, name, record: Some((session, record)) })))
    }

    fn attach_relay(
        &mut self,
        name: &RelayName,
        up: &proto::RelayUp,
        new_key: Secret,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        let record = self.relay_record(name, up, &new_key)?;
        let session = next_session(self);
        Ok((session, self.fold(Fact::Relay { name: name.clone(), record: Some((session, record)) })))
    }

    /// Ends an attachment: deletes those records that it still has.
    fn detach(&mut self, session: SessionId) -> Vec<Effect> {
        if let Some((site, name)) = self.gateway_of(session) {
            let own = |node: &&NodeEntry| node.name.site == site && node.gateway == name;
            let nodes: Vec<_> = self.nodes.values().filter(own).map(|node| node.name.clone()).collect();
            let effects = self.fold(Fact::Gateway { site, name, record: None });
            let jobs = self.job_leases.iter().filter(|(_, lease)| **lease == session).map(|(job, _)| *job);
            for job in jobs.collect::<Vec<_>>() {
                assert_eq!(self.fold(Fact::Job { job, record: None }), []);
            }
            for node in nodes {
                assert_eq!(self.fold(Fact::Node { node, record: None }), []);
            }
            return effects;
        }
        let relay = self.relays.iter().find(|(_, relay)| relay.session == Some(session));
        let relay = relay.map(|(name, _)| name.clone());
        relay.map(|name| self.fold(Fact::Relay { name, record: None })).unwrap_or_default()
    }

    fn node_up(&mut self, session: SessionId, up: &proto::NodeUp) -> Result<Came, Refused> {
        let Some((node, record)) = self.node_record(session, up)? else {
            return Ok(Came { effects: Vec::new() });
        };
        self.addresses.assign(&node).unwrap();
        Ok(Came { effects: self.fold(Fact::Node { node, record: Some(record) }) })
    }

    fn node_down(&mut self, session: SessionId, down: &proto::NodeDown) -> Vec<Effect> {
        let record = self.node_down_record(session, down);
        record.map(|(node, record)| self.fold(Fact::Node { node, record: Some(record) })).unwrap_or_default()
    }

    fn job_report(&mut self, session: SessionId, report: proto::JobReport) -> Result<(), Refused> {
        let job: JobId = report.job.parse().map_err(|error| Refused(format!("{error}")))?;
        match self.job_change(session, &job, &report)? {
            Some(JobChange::Running(record)) => {
                self.job_leases.insert(job, session);
                let record = Some((label(&record.site), record.report));
                assert_eq!(self.fold(Fact::Job { job, record }), []);
            }
            Some(JobChange::Ended) => assert_eq!(self.fold(Fact::Job { job, record: None }), []),
            None => {}
        }
        Ok(())
    }

    fn gateway_reach(&mut self, session: SessionId, reach: proto::Reach) -> Result<Vec<Effect>, Refused> {
        let record = self.reach_record(session, self.recorded(session)?, &reach)?;
        self.fold_found(session, record)
    }

    fn gateway_seen(&mut self, session: SessionId, mapping: proto::Mapping) -> Result<Vec<Effect>, Refused> {
        let seen = proto::Seen { mapping: mapping.into(), ..proto::Seen::default() };
        let record = self.seen_record(session, self.recorded(session)?, &seen)?;
        self.fold_found(session, record)
    }

    /// The record of an attached gateway.
    fn recorded(&self, session: SessionId) -> Result<GatewayRecord, Refused> {
        let (site, name) = self.attached_gateway(session)?;
        let entry = &self.sites[&site].gateways[&name];
        let up = proto::GatewayUp {
            outside_address: entry.outside_address.clone(),
            site_trunk: entry.site_trunk,
            ..gateway_up(site.as_str(), proto::Inbound::Closed)
        };
        Ok(GatewayRecord { up, key: entry.key.expose().to_vec(), outside_reach: None, mapping: 0 })
    }

    fn fold_found(&mut self, session: SessionId, record: GatewayRecord) -> Result<Vec<Effect>, Refused> {
        let (site, name) = self.attached_gateway(session)?;
        Ok(self.fold(Fact::Gateway { site, name, record: Some((session, record)) }))
    }
}

impl Registry {
    fn gateway(&mut self, site: &str) -> SessionId {
        self.come(site, "gateway", &gateway_up(site, proto::Inbound::Closed)).unwrap().0
    }

    fn come(
        &mut self,
        site: &str,
        name: &str,
        up: &proto::GatewayUp,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        self.attach_gateway(&label(site), &label(name), up, key(site))
    }

    fn relay(&mut self, name: &str) -> (SessionId, Vec<Effect>) {
        let up = proto::RelayUp {
            name: name.to_owned(),
            address: format!("{name}.example.org:7720"),
            ..proto::RelayUp::default()
        };
        self.attach_relay(&relay_name(name), &up, Secret::new([name.len() as u8; 32])).unwrap()
    }

    /// A lookup by the gateway of a site.
    fn find(&mut self, site: &str, name: &str) -> Result<proto::LookupReply, LookupError> {
        let request = proto::LookupRequest { name: name.to_owned(), ..proto::LookupRequest::default() };
        self.lookup((&label(site), &label("gateway")), &request)
    }

    /// All records of a kind, on a single page.
    fn all(&self, records: Records) -> proto::ListReply {
        let reply = self
            .list(&View::All, &proto::ListRequest { records: Some(records), ..Default::default() })
            .unwrap();
        assert!(reply.next_page_token.is_empty());
        reply
    }

    /// All records that the registry lists.
    fn grid(&self) -> Everything {
        let paths = |between_sites| {
            self.all(Records::Paths(proto::PathFilter { between_sites, ..Default::default() })).paths
        };
        Everything {
            sites: self.all(Records::Sites(proto::SiteFilter::default())).sites,
            nodes: self.all(Records::Nodes(proto::NodeFilter::default())).nodes,
            jobs: self.all(Records::Jobs(proto::JobFilter::default())).jobs,
            paths: paths(false),
            site_paths: paths(true),
        }
    }

    fn meet(
        &mut self,
        site: &str,
        from: &str,
        to: &str,
    ) -> Result<(proto::RendezvousReply, Vec<Effect>), String> {
        let address = |name: &str| {
            let address = self.addresses.address(&name.parse().unwrap());
            address.map_or(Ipv4Addr::UNSPECIFIED, VirtualAddress::ip)
        };
        let way = RequestWay::Relay { avoid: Vec::new() };
        let (initiator, destination) = (address(from), address(to));
        let request = Request { initiator, to: Peer::Node(destination), way, segment: None };
        self.rendezvous((&label(site), &label("gateway")), &request, ConnectionId([7; 16]), 1000)
            .map_err(|error| error.to_string())
    }
}

/// The relay that a reply names.
fn at_relay(reply: proto::RendezvousReply) -> proto::AtRelay {
    match reply.way {
        Some(rendezvous_reply::Way::Relay(at)) => at,
        other => panic!("{other:?}"),
    }
}

/// The lists that the registry has.
struct Everything {
    sites: Vec<proto::Site>,
    nodes: Vec<proto::Node>,
    jobs: Vec<proto::JobReport>,
    paths: Vec<proto::PathReport>,
    site_paths: Vec<proto::PathReport>,
}

/// A party as text: a relay's name, a gateway's site, or `NAME.SITE` for a gateway with a name of
/// its own.
fn who(party: &Party) -> String {
    match party {
        Party::Relay(name) => name.to_string(),
        Party::Gateway { site, name } if name.as_str() == "gateway" => site.to_string(),
        Party::Gateway { site, name } => format!("{name}.{site}"),
    }
}

/// Effects, a line for each, without the directory that every gateway receives when it attaches.
fn texts(effects: &[Effect]) -> Vec<String> {
    let is_passed_on = |effect: &&Effect| {
        use attach_down::Kind::{Directory, SiteGateways};
        matches!(effect, Effect::Send { message: Directory(_) | SiteGateways(_), .. })
    };
    let line = |effect: &Effect| match effect {
        Effect::Close { session, reason } => format!("close {}: {reason}", session.0),
        Effect::Send { to, message: attach_down::Kind::Welcome(welcome) } => {
            format!("{} welcome {}", who(to), std::net::Ipv4Addr::from(welcome.virtual_address))
        }
        Effect::Send { to, message: attach_down::Kind::ContactChanged(changed) } => {
            format!("{} changed {}", who(to), std::net::Ipv4Addr::from(changed.virtual_address))
        }
        Effect::Send { to, message: attach_down::Kind::RelayKey(_) } => format!("{} key", who(to)),
        Effect::Send { to, message } => format!("{} {message:?}", who(to)),
    };
    effects.iter().filter(|effect| !is_passed_on(effect)).map(line).collect()
}

#[test]
fn holders_of_a_contact_receive_a_message_when_it_changes_and_only_then() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    registry.gateway("beta");
    registry.gateway("gamma");
    let welcome = "alpha welcome 240.64.1.1";
    let (here, moved) = (node_up("n1", "10.0.0.1:7730"), node_up("n1", "10.0.0.9:7730"));
    // What is verified before it comes here.
    let started = |attachment: u64, incarnation: u8| {
        let contact = proto::AgentContact {
            attachment,
            incarnation: vec![incarnation; 16],
            ..proto::AgentContact::default()
        };
        let signed = proto::SignedContact { contact: contact.encode_to_vec(), ..Default::default() };
        proto::NodeUp { attachment, signed: Some(signed), ..here.clone() }
    };
    let (first, attached, anew) = (started(1, 1), started(2, 1), started(3, 2));
    for (name, up, want) in [
        ("a new node, not looked up yet", &here, vec![welcome]),
        ("the same again", &here, vec![welcome]),
        ("moved", &moved, vec![welcome, "beta changed 240.64.1.1"]),
        ("moved again, and looked up again", &here, vec![welcome, "beta changed 240.64.1.1"]),
        ("its agent signs where it is", &first, vec![welcome, "beta changed 240.64.1.1"]),
        ("attached again", &attached, vec![welcome]),
        ("its agent was started again", &anew, vec![welcome, "beta changed 240.64.1.1"]),
    ] {
        assert_eq!(texts(&registry.node_up(alpha, up).unwrap().effects), want, "{name}");
        let found = registry.find("beta", "n1.alpha").unwrap();
        assert_eq!(found.node.unwrap().signed, up.signed, "{name}");
    }
    let down = proto::NodeDown { node: "n1".to_owned() };
    assert_eq!(texts(&registry.node_down(alpha, &down)), ["beta changed 240.64.1.1"]);
    assert_eq!(texts(&registry.node_down(alpha, &down)), [""; 0], "it was down already");
    assert_eq!(texts(&registry.node_up(alpha, &here).unwrap().effects), [welcome], "beta has dropped it");
}

#[test]
fn findings_that_no_plan_depends_on_are_taken_without_a_record() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    registry.node_up(alpha, &seeing("n1", &[("r1", 1000)])).unwrap();
    for (name, relays, want) in [
        ("a round trip", &[("r1", 2000)][..], 2000),
        ("a relay isn't reached any more, which comes with a record", &[("r1", 0)], 2000),
    ] {
        let seen = seeing("n1", relays).seen;
        let found = |node: &str| proto::NodeSeen { node: node.to_owned(), seen: seen.clone() };
        let nodes = vec![found("n1"), found("n9"), found("not a name")];
        registry.nodes_seen(alpha, proto::NodesSeen { nodes }).unwrap();
        let filter = proto::NodeFilter { seen: true, ..Default::default() };
        let listed = registry.all(Records::Nodes(filter)).nodes;
        assert_eq!(listed[0].seen.as_ref().unwrap().relays[0].round_trip_us, want, "{name}");
    }
    let seen = proto::Seen { egress: vec![proto::PortAnswers::default(); 9], ..Default::default() };
    let nodes = vec![proto::NodeSeen { node: "n1".to_owned(), seen: Some(seen) }];
    let refused = registry.nodes_seen(alpha, proto::NodesSeen { nodes }).unwrap_err().to_string();
    assert_eq!(refused, "hosts whose ports a node reports: 9 is too many, at most 8 may be sent");
}

#[test]
fn a_gateway_that_attaches_again_changes_no_contact() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    registry.gateway("beta");
    for node in ["n1", "n2"] {
        registry.node_up(alpha, &node_up(node, "10.0.0.1:7730")).unwrap();
    }
    assert_eq!(registry.detach(alpha), []);
    let cut_off = registry.find("beta", "n1.alpha").unwrap();
    assert_eq!(cut_off.node.unwrap().address, "10.0.0.1:7730", "the last contact is still good");
    registry.find("beta", "n2.alpha").unwrap();

    let again = registry.gateway("alpha");
    assert!(matches!(registry.find("beta", "n1.alpha"), Err(LookupError::Absent(_))));
    let effects = registry.node_up(again, &node_up("n1", "10.0.0.1:7730")).unwrap().effects;
    assert_eq!(texts(&effects), ["alpha welcome 240.64.1.1"]);
    assert_eq!(texts(&registry.settle(again)), ["beta changed 240.64.1.2"], "n2 didn't come back");
    assert_eq!(registry.detach(alpha), [], "the former session has no effect");
    assert!(registry.find("beta", "n1.alpha").unwrap().node.unwrap().up);
}

#[test]
fn a_second_gateway_of_the_same_name_replaces_the_first() {
    let mut registry = registry(&[]);
    registry.gateway("alpha");
    registry.gateway("beta");
    let up = gateway_up("alpha", proto::Inbound::Open);
    let (_, effects) = registry.come("alpha", "gateway", &up).unwrap();
    let want = [
        "alpha key",
        "close 1: another gateway of site alpha has attached with the name gateway; where there are several, each \
         needs one of its own (isthmus join --name)",
        "alpha changed 0.0.0.0",
        "beta changed 0.0.0.0",
    ];
    assert_eq!(texts(&effects), want);
    let foreign = registry.come("beta", "gateway", &up).unwrap_err();
    assert_eq!(foreign.to_string(), "this gateway's certificate is for site beta, not \"alpha\"");
    let gateway = &registry.sites[&label("alpha")].gateways[&label("gateway")];
    assert_eq!(gateway.key.expose(), key("alpha").expose(), "tickets stay good");
}

#[test]
fn lookups() {
    let mut registry = registry(&[["beta", "alpha"]]);
    for (site, inbound) in
        [("alpha", proto::Inbound::Closed), ("beta", proto::Inbound::Open), ("gamma", proto::Inbound::Closed)]
    {
        let session = registry.come(site, "gateway", &gateway_up(site, inbound)).unwrap().0;
        registry.node_up(session, &node_up("n1", "10.0.0.1:7730")).unwrap();
        registry.node_up(session, &node_up("n2", "10.0.0.2:7730")).unwrap();
        registry.node_down(session, &proto::NodeDown { node: "n2".to_owned() });
    }
    registry.relay("r1");
    let mut plan = |from: &str, to| {
        let found = registry.find(from, to).unwrap();
        let initiator = proto::End {
            node: format!("n1.{from}"),
            attached: true,
            seen: node_up("n1", "").seen,
            ..proto::End::default()
        };
        let planned = found.facts.map(|facts| isthmus_rpc::contact::plan_from_facts(&initiator, &facts));
        let plan = planned.or(found.plan).unwrap();
        let steps: Vec<_> = plan.steps.iter().map(|step| step.dial().as_str_name()).collect();
        format!("{} {}", if plan.encrypted { "encrypted" } else { "raw" }, steps.join(" "))
    };
    for (from, to, want) in [
        ("alpha", "n1.alpha", "raw DIAL_DIRECT"),
        ("alpha", "n1.beta", "raw DIAL_DIRECT DIAL_RELAY"),
        ("alpha", "n1.gamma", "encrypted DIAL_RELAY"),
        ("gamma", "n1.beta", "encrypted DIAL_DIRECT DIAL_RELAY"),
        ("gamma", "n2.beta", "raw "),
    ] {
        assert_eq!(plan(from, to), want, "{from} to {to}");
    }
    for unknown in ["n3.alpha", "n1.delta", "n1", "", "240.64.1.1"] {
        assert!(matches!(registry.find("alpha", unknown), Err(LookupError::Unknown(_))), "{unknown}");
    }
    for address in ["240.64.9.1", "10.0.0.1"] {
        let virtual_address = address.parse::<std::net::Ipv4Addr>().unwrap().into();
        let request = proto::LookupRequest { virtual_address, ..Default::default() };
        let error = registry.lookup((&label("alpha"), &label("gateway")), &request).unwrap_err();
        assert_eq!(error, LookupError::Unknown(address.to_owned()));
    }
}

#[test]
fn an_order_to_dial_names_the_address() {
    let mut registry = registry(&[]);
    let open = registry.come("alpha", "gateway", &gateway_up("alpha", proto::Inbound::Open)).unwrap().0;
    let closed = registry.gateway("beta");
    registry.node_up(open, &node_up("n1", "192.0.2.1:7730")).unwrap();
    registry.node_up(closed, &node_up("n1", "10.0.0.1:7730")).unwrap();
    let let_in =
        proto::NodeUp { outside_address: "192.0.2.9:7731".to_owned(), ..node_up("n2", "10.0.0.2:7731") };
    registry.node_up(closed, &signed(let_in, 1)).unwrap();
    let mut reverse = |site: &str, from: [u8; 4], to: [u8; 4]| {
        let way = RequestWay::Reverse { rendezvous: ConnectionId([1; 16]) };
        let request = Request { initiator: from.into(), to: Peer::Node(to.into()), way, segment: None };
        let caller = (&label(site), &label("gateway"));
        match registry.rendezvous(caller, &request, ConnectionId([7; 16]), 1000) {
            Ok((_, effects)) => match effects.as_slice() {
                [Effect::Send { message: attach_down::Kind::Dial(dial), .. }] => {
                    let Some(dial_request::Way::Reverse(reverse)) = &dial.way else { panic!("{dial:?}") };
                    assert_eq!(reverse.rendezvous, [1; 16]);
                    Ok(reverse.address.clone())
                }
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string()),
        }
    };
    let (alpha, beta1, beta2) = ([240, 64, 1, 1], [240, 64, 2, 1], [240, 64, 2, 2]);
    assert_eq!(
        reverse("alpha", alpha, beta1),
        Ok("192.0.2.1:7730".to_owned()),
        "the site is open, so the node's own address"
    );
    assert_eq!(reverse("beta", beta2, alpha), Ok("192.0.2.9:7731".to_owned()));
    assert_eq!(reverse("beta", beta1, alpha), Err("site beta lets nothing in".to_owned()));
}

#[test]
fn after_a_restart_known_nodes_are_absent_not_unknown() {
    let mut addresses = AddressBook::default();
    addresses.assign(&"n1.alpha".parse().unwrap()).unwrap();
    let mut registry = Registry { addresses, ..Registry::new("demo", Policy::default()) };
    assert!(matches!(registry.find("beta", "n1.alpha"), Err(LookupError::Absent(_))));
    assert!(matches!(registry.find("beta", "n2.alpha"), Err(LookupError::Unknown(_))));
}

#[test]
fn rendezvous_take_relays_in_turn() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    let beta = registry.gateway("beta");
    registry.node_up(alpha, &node_up("n1", "10.0.0.1:7730")).unwrap();
    registry.node_up(beta, &node_up("n1", "10.0.0.1:7730")).unwrap();
    let refused = |registry: &mut Registry| registry.meet("alpha", "n1.alpha", "n1.beta").unwrap_err();
    assert_eq!(refused(&mut registry), "no relay is attached to the broker");

    let (r1, effects) = registry.relay("r1");
    assert_eq!(texts(&effects), ["r1 key", "alpha changed 0.0.0.0", "beta changed 0.0.0.0"]);
    assert_eq!(texts(&registry.relay("r22").1), ["r22 key"]);
    let mut relays = Vec::new();
    for _ in 0..3 {
        let (reply, effects) = registry.meet("alpha", "n1.alpha", "n1.beta").unwrap();
        let [Effect::Send { to, message: attach_down::Kind::Dial(dial) }] = effects.as_slice() else {
            panic!("{effects:?}")
        };
        assert_eq!((who(to).as_str(), dial.node.as_str()), ("beta", "n1"));
        let reply = at_relay(reply);
        let Some(dial_request::Way::Relay(dial)) = &dial.way else { panic!("{dial:?}") };
        assert_eq!((&dial.name, &dial.address), (&reply.name, &reply.address));
        for (bytes, side) in [
            (&reply.ticket, isthmus_wire::ticket::Side::Initiator),
            (&dial.ticket, isthmus_wire::ticket::Side::Acceptor),
        ] {
            let bytes = bytes.as_slice().try_into().unwrap();
            let (ticket, mac) = isthmus_wire::ticket::Ticket::decode(bytes).unwrap();
            assert_eq!((ticket.side, ticket.expiry_unix_seconds), (side, 1060));
            assert!(Secret::new([reply.name.len() as u8; 32]).verify(&ticket.signed_bytes(), &mac));
        }
        relays.push(reply.name);
    }
    assert_eq!(relays, ["r1", "r22", "r1"]);
    assert_eq!(texts(&registry.detach(r1)), [""; 0], "there is another one");
    assert_eq!(at_relay(registry.meet("alpha", "n1.alpha", "n1.beta").unwrap().0).name, "r22");
    assert_eq!(at_relay(registry.meet("alpha", "n1.alpha", "n1.beta").unwrap().0).name, "r22");

    for (what, from, to, want) in [
        ("of another site", "n1.beta", "n1.alpha", "240.64.2.1 is no node of site alpha"),
        (
            "to nowhere",
            "n1.alpha",
            "n9.beta",
            "there is no node \"\" in the grid; `isthmus status` lists the nodes",
        ),
    ] {
        assert_eq!(registry.meet("alpha", from, to).unwrap_err(), want, "{what}");
    }
    registry.node_down(beta, &proto::NodeDown { node: "n1".to_owned() });
    assert_eq!(refused(&mut registry), "the agent of node n1.beta is not running");
    registry.node_up(beta, &node_up("n1", "10.0.0.1:7730")).unwrap();
    registry.detach(beta);
    assert_eq!(refused(&mut registry), "the gateway of site beta is not attached to the broker");
}

#[test]
fn a_relay_that_attaches_again_keeps_its_key() {
    let mut registry = registry(&[]);
    let key = |effects: &[Effect]| match effects {
        [.., Effect::Send { message: attach_down::Kind::RelayKey(key), .. }] => key.key.clone(),
        other => panic!("{other:?}"),
    };
    let first = key(&registry.relay("r1").1);
    let up = proto::RelayUp { name: "r1".to_owned(), address: "r:1".to_owned(), ..proto::RelayUp::default() };
    let (_, effects) = registry.attach_relay(&relay_name("r1"), &up, Secret::new([99; 32])).unwrap();
    assert_eq!(key(&effects), first);
    assert_eq!(texts(&effects)[0], "close 1: another relay of the name r1 has attached");
}

#[test]
fn job_reports() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    let beta = registry.gateway("beta");
    let report = |job: &str, head: &str, ended| proto::JobReport {
        job: job.repeat(16),
        nodes: vec![head.to_owned(), "n1.beta".to_owned()],
        ended,
        ..proto::JobReport::default()
    };
    registry.node_up(alpha, &node_up("n1", "10.0.0.1:7730")).unwrap();
    registry.node_up(beta, &node_up("n1", "10.0.0.1:7730")).unwrap();
    registry.job_report(alpha, report("01", "n1.alpha", false)).unwrap();
    registry.job_report(alpha, report("02", "n1.alpha", false)).unwrap();
    for (what, session, report) in [
        ("no id", alpha, report("0", "n1.alpha", false)),
        ("another site's head", alpha, report("03", "n1.beta", false)),
        ("another site's job", beta, report("01", "n1.beta", true)),
        ("no head", alpha, proto::JobReport { nodes: vec![], ..report("04", "", false) }),
        ("a head that is no node", alpha, report("05", "n2.alpha", false)),
        (
            "another owner",
            alpha,
            proto::JobReport { owner: "berta".into(), ..report("06", "n1.alpha", false) },
        ),
    ] {
        assert!(registry.job_report(session, report).is_err(), "{what}");
    }
    assert_eq!(registry.grid().jobs.len(), 2);
    registry.job_report(alpha, report("01", "n1.alpha", true)).unwrap();
    assert_eq!(registry.grid().jobs.len(), 1);
    registry.detach(alpha);
    assert_eq!(registry.grid().jobs.len(), 0);
}

/// 1,024 reports of a single owner must not use up a site for all others.
#[test]
fn no_owner_uses_up_the_jobs_of_a_site() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    let beta = registry.gateway("beta");
    for owner in ["anna", "berta", "cilly"] {
        for session in [alpha, beta] {
            let up = proto::NodeUp { owner: owner.to_owned(), ..node_up(owner, "10.0.0.1:7730") };
            registry.node_up(session, &up).unwrap();
        }
    }
    let mut number = 0_u32;
    let mut fill = |registry: &mut Registry, session, site: &str, owner: &str| {
        let mut taken = 0;
        loop {
            number += 1;
            let report = proto::JobReport {
                job: format!("{number:032x}"),
                nodes: vec![format!("{owner}.{site}")],
                owner: owner.to_owned(),
                ..proto::JobReport::default()
            };
            match registry.job_report(session, report) {
                Ok(_) => taken += 1,
                Err(refused) => return (taken, refused.to_string()),
            }
        }
    };
    let (taken, refused) = fill(&mut registry, alpha, "alpha", "anna");
    assert_eq!((taken, refused.contains("the rest is left for other users")), (512, true), "{refused}");
    assert_eq!(fill(&mut registry, alpha, "alpha", "berta").0, 256);
    assert_eq!(fill(&mut registry, alpha, "alpha", "cilly").0, 128);
    assert_eq!(fill(&mut registry, beta, "beta", "cilly").0, 512, "another site's");
    let (taken, refused) = fill(&mut registry, beta, "beta", "anna");
    assert_eq!((taken, refused.contains("the rest is left")), (256, true), "{refused}");
}

#[test]
fn announcements_that_are_refused() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    for up in [node_up("n 1", "a"), node_up("", "a"), node_up("n1", &"a".repeat(bounds::TEXT + 1))] {
        assert!(registry.node_up(alpha, &up).is_err(), "{up:?}");
    }
    registry.detach(alpha);
    assert!(registry.node_up(alpha, &node_up("n1", "a")).is_err(), "it is detached");
    assert_eq!(registry.grid().nodes.len(), 0);
}

/// A node that sees relays: `NAME TIME_US`, or `NAME -` for a relay that it doesn't reach.
fn seeing(node: &str, relays: &[(&str, u64)]) -> proto::NodeUp {
    let sight = |(relay, round_trip_us): &(&str, u64)| proto::RelaySight {
        relay: (*relay).to_owned(),
        round_trip_us: *round_trip_us,
        failure: if *round_trip_us == 0 { "no answer".to_owned() } else { String::new() },
        ..proto::RelaySight::default()
    };
    let seen = proto::Seen { relays: relays.iter().map(sight).collect(), ..proto::Seen::default() };
    proto::NodeUp { seen: Some(seen), ..node_up(node, "10.0.0.1:7730") }
}

#[test]
fn the_nearest_relay_for_both_joins_two_nodes() {
    for (choice, avoid, want) in [
        (RelayChoice::Nearest, vec![], "mid mid mid"),
        (RelayChoice::Nearest, vec!["mid"], "near near near"),
        (RelayChoice::RoundRobin, vec![], "mid near far"),
        (RelayChoice::RoundRobin, vec!["near"], "mid far mid"),
    ] {
        let mut registry = registry(&[]);
        registry.policy.relays = choice;
        let (alpha, beta) = (registry.gateway("alpha"), registry.gateway("beta"));
        registry.node_up(alpha, &seeing("n1", &[("near", 1000), ("mid", 9000), ("far", 60_000)])).unwrap();
        registry.node_up(beta, &seeing("n1", &[("near", 40_000), ("mid", 9000), ("dead", 0)])).unwrap();
        for relay in ["dead", "far", "mid", "near"] {
            registry.relay(relay);
        }
        registry.last_relay = Some(relay_name("far"));
        let request = Request {
            initiator: [240, 64, 1, 1].into(),
            to: Peer::Node([240, 64, 2, 1].into()),
            way: RequestWay::Relay { avoid: avoid.iter().map(|name| (*name).to_owned()).collect() },
            segment: None,
        };
        let mut meet = || {
            let met = registry.rendezvous(
                (&label("alpha"), &label("gateway")),
                &request,
                ConnectionId([7; 16]),
                1000,
            );
            at_relay(met.unwrap().0).name
        };
        assert_eq!([meet(), meet(), meet()].join(" "), want, "{choice:?}, not {avoid:?}");
    }
}

#[test]
fn round_trips_alone_change_no_contact() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    registry.gateway("beta");
    registry.node_up(alpha, &seeing("n1", &[("r1", 1000)])).unwrap();
    let effects = registry.node_up(alpha, &seeing("n1", &[("r1", 2000)])).unwrap().effects;
    assert_eq!(texts(&effects), ["alpha welcome 240.64.1.1"]);
}

#[test]
fn a_node_has_only_itself_probed() {
    let mut registry = registry(&[]);
    let alpha = registry.gateway("alpha");
    registry.node_up(alpha, &node_up("n1", "192.0.2.1:7730")).unwrap();
    registry.relay("r1");
    let request = |relay: &str, address: &str| ProbeRequest {
        initiator: std::net::Ipv4Addr::from([240, 64, 1, 1]).into(),
        relay: relay.to_owned(),
        task: Task::Dial(ProbeTarget::new(address, ConnectionId([5; 16]))),
    };
    let (id, own) = (ConnectionId([7; 16]), request("r1", "192.0.2.1:7730"));
    let mut probe = |site: &str, request: &ProbeRequest, now| {
        registry.probe(&label(site), request, id, now).map_err(|error| error.to_string())
    };
    match probe("alpha", &own, 0) {
        Ok(Effect::Send { to, message: attach_down::Kind::Probe(order) }) => {
            assert_eq!((who(&to).as_str(), order.id), ("r1", vec![7; 16]));
            assert_eq!(Task::try_from(&order.task.unwrap()), Ok(own.task.clone()));
        }
        other => panic!("{other:?}"),
    }
    for (site, relay, address, want) in [
        ("beta", "r1", "192.0.2.1:7730", "240.64.1.1 is no node of site beta"),
        ("alpha", "r2", "192.0.2.1:7730", "no relay \"r2\" is attached to the broker"),
        ("alpha", "r1", "192.0.2.1:22", "\"192.0.2.1:22\" is no address of an agent"),
        ("alpha", "r1", "nowhere", "\"nowhere\" is no address of an agent"),
    ] {
        assert_eq!(probe(site, &request(relay, address), 0).unwrap_err(), want);
    }
    let allowed = (0..100).filter(|_| probe("alpha", &own, 1).is_ok()).count();
    assert_eq!(allowed, 29, "30 in a minute with the first");
    assert!(probe("alpha", &own, 60).is_ok(), "and again in the next");
}

#[test]
fn ways_are_measured_on_demand_and_not_twice_at_once() {
    let mut registry = registry(&[]);
    let (alpha, beta) = (registry.gateway("alpha"), registry.gateway("beta"));
    registry.node_up(alpha, &node_up("n1", "10.0.0.1:7730")).unwrap();
    registry.node_up(beta, &node_up("n1", "10.0.0.1:7730")).unwrap();
    let request = |from: &str, to: &str, start| proto::MeasureRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        start,
        ..Default::default()
    };
    let report = |from: &str, round_trip_us| proto::PathReport {
        from: from.to_owned(),
        to: "n1.beta".to_owned(),
        round_trip_us,
        ..proto::PathReport::default()
    };
    registry.measured(alpha, report("n1.alpha", 9)).unwrap();
    assert_eq!(registry.grid().paths, [], "no user asked");
    for (name, start, now, ordered, running) in [
        ("only asked", false, 1000, false, false),
        ("begun", true, 1000, true, true),
        ("under way", true, 1003, false, true),
        ("lost", true, 1061, true, true),
    ] {
        let (reply, effects) =
            registry.measure(&View::All, &request("n1.alpha", "n1.beta", start), now).unwrap();
        // The node that is measured has an order, too.
        let orders: Vec<_> = effects
            .iter()
            .map(|effect| match effect {
                Effect::Send { to, message: attach_down::Kind::Measure(order) } => {
                    (who(to), order.node.as_str(), order.initiator.as_str())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let both = [("beta".to_owned(), "n1", "n1.alpha"), ("alpha".to_owned(), "n1", "")];
        assert_eq!(orders, if ordered { both.to_vec() } else { Vec::new() }, "{name}");
        assert_eq!((reply.running, reply.last), (running, None), "{name}");
    }
    assert!(registry.measured(beta, report("n1.alpha", 7)).is_err(), "another site's");
    registry.measured(alpha, report("n1.alpha", 7)).unwrap();
    let (reply, effects) = registry.measure(&View::All, &request("n1.alpha", "n1.beta", true), 1063).unwrap();
    assert_eq!((reply.running, effects), (false, Vec::new()), "it was just done");
    assert_eq!(reply.last.unwrap().round_trip_us, 7);
    assert_eq!(registry.grid().paths.len(), 1);
    let again = registry.measure(&View::All, &request("n1.alpha", "n1.beta", true), 1066);
    assert_eq!(again.unwrap().1.len(), 2);
    assert!(registry.measure(&View::All, &request("n1.alpha", "n9.beta", true), 1066).is_err());
    registry.node_down(beta, &proto::NodeDown { node: "n1".to_owned() });
    assert!(registry.measure(&View::All, &request("n1.alpha", "n1.beta", true), 1100).is_err());
}
