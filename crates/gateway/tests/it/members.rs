//! What a hostile member can't do: a gateway that makes up nodes and jobs, an agent of
//! another owner, a relay.

use std::time::SystemTime;

use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::signed::renewal;
use isthmus_identity::token::{BearerToken, Invitation};
use isthmus_identity::{Credentials, Role};
use isthmus_rpc::enrol::JoinError;
use isthmus_rpc::{enrol, grpc};
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::io::{AsyncReadExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::grid::{Agent, Attachment, Gateway, Grid, address, list, signed, soon};

/// An agent that has joined for this owner.
async fn agent_of(grid: &Grid, gateway: &Gateway, name: &str, owner: &str) -> Agent {
    let invitation = grid.invitation(Role::Agent, Some(&gateway.site), Some(name));
    let invitation = Invitation { owner: Some(owner.parse().unwrap()), ..invitation };
    let via = gateway.address.to_string();
    let credentials = soon("joining", enrol::join(&grid.mint(&invitation), None, Some(&via))).await.unwrap();
    Agent::at(gateway, credentials).await
}

/// A captured gateway: it has a certificate of its site, and sends what it likes.
pub(crate) async fn hostile_gateway(grid: &Grid, site: &str) -> (RegistryClient<Channel>, Attachment) {
    let token = grid.token(Role::Gateway, Some(site), Some("captured"));
    let credentials = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    hostile_gateway_as(grid, site, &credentials).await
}

/// A captured gateway that has this certificate, and sends what it likes.
pub(crate) async fn hostile_gateway_as(
    grid: &Grid,
    site: &str,
    credentials: &Credentials,
) -> (RegistryClient<Channel>, Attachment) {
    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", credentials).await.unwrap();
    let client = RegistryClient::new(channel);
    let inbound = proto::Inbound::Auto.into();
    let hello = proto::GatewayUp { site: site.to_owned(), inbound, ..proto::GatewayUp::default() };
    let mut attachment = Attachment::open(client.clone(), attach_up::Kind::GatewayUp(hello)).await.unwrap();
    assert!(matches!(attachment.next().await, attach_down::Kind::RelayKey(_)));
    (client, attachment)
}

fn node_up(node: &str, owner: &str) -> attach_up::Kind {
    attach_up::Kind::NodeUp(proto::NodeUp {
        node: node.to_owned(),
        owner: owner.to_owned(),
        address: "10.0.0.9:7730".to_owned(),
        ..proto::NodeUp::default()
    })
}

fn code(result: Result<(), Status>) -> Code {
    result.map_or_else(|status| status.code(), |()| Code::Ok)
}

pub(crate) async fn refusal(attachment: &mut Attachment) -> String {
    loop {
        match attachment.next().await {
            attach_down::Kind::Refusal(refusal) => return refusal.reason,
            attach_down::Kind::Notice(notice) => return notice.text,
            attach_down::Kind::SiteNode(_) | attach_down::Kind::ContactChanged(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn welcome(attachment: &mut Attachment) -> u32 {
    loop {
        match attachment.next().await {
            attach_down::Kind::Welcome(welcome) => return welcome.virtual_address,
            attach_down::Kind::SiteNode(_) | attach_down::Kind::ContactChanged(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn all_nodes() -> Records {
    Records::Nodes(proto::NodeFilter::default())
}

fn all_jobs() -> Records {
    Records::Jobs(proto::JobFilter::default())
}

pub(crate) async fn admin(grid: &Grid) -> RegistryClient<Channel> {
    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", &grid.admin()).await.unwrap();
    RegistryClient::new(channel)
}

#[tokio::test]
async fn a_gateway_can_make_up_no_nodes() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let n1 = grid.agent(&alpha, "n1").await;
    let (_, mut hostile) = hostile_gateway(&grid, "alpha").await;
    for number in 0..50 {
        hostile.send(node_up(&format!("ghost{number}"), "anna")).await;
        let reason = refusal(&mut hostile).await;
        assert!(reason.contains("has joined the grid"), "{reason}");
    }
    hostile.send(node_up("n1", "berta")).await;
    let reason = refusal(&mut hostile).await;
    assert!(reason.starts_with("no agent n1.alpha of owner \"berta\" has joined"), "{reason}");
    let text = proto::NodeUp { node: "n1".into(), host_name: "\u{1b}[2J".into(), ..Default::default() };
    hostile.send(attach_up::Kind::NodeUp(text)).await;
    let reason = refusal(&mut hostile).await;
    assert!(reason.contains("a node's host name has the control character"), "{reason}");
    hostile.send(node_up("n1", "anna")).await;
    let reason = refusal(&mut hostile).await;
    assert!(reason.contains("its agent hasn't signed where it is"), "{reason}");
    assert_eq!(list(&admin(&grid).await, all_nodes()).await.nodes, []);

    // The first member gets the first address: none is gone.
    let (_n1, own) = n1.up("10.0.0.1:7730").await;
    assert_eq!(own, address(1, 1));
}

#[tokio::test]
async fn a_gateway_can_make_up_no_jobs() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let (n1, n2) = (grid.agent(&alpha, "n1").await, grid.agent(&beta, "n2").await);
    let (_n2, _) = n2.up("10.0.0.2:7730").await;
    let token = grid.token(Role::Gateway, Some("alpha"), Some("captured"));
    let captured = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    let (_, mut hostile) = hostile_gateway_as(&grid, "alpha", &captured).await;
    hostile.send(signed(&n1.credentials, captured.identity(), 1, "10.0.0.9:7730")).await;
    welcome(&mut hostile).await;
    let job = |number: u64, owner: &str, nodes: &[&str]| proto::JobReport {
        job: format!("{number:032x}"),
        owner: owner.to_owned(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        ..proto::JobReport::default()
    };
    let joined =
        proto::Joined { initiator: "n1.alpha".into(), acceptor: "ghost.beta".into(), ..Default::default() };
    // Dropped without a message: the head is attached to another gateway.
    hostile.send(attach_up::Kind::Job(job(2, "anna", &["n2.beta"]))).await;
    for (report, want) in [
        (job(1, "berta", &["n1.alpha"]), "is no node of user \"berta\""),
        (job(3, "anna", &["ghost.alpha"]), "is no node of user"),
        (job(4, "anna", &["n1.alpha", "ghost.beta"]), "names \"ghost.beta\", which is no node"),
        (proto::JobReport { joined: vec![joined], ..job(5, "anna", &["n1.alpha"]) }, "names \"ghost.beta\""),
        (
            proto::JobReport { program: "\u{1b}]0;x".into(), ..job(6, "anna", &["n1.alpha"]) },
            "has the control character",
        ),
    ] {
        hostile.send(attach_up::Kind::Job(report)).await;
        let reason = refusal(&mut hostile).await;
        assert!(reason.contains(want), "{reason}");
    }
    assert_eq!(list(&admin(&grid).await, all_jobs()).await.jobs, []);
}

async fn measure(client: &RegistryClient<Channel>, from: &str, to: &str) -> Result<(), Status> {
    let request = proto::MeasureRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        start: true,
        ..proto::MeasureRequest::default()
    };
    soon("an answer", client.clone().measure(request)).await.map(drop)
}

#[tokio::test]
async fn members_order_and_see_only_their_own() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let (anna, berta) =
        (agent_of(&grid, &alpha, "n1", "anna").await, agent_of(&grid, &beta, "n1", "berta").await);
    let ((anna_up, _), (_berta_up, _)) = (anna.up("10.0.0.1:7730").await, berta.up("10.0.0.2:7730").await);
    let admin = admin(&grid).await;
    for (who, client, from, to, want) in [
        ("anna from her own node", &anna.client, "n1.alpha", "n1.beta", Code::Ok),
        ("anna from berta's", &anna.client, "n1.beta", "n1.alpha", Code::PermissionDenied),
        ("berta from anna's", &berta.client, "n1.alpha", "n1.beta", Code::PermissionDenied),
        ("an administrator", &admin, "n1.beta", "n1.alpha", Code::Ok),
    ] {
        assert_eq!(code(measure(client, from, to).await), want, "{who}");
    }
    for _ in 0..60 {
        let _ = measure(&berta.client, "n1.beta", "n1.alpha").await;
    }
    assert_eq!(code(measure(&berta.client, "n1.beta", "n1.alpha").await), Code::ResourceExhausted);
    assert_eq!(code(measure(&anna.client, "n1.alpha", "n1.beta").await), Code::Ok, "others are not affected");

    // An agent's report names its own owner, whatever it sends.
    let report = proto::JobReport {
        job: format!("{:032x}", 7),
        owner: "berta".to_owned(),
        program: "a\u{1b}[2J".to_owned(),
        nodes: vec!["n1.alpha".to_owned()],
        ..proto::JobReport::default()
    };
    anna_up.send(attach_up::Kind::Job(report)).await;
    let jobs = soon("the job", async {
        loop {
            let jobs = list(&admin, all_jobs()).await.jobs;
            if !jobs.is_empty() {
                return jobs;
            }
        }
    })
    .await;
    assert_eq!((jobs[0].owner.as_str(), jobs[0].program.as_str()), ("anna", r"a\u{1b}[2J"));
    assert_eq!(anna.list(all_jobs()).await.jobs.len(), 1);
    assert_eq!(berta.list(all_jobs()).await.jobs.len(), 0);
    let sites = berta.list(Records::Sites(proto::SiteFilter::default())).await.sites;
    assert_eq!(sites[0].jobs, 1, "all see how many there are");

    // A captured gateway answers for agents of its own site alone.
    let (client, _hostile) = hostile_gateway(&grid, "beta").await;
    for (uri, want) in [
        (berta.credentials.identity().uri(), Code::Ok),
        (anna.credentials.identity().uri(), Code::PermissionDenied),
        ("isthmus:///agent/beta/n1/anna".to_owned(), Code::PermissionDenied),
    ] {
        let request =
            proto::ListRequest { records: Some(all_jobs()), identity: uri.clone(), ..Default::default() };
        let reply = client.clone().list(request).await.map(drop);
        assert_eq!(code(reply), want, "{uri}");
    }

    let token = grid.token(Role::Relay, None, Some("r1"));
    let relay = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", &relay).await.unwrap();
    let request = proto::ListRequest { records: Some(all_nodes()), ..Default::default() };
    let status = RegistryClient::new(channel).list(request).await.unwrap_err();
    assert_eq!(
        status.message(),
        "relay r1 may not call Registry/List at the broker; gateways and administrators may"
    );
}

/// A service that is full closes connections of strangers, such as that of a node that joins.
#[tokio::test]
async fn a_join_whose_connection_breaks_is_tried_again() {
    let grid = Grid::start().await;
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (via, broker) = (front.local_addr().unwrap().to_string(), grid.broker_address);
    let tries = tokio::spawn(async move {
        // Bytes of the answer: none, a part of the handshake, perhaps a part of the call.
        for limit in [0, 600, 2000, u64::MAX] {
            let (mut client, _) = front.accept().await.unwrap();
            let mut server = TcpStream::connect(broker).await.unwrap();
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.split();
                let (from_server, mut to_server) = server.split();
                let mut from_server = from_server.take(limit);
                tokio::select! {
                    _ = copy(&mut from_client, &mut to_server) => {}
                    _ = copy(&mut from_server, &mut to_client) => {}
                }
            });
        }
    });
    let token = grid.token(Role::Relay, None, Some("r1"));
    let joined = soon("joining", enrol::join(&token, None, Some(&via))).await.unwrap();
    assert_eq!(joined.identity().to_string(), "relay r1");
    tries.await.unwrap();

    // A refusal is final.
    let used = soon("joining", enrol::join(&token, None, None)).await.unwrap_err();
    assert!(matches!(&used, JoinError::Refused(reason) if reason.contains("used before")), "{used}");
}

/// Each certificate is a line of the audit log, and a write to disk. Without a bound, a single key
/// got 116 a second.
#[tokio::test]
async fn certificates_have_a_rate() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let (greedy, other) = (grid.agent(&alpha, "n1").await, grid.agent(&alpha, "n2").await);
    let renew = async |credentials: &Credentials| {
        let via = (credentials.upstream(), credentials.identity().upstream_server_name());
        let channel = grpc::connect(via.0, &via.1, credentials).await.unwrap();
        let key = SigningRequest::new().unwrap();
        let request = renewal::request(credentials, &key.der, SystemTime::now()).unwrap();
        code(soon("an answer", EnrolmentClient::new(channel).renew(request)).await.map(drop))
    };
    let mut got = 0;
    let refused = loop {
        match renew(&greedy.credentials).await {
            Code::Ok => got += 1,
            code => break code,
        }
    };
    assert_eq!((got, refused), (100, Code::ResourceExhausted));
    for credentials in [&other.credentials, &alpha.credentials] {
        assert_eq!(renew(credentials).await, Code::Ok, "{}", credentials.identity());
    }

    // A captured gateway sends a node's request again and again.
    let token = grid.token(Role::Gateway, Some("alpha"), Some("captured"));
    let captured = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    let address = grid.broker_address.to_string();
    let channel = grpc::connect(&address, "broker", &captured).await.unwrap();
    let mut broker = EnrolmentClient::new(channel);
    let key = SigningRequest::new().unwrap();
    let recorded = renewal::request(&other.credentials, &key.der, SystemTime::now()).unwrap();
    let mut got = 0;
    let refused = loop {
        match code(soon("an answer", broker.renew(recorded.clone())).await.map(drop)) {
            Code::Ok => got += 1,
            code => break code,
        }
    };
    assert_eq!((got, refused), (100, Code::ResourceExhausted));
    assert_eq!(renew(&other.credentials).await, Code::Ok, "by the site's other gateway");

    // A request to join that was recorded and is sent again gets its certificate again.
    let token = grid.token(Role::Agent, Some("alpha"), None);
    let signing_request = SigningRequest::new().unwrap().der;
    let request =
        BearerToken::read(&token).unwrap().request("n3".to_owned(), signing_request, false).unwrap();
    let authority = grid.state().authority.certificate().clone();
    let channel = grpc::connect_unidentified(&address, "broker", authority).await.unwrap();
    let mut broker = EnrolmentClient::new(channel);
    let mut got = 0;
    let refused = loop {
        match code(soon("an answer", broker.join(request.clone())).await.map(drop)) {
            Code::Ok => got += 1,
            code => break code,
        }
    };
    assert_eq!((got, refused), (100, Code::ResourceExhausted));
}
