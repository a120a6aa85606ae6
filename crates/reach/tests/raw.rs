//! Unencrypted data goes only to where the other node's agent has signed that it is, whatever a
//! gateway says.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::signed::contact::{sign_contact, sign_port};
use isthmus_identity::{Authority, Credentials, Identity};
use isthmus_net::dial::SocketOptions;
use isthmus_net::relay_places::RelayPlaces;
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{
    ControlPlane, Dialer, Introduction, Purpose, ReachError, Security, Signatures, Unaccepted,
};
use isthmus_rpc::rendezvous::{Order, OrderWay, Peer, Port, Reply, ReplyWay, RequestWay, Stop, StopKind};
use isthmus_service::Deadline;
use isthmus_wire::proto::{self, attach_up};
use isthmus_wire::ticket::TICKET_LEN;
use isthmus_wire::{ConnectionId, GridName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Status;

const FAR: Ipv4Addr = Ipv4Addr::new(240, 64, 2, 1);
/// A limit that guards against hanging only.
const SOON: Duration = Duration::from_secs(30);
const RAW: u8 = b'r';
const NOBODY: u8 = b'-';

/// The node's own gateway, whose word is all that the node has. The gateway may be captured.
#[derive(Debug)]
struct Gateway {
    reply: Arc<proto::LookupReply>,
    /// Where the gateway sends the node by ways that aren't direct.
    stop: String,
}

#[tonic::async_trait]
impl ControlPlane for Gateway {
    fn site(&self) -> &str {
        "alpha"
    }

    async fn lookup(&self, _: &Peer, _: Deadline) -> Result<Arc<proto::LookupReply>, Status> {
        Ok(self.reply.clone())
    }

    fn forget(&self, _: &Peer) {}

    async fn rendezvous(&self, _: &Peer, _: (RequestWay, Option<u16>), _: Deadline) -> Result<Reply, Status> {
        let (address, ticket) = (self.stop.clone(), [0; TICKET_LEN]);
        let stop = Stop { kind: StopKind::OwnSite, address, ticket, relay: None };
        Ok(Reply { way: ReplyWay::Stop(stop), gateways: Vec::new() })
    }

    async fn send(&self, _: attach_up::Kind) {}

    fn relay_places(&self) -> RelayPlaces {
        RelayPlaces::new(["127.0.0.0/8"])
    }
}

/// An introduction that sends a byte with which TLS never begins.
#[derive(Debug)]
struct Says;

#[tonic::async_trait]
impl Introduction for Says {
    async fn introduce(&mut self, carrier: &mut Carrier) -> Result<(), Unaccepted> {
        let sent = carrier.send(&[RAW]).await;
        sent.map_err(|error| Unaccepted::Next(error.to_string()))
    }
}

fn identity(uri: &str) -> Identity {
    Identity::from_uri(uri).unwrap()
}

fn credentials(authority: &Authority, uri: &str) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let certificate = authority.sign(&identity(uri), request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "127.0.0.1:1").unwrap()
}

/// Receives what is sent to its address, and tells the first byte of the first connection.
struct Listener {
    address: String,
    first: JoinHandle<u8>,
}

impl Listener {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let first = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap()
        });
        Self { address, first }
    }

    /// The first byte that has come, once the dialer is done; `NOBODY` if none has.
    async fn got(self) -> u8 {
        // A connection that was made before is accepted before. The listener may be gone by now.
        if let Ok(mut stream) = TcpStream::connect(&self.address).await {
            let _ = stream.write_all(&[NOBODY]).await;
        }
        timeout(SOON, self.first).await.unwrap().unwrap()
    }
}

fn dialer(own: &Credentials, reply: proto::LookupReply, stop: &str) -> Dialer {
    Dialer {
        control: Arc::new(Gateway { reply: Arc::new(reply), stop: stop.to_owned() }),
        address: String::new(),
        rendezvous: Arc::default(),
        outside: Arc::default(),
        raw: None,
        failures: Arc::default(),
        signatures: Arc::new(Signatures::new(own).unwrap()),
    }
}

