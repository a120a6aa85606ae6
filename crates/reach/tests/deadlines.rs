//! The deadline of a step bounds all of it: the call that arranges the
//! rendezvous, the dial, TLS and the introduction. The owner in the other end's
//! certificate is verified.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::signed::contact::sign_contact;
use isthmus_identity::{Authority, Credentials, Identity};
use isthmus_net::dial::SocketOptions;
use isthmus_net::relay_places::RelayPlaces;
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{
    ControlPlane, Dialer, Introduction, Purpose, ReachError, Security, Signatures, Unaccepted,
};
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{Peer, Reply, ReplyWay, RequestWay, Stop, StopKind};
use isthmus_service::Deadline;
use isthmus_wire::proto::{self, attach_up};
use isthmus_wire::ticket::TICKET_LEN;
use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tonic::Status;

#[path = "../../../tests/src/promised.rs"]
mod promised;
use promised::promised;

/// The deadline of a step, beyond which a test may take [`MARGIN`].
const STEP: Duration = Duration::from_millis(300);
const MARGIN: Duration = Duration::from_millis(700);
/// The deadline of a step that works.
const LONG: Duration = Duration::from_secs(60);

/// A broker whose plan for every node is a single step.
#[derive(Debug)]
struct Broker {
    dial: proto::Dial,
    /// The deadline of the plan's step.
    step: Duration,
    /// The address of the node and of the relay.
    address: String,
    /// How long the broker takes to arrange a rendezvous.
    pause: Duration,
    /// The node's agent, which has signed where it is.
    far: Credentials,
}

#[tonic::async_trait]
impl ControlPlane for Broker {
    fn site(&self) -> &str {
        "alpha"
    }

    async fn lookup(&self, _: &Peer, _: Deadline) -> Result<Arc<proto::LookupReply>, Status> {
        let step = proto::PlanStep {
            dial: self.dial.into(),
            route: proto::Route::EndToEnd.into(),
            deadline_ms: u32::try_from(self.step.as_millis()).unwrap(),
            ..proto::PlanStep::default()
        };
        let node = proto::Node {
            name: "n1.beta".to_owned(),
            address: self.address.clone(),
            signed: Some(
                sign_contact(&self.far, &identity(GATEWAY), (7, [0; 16]), vec![self.address.clone()])
                    .unwrap(),
            ),
            ..proto::Node::default()
        };
        let plan = proto::Plan { steps: vec![step], ..proto::Plan::default() };
        Ok(Arc::new(proto::LookupReply { node: Some(node), plan: Some(plan), facts: None }))
    }

    fn forget(&self, _: &Peer) {}

    async fn rendezvous(
        &self,
        _: &Peer,
        (way, _): (RequestWay, Option<u16>),
        deadline: Deadline,
    ) -> Result<Reply, Status> {
        assert!(deadline.left() <= self.step);
        tokio::time::sleep(self.pause).await;
        let way = match way {
            RequestWay::Relay { .. } => ReplyWay::Stop(Stop {
                kind: StopKind::Relay,
                address: self.address.clone(),
                ticket: [0; TICKET_LEN],
                relay: Some("r".to_owned()),
            }),
            _ => ReplyWay::Awaited,
        };
        Ok(Reply { way, gateways: Vec::new() })
    }

    async fn send(&self, _: attach_up::Kind) {}

    fn relay_places(&self) -> RelayPlaces {
        RelayPlaces::new(["127.0.0.0/8"])
    }
}

/// An introduction that waits for an answer of a single byte.
#[derive(Debug)]
struct Asks;

#[tonic::async_trait]
impl Introduction for Asks {
    async fn introduce(&mut self, carrier: &mut Carrier) -> Result<(), Unaccepted> {
        let answer = carrier.receive::<1>().await;
        answer.map(drop).map_err(|error| Unaccepted::Next(error.to_string()))
    }
}

/// A listener that accepts and never answers.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            kept.push(accepted);
        }
    });
    address
}

fn dialer(broker: Broker) -> Dialer {
    let signatures = Arc::new(Signatures::new(&broker.far).unwrap());
    Dialer {
        control: Arc::new(broker),
        signatures,
        address: String::new(),
        rendezvous: Arc::default(),
        outside: Arc::default(),
        raw: None,
        failures: Arc::default(),
    }
}

const GATEWAY: &str = "isthmus:///gateway/beta/gateway/";

fn identity(uri: &str) -> Identity {
    Identity::from_uri(uri).unwrap()
}

fn credentials(authority: &Authority, uri: &str) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let certificate = authority.sign(&identity(uri), request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "127.0.0.1:1").unwrap()
}

