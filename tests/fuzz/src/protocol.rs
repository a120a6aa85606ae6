//! The messages of the control plane.

use std::sync::LazyLock;
use std::time::SystemTime;

use isthmus_identity::Authority;
use isthmus_identity::peers::Peers;
use isthmus_identity::signed::Verifier;
use isthmus_identity::signed::contact::addresses_of;
use isthmus_rpc::contact::{known, plan_from_facts, plan_from_wire, plan_to_wire};
use isthmus_rpc::probe::Task;
use isthmus_rpc::rendezvous::{self, Order};
use isthmus_rpc::seen;
use isthmus_wire::bounds::{Bounded, cut_job, cut_path, cut_seen, encoded_len};
use isthmus_wire::proto;
use prost::Message;

/// Messages of the control plane, from any party. The first byte chooses the message, the other
/// bytes are protobuf. They are read as their receivers do.
pub fn protocol(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 12 {
        0 => attach_up(bytes),
        1 => attach_down(bytes),
        2 => read(bytes, |request: proto::RendezvousRequest| drop(rendezvous::Request::try_from(&request))),
        3 => read(bytes, |reply: proto::RendezvousReply| {
            drop(rendezvous::Reply::read(reply, "192.0.2.1:7710"))
        }),
        4 => read(bytes, |task: proto::ProbeTask| drop(Task::try_from(&task))),
        5 => read(bytes, |request: proto::ListRequest| drop(request.check())),
        6 => read(bytes, lookup),
        7 => read(bytes, explain),
        8 => read(bytes, |reply: proto::ProbeReply| drop(isthmus_rpc::probe::Outcome::from(reply))),
        9 => read(bytes, path),
        10 => read(bytes, |request: proto::HoldRequest| drop(request)),
        _ => read(bytes, |news: proto::JobNews| drop(news)),
    }
}

/// Lists that `isthmus status` prints: line feeds are the only control characters that reach the
/// terminal.
pub fn status(bytes: &[u8]) {
    read(bytes, |reply: proto::ListReply| {
        for text in isthmus_cli::status_texts(&reply) {
            assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
        }
    });
}

fn read<M: Message + Default>(bytes: &[u8], then: impl FnOnce(M)) {
    if let Ok(message) = M::decode(bytes) {
        then(message);
    }
}

/// Messages from agents to gateways, and from gateways and relays to the broker.
fn attach_up(bytes: &[u8]) {
    use proto::attach_up::Kind;
    let Ok(proto::AttachUp { kind: Some(kind) }) = proto::AttachUp::decode(bytes) else { return };
    match kind {
        Kind::NodeUp(up) => node_up(&up),
        Kind::GatewayUp(up) => drop(up.check()),
        Kind::RelayUp(up) => drop(up.check()),
        Kind::NodesSeen(seen) => drop(seen.check()),
        Kind::GatewayReach(reach) => {
            let _ = seen::reach_from_wire(Some(&reach));
            drop(reach.check());
        }
        Kind::Seen(mut seen) => {
            let _ = (seen::for_plans(Some(&seen)), seen::answers_from_wire(&seen.egress));
            cut_seen(&mut seen);
            drop(seen.check());
        }
        Kind::Job(mut job) => {
            let before = encoded_len(&job);
            cut_job(&mut job);
            assert!(encoded_len(&job) <= before.max(1024));
            drop(job.check());
        }
        Kind::Measured(report) => path(report),
        Kind::DialAnswer(answer) => {
            drop(answer.check());
            drop(rendezvous::read_answer(answer));
        }
        Kind::NodeDown(_) | Kind::RelayReport(_) | Kind::Probed(_) | Kind::HeadLives(_) => {}
    }
}

/// A node that attaches: no address that another grid signed is believed.
fn node_up(up: &proto::NodeUp) {
    let (Ok(()), Some(signed), Some(verifier)) = (up.check(), &up.signed, &*VERIFIER) else { return };
    let _ = addresses_of(signed);
    assert!(verifier.contact(signed, SystemTime::now()).is_err());
}

static VERIFIER: LazyLock<Option<Verifier>> = LazyLock::new(|| {
    let authority = Authority::create("fuzz", SystemTime::now()).ok()?;
    Verifier::new(authority.certificate(), Peers::default()).ok()
});

/// Messages from the broker to gateways and relays, and from gateways to agents.
fn attach_down(bytes: &[u8]) {
    use proto::attach_down::Kind;
    let Ok(proto::AttachDown { kind: Some(kind) }) = proto::AttachDown::decode(bytes) else { return };
    match kind {
        Kind::Dial(mut order) => {
            if let Some(proto::dial_request::Way::OwnGateway(at)) = &mut order.way {
                drop(rendezvous::take_leg(&mut at.clone()));
            }
            drop(Order::read(order, "192.0.2.1:7710"));
        }
        Kind::Expect(order) => drop(rendezvous::Expected::try_from(order)),
        Kind::Probe(order) => drop(order.task.as_ref().map(Task::try_from)),
        _ => {}
    }
}

fn lookup(reply: proto::LookupReply) {
    if let (Some(facts), Some(initiator)) = (reply.facts, reply.node.map(end)) {
        let _ = (plan_from_facts(&initiator, &facts), known(&initiator, &facts));
    }
    if let Some(plan) = reply.plan {
        let plan = plan_from_wire(&plan);
        let again = plan_to_wire(&plan);
        assert_eq!(plan_to_wire(&plan_from_wire(&again)), again);
    }
}

fn end(node: proto::Node) -> proto::End {
    proto::End {
        node: node.name,
        outside_address: node.outside_address,
        seen: node.seen,
        virtual_address: node.virtual_address,
        ..proto::End::default()
    }
}

fn explain(reply: proto::ExplainReply) {
    if let (Some(initiator), Some(facts)) = (reply.initiator, reply.facts) {
        let _ = (plan_from_facts(&initiator, &facts), known(&initiator, &facts));
    }
}

fn path(mut report: proto::PathReport) {
    cut_path(&mut report);
    drop(report.check());
}
