//! Sequences of events at the roster.

use isthmus_wire::bounds::{self, Bounded as _};

use super::*;

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn address(last: u8) -> VirtualAddress {
    VirtualAddress::new([240, 64, 1, last].into()).unwrap()
}

fn contact(node: &str, address: &str) -> proto::NodeUp {
    proto::NodeUp { node: node.to_owned(), address: address.to_owned(), ..proto::NodeUp::default() }
}

fn report(job: &str, head: &str) -> proto::JobReport {
    proto::JobReport { job: job.to_owned(), nodes: vec![head.to_owned()], ..proto::JobReport::default() }
}

impl Roster {
    fn attach_at(&mut self, node: &str, from: &str, at: &str) -> Result<(SessionId, Vec<Effect>), Refused> {
        self.attach(&label(node), from.parse().unwrap(), contact(node, at))
    }
}

/// Effects as text, a line for each.
fn lines(effects: &[Effect]) -> Vec<String> {
    let line = |effect: &Effect| match effect {
        Effect::ToAgent(to, attach_down::Kind::Welcome(_)) => format!("{} welcome", to.0),
        Effect::ToAgent(to, kind) => format!("{} {kind:?}", to.0),
        Effect::Close(session, reason) => format!("close {}: {reason}", session.0),
        Effect::ToBroker(attach_up::Kind::NodeUp(up)) => format!("up {}", up.node),
        Effect::ToBroker(attach_up::Kind::NodeDown(down)) => format!("down {}", down.node),
        Effect::ToBroker(attach_up::Kind::Job(job)) => format!("job {} ended {}", job.job, job.ended),
        Effect::ToBroker(kind) => format!("{kind:?}"),
        Effect::Changed(address) => format!("changed {address}"),
    };
    effects.iter().map(line).collect()
}

fn by_name(name: &str) -> proto::LookupRequest {
    proto::LookupRequest { name: name.to_owned(), ..proto::LookupRequest::default() }
}

#[test]
fn an_agent_attaches_detaches_and_attaches_again() {
    let mut roster = Roster::new(label("alpha"));
    let (first, effects) = roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    assert_eq!(lines(&effects), ["up n1"]);
    assert_eq!(roster.find(&by_name("n1.alpha")), None, "it has no address yet");
    assert_eq!(lines(&roster.welcome("n1", address(1))), ["1 welcome"]);
    assert_eq!(lines(&roster.welcome("n1", address(1))), [""; 0], "the broker sends it again");
    assert_eq!(roster.find(&by_name("n1.alpha")).unwrap().address, "10.0.0.1:7730");
    assert_eq!(lines(&roster.detach(first)), ["down n1", "changed 240.64.1.1"]);
    assert_eq!(roster.detach(first), []);
    assert_eq!(roster.find(&by_name("n1.alpha")), None);
    let (_, effects) = roster.attach_at("n1", "10.0.0.9", "10.0.0.9:7730").unwrap();
    assert_eq!(
        lines(&effects),
        ["2 welcome", "changed 240.64.1.1", "up n1"],
        "without waiting for the broker"
    );
}

#[test]
fn a_job_whose_head_is_frozen_is_over_for_the_broker() {
    let mut roster = Roster::new(label("alpha"));
    let (n1, _) = roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    let (n2, _) = roster.attach_at("n2", "10.0.0.2", "10.0.0.2:7730").unwrap();
    roster.job_report(n1, report("j1", "n1.alpha")).unwrap();
    assert!(roster.is_head(n1, "j1") && !roster.is_head(n2, "j1") && !roster.is_head(n1, "j2"));
    let mut frozen = |session, is| lines(roster.head_frozen(session, "j1", is).as_slice());
    assert_eq!(frozen(n1, true), ["job j1 ended true"]);
    assert_eq!(frozen(n1, false), ["job j1 ended false"]);
    assert_eq!(frozen(n2, true), [""; 0]);
}