/// The gateway's answer about a node that is reached unencrypted and by these steps.
fn reply(
    name: &str,
    address: &str,
    signed: Option<proto::SignedContact>,
    steps: &[(proto::Route, proto::Dial)],
) -> proto::LookupReply {
    let deadline_ms = u32::try_from(SOON.as_millis()).unwrap();
    let step = |(route, dial): &(proto::Route, proto::Dial)| proto::PlanStep {
        route: (*route).into(),
        dial: (*dial).into(),
        deadline_ms,
        ..Default::default()
    };
    let node = proto::Node {
        name: name.to_owned(),
        address: address.to_owned(),
        outside_address: address.to_owned(),
        signed,
        ..proto::Node::default()
    };
    let plan = proto::Plan { steps: steps.iter().map(step).collect(), ..proto::Plan::default() };
    proto::LookupReply { node: Some(node), plan: Some(plan), facts: None }
}

const DIRECT: (proto::Route, proto::Dial) = (proto::Route::EndToEnd, proto::Dial::Direct);
const PORT_RANGE: (proto::Route, proto::Dial) = (proto::Route::EndToEnd, proto::Dial::PortRange);
const OVER_GATEWAY: (proto::Route, proto::Dial) = (proto::Route::GatewayOut, proto::Dial::Direct);

/// Opens a connection for a program, or for heartbeats.
async fn reach(
    dialer: &Dialer,
    own: &Credentials,
    (heartbeats, node): (bool, Option<&GridName>),
) -> Result<(), ReachError> {
    let mut introduction = Says;
    let purpose = Purpose {
        security: if heartbeats { Security::WithoutData } else { Security::Raw },
        node,
        owner: own.identity().owner(),
        options: SocketOptions::default(),
        introduction: Some(&mut introduction),
        given_up: None,
    };
    timeout(SOON, dialer.reach(FAR, purpose)).await.unwrap().map(drop)
}

#[tokio::test]
async fn raw_data_goes_only_where_the_agent_has_signed_that_it_is() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let forger = Authority::create("demo", SystemTime::now()).unwrap();
    let own = credentials(&authority, "isthmus:///agent/alpha/n9/anna");
    // The sites are the own site, and a site that trusts it.
    for (site, way) in [("alpha", DIRECT), ("beta", DIRECT), ("beta", PORT_RANGE)] {
        let agent = |authority, node: &str, owner: &str| {
            Some(credentials(authority, &format!("isthmus:///agent/{site}/{node}/{owner}")))
        };
        let gateway = identity(&format!("isthmus:///gateway/{site}/gateway/"));
        for (case, by, named, want) in [
            ("its own address", agent(&authority, "n1", "anna"), None, RAW),
            ("no signature", None, None, NOBODY),
            ("another address", agent(&authority, "n1", "anna"), Some("10.0.0.1:7730"), NOBODY),
            ("another node's", agent(&authority, "n2", "anna"), None, NOBODY),
            ("another owner's", agent(&authority, "n1", "bob"), None, NOBODY),
            ("of another grid", agent(&forger, "n1", "anna"), None, NOBODY),
            ("signed by the gateway", Some(credentials(&authority, &gateway.uri())), None, NOBODY),
        ] {
            for heartbeats in [false, true] {
                let there = Listener::new().await;
                let named = named.unwrap_or(&there.address).to_owned();
                let signed =
                    by.as_ref().map(|by| sign_contact(by, &gateway, (7, [0; 16]), vec![named]).unwrap());
                let reply = reply(&format!("n1.{site}"), &there.address, signed, &[way]);
                let reached = reach(&dialer(&own, reply, ""), &own, (heartbeats, None)).await;
                assert_eq!(there.got().await, want, "{site} {way:?} {case}, heartbeats {heartbeats}");
                // An encrypted connection may be made to an address that isn't signed.
                let encrypts = matches!(reached, Err(ReachError::OnlyEncrypted(_)));
                assert_eq!(
                    (reached.is_ok(), encrypts),
                    (want == RAW, want == NOBODY),
                    "{site} {way:?} {case}: {reached:?}"
                );
            }
        }
    }
}