/// The registry's word for a node's owner counts for nothing: the certificate decides.
#[tokio::test]
async fn a_node_of_another_owner_gets_nothing() {
    let authority = Authority::create("test", SystemTime::now()).unwrap();
    let anna = credentials(&authority, "isthmus:///agent/alpha/n1/anna");
    let tls = anna.client_config(&[b"h2"]).unwrap();
    for (owner, want) in [("anna", None), ("berta", Some("names user berta"))] {
        let far = credentials(&authority, &format!("isthmus:///agent/beta/n1/{owner}"));
        let server = far.server_config(&[b"h2"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // An end that gives up resets its connection, maybe before this end's handshake is
            // over.
            let Ok(mut stream) = grpc::accept(stream, server).await else { return Vec::new() };
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received).await;
            received
        });
        let (dial, pause) = (proto::Dial::Direct, Duration::ZERO);
        let dialer = dialer(Broker { dial, step: LONG, address, pause, far });
        let purpose = Purpose::tls(&tls, anna.identity().owner());
        let reached = dialer.reach(Ipv4Addr::new(240, 64, 2, 1), purpose).await;
        match (&reached, want) {
            (Ok(_), None) => {}
            (Err(ReachError::OtherOwner(reason)), Some(want)) => assert!(reason.contains(want), "{reason}"),
            _ => panic!("{owner}: {reached:?}"),
        }
        drop(reached);
        assert_eq!(served.await.unwrap(), b"", "{owner}");
    }
}

/// A handshake has large packets. Where large packets vanish, connections with shorter segments
/// stand.
#[tokio::test]
async fn a_handshake_that_hangs_is_made_with_shorter_segments() {
    let authority = Authority::create("test", SystemTime::now()).unwrap();
    let anna = credentials(&authority, "isthmus:///agent/alpha/n1/anna");
    let tls = anna.client_config(&[b"h2"]).unwrap();
    let far = credentials(&authority, "isthmus:///agent/beta/n1/anna");
    let server = far.server_config(&[b"h2"]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut silent, mut served) = (Vec::new(), Vec::new());
        while let Ok((stream, _)) = listener.accept().await {
            // The host behaves as if all longer packets vanished.
            match SockRef::from(&stream).tcp_mss().unwrap() {
                ..=500 => served.push(grpc::accept(stream, server.clone()).await.unwrap()),
                _ => silent.push(stream),
            }
        }
    });
    let (dial, pause) = (proto::Dial::Direct, Duration::ZERO);
    let dialer = dialer(Broker { dial, step: LONG, address, pause, far });
    let purpose = Purpose::tls(&tls, anna.identity().owner());
    let reached = dialer.reach(Ipv4Addr::new(240, 64, 2, 1), purpose).await.unwrap();
    assert_eq!(reached.segment, Some(500));
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    #[tokio::test]
    async fn a_step_ends_at_its_deadline() {
        let address = silent().await;
        let authority = Authority::create("test", SystemTime::now()).unwrap();
        let far = credentials(&authority, "isthmus:///agent/beta/n1/anna");
        let late = Duration::from_secs(60);
        for (name, dial, pause, times, want) in [
            ("a peer that never answers", proto::Dial::Direct, Duration::ZERO, 1, "no answer within 300ms"),
            // The broker names the same relay again, so the step is taken twice.
            ("a relay that is silent", proto::Dial::Relay, Duration::ZERO, 3, "no answer within 300ms"),
            ("a broker that answers late", proto::Dial::Relay, late, 2, "no connection within 300ms"),
            (
                "an acceptor that never connects",
                proto::Dial::Reverse,
                Duration::ZERO,
                1,
                "did not dial this node",
            ),
        ] {
            let (address, far) = (address.clone(), far.clone());
            let dialer = dialer(Broker { dial, step: STEP, address, pause, far });
            let mut introduction = Asks;
            let purpose = Purpose {
                security: Security::Raw,
                node: None,
                owner: None,
                options: SocketOptions::default(),
                introduction: Some(&mut introduction),
                given_up: None,
            };
            let began = Instant::now();
            let reached = dialer.reach(Ipv4Addr::new(240, 64, 2, 1), purpose).await;
            let took = began.elapsed();
            let Err(ReachError::NoWay(reasons)) = reached else { panic!("{name}: {reached:?}") };
            assert!(reasons.iter().any(|reason| reason.text.contains(want)), "{name}: {reasons:?}");
            assert!(took < promised(times * STEP + MARGIN), "{name}: {took:?}");
        }
    }

    #[tokio::test]
    async fn a_handshake_ends_at_the_step_s_deadline() {
        let authority = Authority::create("test", SystemTime::now()).unwrap();
        let far = credentials(&authority, "isthmus:///agent/beta/n1/anna");
        let credentials = credentials(&authority, "isthmus:///agent/alpha/n1/anna");
        let tls = credentials.client_config(&[b"h2"]).unwrap();
        let (dial, pause) = (proto::Dial::Direct, Duration::ZERO);
        let dialer = dialer(Broker { dial, step: STEP, address: silent().await, pause, far });
        let began = Instant::now();
        let reached = dialer.reach(Ipv4Addr::new(240, 64, 2, 1), Purpose::tls(&tls, None)).await;
        let Err(ReachError::NoWay(reasons)) = reached else { panic!("{reached:?}") };
        assert!(
            reasons[0].text.contains("TLS with n1.beta") && reasons[0].text.contains("within 300ms"),
            "{reasons:?}"
        );
        assert!(began.elapsed() < promised(STEP + MARGIN));
    }
}