#[test]
fn two_live_nodes_of_one_name() {
    let mut roster = Roster::new(label("alpha"));
    roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    for (from, at) in
        [("10.0.0.9", "10.0.0.9:7730"), ("10.0.0.1", "10.0.0.1:7731"), ("10.0.0.9", "10.0.0.1:7730")]
    {
        let refused = roster.attach_at("n1", from, at).unwrap_err().to_string();
        for part in ["n1.alpha", "10.0.0.1:7730", from, at] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    let (again, effects) = roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    assert_eq!(lines(&effects), ["close 1: the same agent has attached again", "up n1"]);
    assert_eq!(roster.detach(SessionId(1)), [], "the former attachment has ended");
    assert_eq!(roster.sessions().collect::<Vec<_>>(), [again]);
}

/// A contact that its agent signed with this number of its attachment.
fn signed(node: &str, address: &str, attachment: u64) -> proto::NodeUp {
    let signed = Some(proto::SignedContact::default());
    proto::NodeUp { attachment, signed, ..contact(node, address) }
}

/// The broker may have believed another gateway. Then the node is back at once.
#[test]
fn an_agent_that_is_attached_here_is_announced_again_if_the_broker_has_it_elsewhere() {
    let at = "10.0.0.1:7730";
    let own = signed("n1", at, 7);
    for (what, own, elsewhere, gone, announced, asked) in [
        ("gone", &own, contact("n1", ""), true, true, false),
        ("a former attachment", &own, signed("n1", at, 6), false, true, false),
        ("a later attachment", &own, signed("n1", at, 8), false, false, true),
        ("another node", &own, signed("n2", at, 6), false, false, false),
    ] {
        let mut roster = Roster::new(label("alpha"));
        let (session, _) = roster.attach(&label("n1"), "10.0.0.1".parse().unwrap(), own.clone()).unwrap();
        let is_n1 = elsewhere.node == "n1";
        let virtual_address = address(if is_n1 { 1 } else { 2 }).ip().into();
        let node = proto::SiteNode { contact: Some(elsewhere), virtual_address, gone };
        let (effects, doubted) = roster.elsewhere(node);
        // The agent of n1 has waited for its address.
        let want = is_n1.then_some("1 welcome").into_iter().chain(announced.then_some("up n1"));
        assert_eq!(lines(&effects), want.collect::<Vec<_>>(), "{what}");
        assert_eq!(doubted, asked.then_some(session), "{what}");
        assert_eq!(lines(&roster.welcome("n1", address(1))), if is_n1 { &[][..] } else { &["1 welcome"] });
        roster.detach(session);
        let gone = proto::SiteNode { contact: Some(contact("n1", "")), virtual_address: 0, gone: true };
        assert_eq!(roster.elsewhere(gone), (vec![], None), "{what}: it isn't attached any more");
    }
}

#[test]
fn an_agent_signs_anew_and_keeps_its_findings() {
    let mut roster = Roster::new(label("alpha"));
    let (session, _) = roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    roster.welcome("n1", address(1));
    let seen = proto::Seen { address: "192.0.2.1".to_owned(), ..Default::default() };
    roster.seen(session, seen.clone());
    let effects = roster.announced(session, signed("n1", "10.0.0.1:7730", 7));
    assert_eq!(lines(&effects), ["changed 240.64.1.1", "up n1"]);
    let kept = roster.contact(&label("n1")).unwrap();
    assert_eq!((kept.attachment, kept.signed.is_some(), kept.seen.as_ref()), (7, true, Some(&seen)));
    roster.detach(session);
    assert_eq!(roster.announced(session, signed("n1", "10.0.0.1:7730", 8)), []);
}

#[test]
fn lookups() {
    let mut roster = Roster::new(label("alpha"));
    roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    roster.welcome("n1", address(1));
    let at = |last| proto::LookupRequest { virtual_address: address(last).ip().into(), ..by_name("") };
    for (request, want) in [
        (by_name("n1.alpha"), true),
        (by_name("n1.beta"), false),
        (by_name("n2.alpha"), false),
        (by_name("n1"), false),
        (by_name(""), false),
        (at(1), true),
        (at(2), false),
    ] {
        assert_eq!(roster.find(&request).is_some(), want, "{request:?}");
    }
}

#[test]
fn jobs_are_reported_until_their_head_detaches() {
    let mut roster = Roster::new(label("alpha"));
    let (session, _) = roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    assert!(roster.job_report(session, report("j0", "n2.alpha")).is_err());
    for job in ["j1", "j2", "j3"] {
        let effects = roster.job_report(session, report(job, "n1.alpha")).unwrap();
        assert_eq!(lines(&effects), [format!("job {job} ended false")]);
    }
    let ended = proto::JobReport { ended: true, ..report("j1", "n1.alpha") };
    roster.job_report(session, ended).unwrap();
    let sent: Vec<_> = roster.announcements().into_iter().map(Effect::ToBroker).collect();
    assert_eq!(lines(&sent), ["up n1", "job j2 ended false", "job j3 ended false"]);
    assert_eq!(lines(&roster.detach(session)), ["job j2 ended true", "job j3 ended true", "down n1"]);
}

#[test]
fn no_owner_uses_up_the_jobs_of_a_gateway() {
    let mut roster = Roster::new(label("alpha"));
    let mut attach = |node: &str, owner: &str| {
        let contact = proto::NodeUp { owner: owner.to_owned(), ..contact(node, "10.0.0.1:7730") };
        roster.attach(&label(node), "10.0.0.1".parse().unwrap(), contact).unwrap().0
    };
    let of_anna = ["n1", "n2", "n3", "n4"].map(|node| (node, attach(node, "anna")));
    let of_berta = ("n5", attach("n5", "berta"));
    let mut fill = |(node, session): (&str, SessionId)| {
        let report = |number: usize| report(&format!("{node} {number}"), &format!("{node}.alpha"));
        (0..).take_while(|number| roster.job_report(session, report(*number)).is_ok()).count()
    };
    assert_eq!(of_anna.map(&mut fill), [bounds::JOBS_PER_NODE, bounds::JOBS_PER_NODE, 0, 0]);
    assert_eq!(fill(of_berta), bounds::JOBS_PER_NODE);
    // A job that is there is reported on.
    let (node, session) = of_anna[0];
    assert!(roster.job_report(session, report(&format!("{node} 0"), "n1.alpha")).is_ok());
}

#[test]
fn the_brokers_orders_for_a_node_go_to_its_agent() {
    let mut roster = Roster::new(label("alpha"));
    roster.attach_at("n1", "10.0.0.1", "10.0.0.1:7730").unwrap();
    assert_eq!(lines(&roster.refuse("n1", "no address is left")), ["close 1: no address is left"]);
    assert_eq!(roster.refuse("n2", "whatever"), []);
    let request = |node: &str| proto::DialRequest { node: node.to_owned(), ..proto::DialRequest::default() };
    assert!(matches!(
        roster.dial(request("n1")),
        Ok(Effect::ToAgent(SessionId(1), attach_down::Kind::Dial(_)))
    ));
    assert!(roster.dial(request("n2")).is_err());
}

#[test]
fn findings_that_no_plan_depends_on_are_sent_in_few_messages() {
    let mut roster = Roster::new(label("alpha"));
    let nodes = 200;
    let sight =
        |round_trip_us| proto::RelaySight { relay: "hub".to_owned(), round_trip_us, ..Default::default() };
    let seen = |round_trip_us| proto::Seen {
        relays: vec![sight(round_trip_us); bounds::SIGHTS],
        own: Some(proto::Reach { detail: "x".repeat(bounds::TEXT), ..Default::default() }),
        ..Default::default()
    };
    let sessions: Vec<_> = (0..nodes)
        .map(|node| roster.attach_at(&format!("n{node}"), "10.0.0.1", &format!("10.0.0.1:{node}")).unwrap().0)
        .collect();
    for session in &sessions {
        assert_eq!(roster.seen(*session, seen(7)).len(), 1, "a relay is reached: at once");
        assert_eq!(roster.seen(*session, seen(8)), []);
        assert_eq!(roster.seen(*session, seen(9)), []);
    }
    roster.detach(sessions[0]);
    let due = roster.seen_due();
    assert!((2..10).contains(&due.len()), "{}", due.len());
    let mut sent = 0;
    for effect in due {
        let Effect::ToBroker(attach_up::Kind::NodesSeen(found)) = effect else { panic!("{effect:?}") };
        found.check().unwrap();
        sent += found
            .nodes
            .iter()
            .filter(|node| node.seen.as_ref().unwrap().relays[0].round_trip_us == 9)
            .count();
    }
    assert_eq!(sent, nodes - 1);
    assert_eq!(roster.seen_due(), []);
}