/// The plan has the last word, also where an agent has signed its address.
#[tokio::test]
async fn raw_data_goes_only_where_the_plan_lets_it() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let own = credentials(&authority, "isthmus:///agent/alpha/n9/anna");
    let agent = credentials(&authority, "isthmus:///agent/beta/n1/anna");
    let gateway = identity("isthmus:///gateway/beta/gateway/");
    for (heartbeats, want) in [(false, NOBODY), (true, RAW)] {
        let there = Listener::new().await;
        let signed = sign_contact(&agent, &gateway, (7, [0; 16]), vec![there.address.clone()]).unwrap();
        let mut reply = reply("n1.beta", &there.address, Some(signed), &[DIRECT]);
        reply.plan.as_mut().unwrap().encrypted = true;
        let reached = reach(&dialer(&own, reply, ""), &own, (heartbeats, None)).await;
        assert_eq!(there.got().await, want, "heartbeats {heartbeats}");
        let encrypts = matches!(reached, Err(ReachError::OnlyEncrypted(_)));
        assert_eq!(encrypts, !heartbeats, "{reached:?}");
    }
}

/// A node's own gateway can name neither another node nor itself as the way within the site.
#[tokio::test]
async fn within_a_site_the_gateway_puts_itself_between_no_two_nodes() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let own = credentials(&authority, "isthmus:///agent/alpha/n9/anna");
    let n1: GridName = "n1.alpha".parse().unwrap();
    for (case, name, steps, want) in [
        ("the only way", "n1.alpha", &[OVER_GATEWAY][..], "the plan has no step"),
        ("the first way", "n1.alpha", &[OVER_GATEWAY, DIRECT], ""),
        ("a node of another site", "n2.beta", &[OVER_GATEWAY], "240.64.2.1 is the address of n1.alpha"),
        ("another node", "n2.alpha", &[DIRECT], "the gateway names n2.alpha as the node that has it"),
    ] {
        let (there, gateway) = (Listener::new().await, Listener::new().await);
        let (node, site) = name.split_once('.').unwrap();
        let agent = credentials(&authority, &format!("isthmus:///agent/{site}/{node}/anna"));
        let at = identity(&format!("isthmus:///gateway/{site}/gateway/"));
        let signed = sign_contact(&agent, &at, (7, [0; 16]), vec![there.address.clone()]).unwrap();
        let reply = reply(name, &there.address, Some(signed), steps);
        let dialer = dialer(&own, reply, &gateway.address);
        let reached = reach(&dialer, &own, (false, Some(&n1))).await.map_err(|error| error.to_string());
        assert_eq!(gateway.got().await, NOBODY, "{case}");
        let (first, error) = if want.is_empty() { (RAW, None) } else { (NOBODY, Some(want)) };
        assert_eq!(there.got().await, first, "{case}");
        assert_eq!(reached.is_err(), error.is_some(), "{case}: {reached:?}");
        let told = |reason: &String| error.is_some_and(|want| reason.contains(want));
        assert!(reached.as_ref().err().is_none_or(told), "{case}: {reached:?}");
    }
}

/// The order to dial the initiator comes from the node's own gateway, too.
#[tokio::test]
async fn raw_data_comes_only_from_where_the_agent_has_signed_that_it_is() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let own = credentials(&authority, "isthmus:///agent/alpha/n9/anna");
    let far = credentials(&authority, "isthmus:///agent/beta/n1/anna");
    let other = credentials(&authority, "isthmus:///agent/beta/n2/anna");
    let bobs = credentials(&authority, "isthmus:///agent/beta/n1/bob");
    let at = identity("isthmus:///gateway/beta/gateway/");
    let n1: GridName = "n1.beta".parse().unwrap();
    let (address, another) = ("192.0.2.1:7730", "198.51.100.6:7730");
    let signed = sign_contact(&far, &at, (7, [0; 16]), vec![address.to_owned()]).unwrap();
    let rendezvous = ConnectionId([7; 16]);
    let reverse = |address: &str| OrderWay::Reverse { rendezvous, address: address.to_owned() };
    let punch = |by: &Credentials, signed: &str, address: &str| {
        let signature = sign_port(by, rendezvous, signed.parse().unwrap()).unwrap();
        let port = Port { address: address.parse().unwrap(), signature };
        OrderWay::Punch { rendezvous, port, reflectors: Vec::new(), ask: false }
    };
    let stop =
        Stop { kind: StopKind::Relay, address: another.to_owned(), ticket: [0; TICKET_LEN], relay: None };
    let with = |signed| dialer(&own, reply("n1.beta", address, signed, &[DIRECT]), "");
    let bob = sign_contact(&bobs, &at, (7, [0; 16]), vec![address.to_owned()]).unwrap();
    let n2 = sign_contact(&other, &at, (7, [0; 16]), vec![address.to_owned()]).unwrap();
    for (case, signed, way, from, want) in [
        ("where it is", Some(signed.clone()), reverse(address), FAR, true),
        ("another one's word", Some(n2), reverse(address), FAR, false),
        ("another owner's word", Some(bob), reverse(address), FAR, false),
        ("another address", Some(signed.clone()), reverse(another), FAR, false),
        ("no signature", None, reverse(address), FAR, false),
        ("for another node", Some(signed.clone()), reverse(address), Ipv4Addr::new(240, 64, 2, 2), false),
        ("its port", Some(signed.clone()), punch(&far, another, another), FAR, true),
        ("another port", Some(signed.clone()), punch(&far, address, another), FAR, false),
        ("another one's port", Some(signed.clone()), punch(&other, another, another), FAR, false),
        ("a port without a signature", None, punch(&far, another, another), FAR, false),
        ("a relay, as the broker has it", Some(signed), OrderWay::Stop(stop), FAR, true),
    ] {
        let order = Order { initiator: Peer::Node(FAR), way, segment: None };
        let owner = own.identity().owner().unwrap();
        let found = with(signed).find((from, Some(&n1)), SOON).await.unwrap();
        assert_eq!(found.may_come_raw(&order, owner), want, "{case}");
    }
}

/// A trunk ends if the agent at its other end was started again. A gateway can't say so of another
/// site's node.
#[tokio::test]
async fn when_an_agent_was_started_is_its_own_word() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let own = credentials(&authority, "isthmus:///agent/alpha/n9/anna");
    let [far, other, bobs] = ["n1/anna", "n2/anna", "n1/bob"]
        .map(|name| credentials(&authority, &format!("isthmus:///agent/beta/{name}")));
    let at = identity("isthmus:///gateway/beta/gateway/");
    let signed = |by: &Credentials| sign_contact(by, &at, (7, [3; 16]), Vec::new()).unwrap();
    let forged = proto::SignedContact { signature: signed(&other).signature, ..signed(&far) };
    for (case, signed, want) in [
        ("its own", Some(signed(&far)), Some([3; 16])),
        ("another one's word", Some(signed(&other)), None),
        ("another owner's word", Some(signed(&bobs)), None),
        ("forged", Some(forged), None),
        ("no signature", None, None),
    ] {
        let dialer = dialer(&own, reply("n1.beta", "192.0.2.1:7730", signed, &[DIRECT]), "");
        assert_eq!(dialer.started(FAR, far.identity()).await, want, "{case}");
    }
}
