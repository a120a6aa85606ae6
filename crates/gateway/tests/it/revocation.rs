//! What a revoked member can't do.

use std::io;
use std::time::SystemTime;

use isthmus_identity::peers::{REVOKED_HERE, Revoked};
use isthmus_identity::secured::Secured;
use isthmus_identity::token::Invitation;
use isthmus_identity::{Credentials, Identity, Role, signed};
use isthmus_rpc::{enrol, grpc, renewal};
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::grid::{self, Agent, Attachment, Grid, list, soon};

type Administrator = AdministrationClient<Channel>;

async fn broker(grid: &Grid, credentials: &Credentials) -> Channel {
    grpc::connect(&grid.broker_address.to_string(), "broker", credentials).await.unwrap()
}

async fn administrator(grid: &Grid) -> Administrator {
    AdministrationClient::new(broker(grid, &grid.admin()).await)
}

async fn revoke(by: &Administrator, name: &str, remove: bool) -> Result<proto::Member, Status> {
    let request = proto::RevokeRequest { name: name.to_owned(), remove, keep_token: false };
    let reply = soon("an answer", by.clone().revoke(request)).await?;
    Ok(reply.into_inner().member.unwrap())
}

async fn join(grid: &Grid, via: &grid::Gateway, name: &str, owner: &str) -> Result<Agent, String> {
    let invitation = grid.invitation(Role::Agent, Some(&via.site), Some(name));
    let invitation = Invitation { owner: Some(owner.parse().unwrap()), ..invitation };
    let address = via.address.to_string();
    let joined = soon("joining", enrol::join(&grid.mint(&invitation), None, Some(&address))).await;
    Ok(Agent::at(via, joined.map_err(|error| error.to_string())?).await)
}

/// A TCP connection: its client's and its server's end.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

/// The handshake of two agents; each end's result.
async fn meet(from: &Credentials, to: &Credentials) -> (io::Result<Secured>, io::Result<Secured>) {
    let (connected, accepted) = connection().await;
    let name = ServerName::try_from(to.identity().server_name()).unwrap();
    let (client, server) = (from.client_config(&[]).unwrap(), to.server_config(&[]).unwrap());
    tokio::join!(client.connect(name, connected), server.accept(accepted))
}

/// Takes revocations in, as an agent does, until one has come.
async fn receive(attachment: &mut Attachment, credentials: &Credentials) {
    loop {
        if let attach_down::Kind::Revocations(revocations) = attachment.next().await {
            return credentials.peers().receive(revocations);
        }
    }
}

#[tokio::test]
async fn a_revoked_agent_is_refused_everywhere_at_once() {
    let mut grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let n1 = join(&grid, &alpha, "n1", "anna").await.unwrap();
    let n2 = join(&grid, &beta, "n2", "anna").await.unwrap();
    let mut n1_up = n1.up("10.0.0.1:7730").await.0;
    let mut n2_up = n2.up("10.0.0.2:7730").await.0;
    let (near, far) = meet(&n1.credentials, &n2.credentials).await;
    let (_near, mut far) = (near.unwrap(), far.unwrap());

    let admin = administrator(&grid).await;
    let member = revoke(&admin, "n1.alpha", false).await.unwrap();
    assert_eq!(member.identity, "isthmus:///agent/alpha/n1/anna");
    assert!(member.revoked > 0 && member.ends > member.revoked);

    // The node's gateway ends the attachment, and answers no calls.
    n1_up.end().await;
    let refused = n1.lookup("n2.beta").await.unwrap_err();
    assert!(matches!(refused.code(), Code::Unavailable | Code::Unknown | Code::Cancelled), "{refused}");
    let directory = grid.directory("n1");
    let renewed =
        soon("renewal", renewal::renew(&n1.credentials, &directory, &alpha.address.to_string())).await;
    renewed.unwrap_err();
    // The broker lists it as down.
    let registry = RegistryClient::new(broker(&grid, &grid.admin()).await);
    let up = Records::Nodes(proto::NodeFilter { up: true, ..proto::NodeFilter::default() });
    soon("the node is down", async {
        while list(&registry, up.clone()).await.nodes.iter().any(|node| node.name == "n1.alpha") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // An agent of another site: open and new connections, in both directions.
    receive(&mut n2_up, &n2.credentials).await;
    let ended = soon("the end of the connection", far.read_u8()).await.unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::PermissionDenied, "{ended}");
    let refused = meet(&n1.credentials, &n2.credentials).await.1.unwrap_err().to_string();
    assert!(refused.contains("certificates of agent n1.alpha issued until"), "{refused}");
    meet(&n2.credentials, &n1.credentials).await.0.unwrap_err();

    // The broker after a restart, by another gateway, and for a renewal that a captured
    // gateway passes on.
    drop(admin);
    grid.stop_broker().await;
    grid.start_broker().await;
    let captured = EnrolmentRequest::of(&n1.credentials);
    let channel = broker(&grid, &beta.credentials).await;
    let refused = proto::enrolment_client::EnrolmentClient::new(channel).renew(captured.0).await.unwrap_err();
    assert!(refused.message().contains("not a member") || refused.message().contains("revoked"), "{refused}");

    // A new token of the same owner makes it a member again.
    let again = join(&grid, &alpha, "n1", "anna").await.unwrap();
    again.up("10.0.0.1:7730").await;
    let (near, far) = meet(&again.credentials, &n2.credentials).await;
    near.unwrap();
    far.unwrap();
    meet(&n1.credentials, &n2.credentials).await.1.unwrap_err();
}

struct EnrolmentRequest(proto::RenewRequest);

impl EnrolmentRequest {
    fn of(credentials: &Credentials) -> Self {
        let request = isthmus_identity::credentials::SigningRequest::new().unwrap();
        Self(signed::renewal::request(credentials, &request.der, SystemTime::now()).unwrap())
    }
}

#[tokio::test]
async fn a_removed_name_is_free_for_another_owner() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let n1 = join(&grid, &alpha, "n1", "anna").await.unwrap();
    let mut n1_up = n1.up("10.0.0.1:7730").await.0;
    let admin = administrator(&grid).await;
    assert!(join(&grid, &alpha, "n1", "berta").await.err().unwrap().contains("belongs to user anna"));
    revoke(&admin, "n1.alpha", true).await.unwrap();
    n1_up.end().await;
    let berta = join(&grid, &alpha, "n1", "berta").await.unwrap();
    berta.up("10.0.0.1:7730").await;
    let members = admin.clone().members(proto::MembersRequest::default()).await.unwrap().into_inner().members;
    let names: Vec<_> = members.iter().map(|member| (member.name.as_str(), member.revoked)).collect();
    assert_eq!(names, [("admin", 0), ("gateway.alpha", 0), ("n1.alpha", 0)]);
    assert_eq!(members[2].identity, "isthmus:///agent/alpha/n1/berta");
}

#[tokio::test]
async fn a_revoked_gateway_is_cut_off_and_only_administrators_revoke() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let n1 = grid.agent(&alpha, "n1").await;
    n1.up("10.0.0.1:7730").await;
    let admin = administrator(&grid).await;
    let gateway = AdministrationClient::new(broker(&grid, &alpha.credentials).await);
    assert_eq!(revoke(&gateway, "n1.alpha", false).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(revoke(&admin, "admin", false).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(revoke(&admin, "n9.alpha", false).await.unwrap_err().code(), Code::NotFound);
    revoke(&admin, "gateway.alpha", false).await.unwrap();
    let error = soon("the end", gateway.clone().members(proto::MembersRequest::default())).await.unwrap_err();
    assert_ne!(error.code(), Code::PermissionDenied, "the connection has ended: {error}");
    let registry = RegistryClient::new(broker(&grid, &grid.admin()).await);
    let sites = Records::Sites(proto::SiteFilter::default());
    soon("the gateway is gone", async {
        while list(&registry, sites.clone()).await.sites.iter().any(|site| site.up) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The broker's answer to a call over a new connection.
async fn asked(grid: &Grid, credentials: &Credentials) -> Result<(), String> {
    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", credentials).await;
    let mut client = AdministrationClient::new(channel.map_err(|error| error.to_string())?);
    let answer = soon("an answer", client.members(proto::MembersRequest::default())).await;
    answer.map(drop).map_err(|status| grpc::reason(&status))
}

/// Calls until the refusal says why. Each call is refused, but a call may end before it learns the
/// reason.
async fn told(call: impl AsyncFn() -> Result<(), String>) {
    let refused = async {
        while !call().await.unwrap_err().contains(REVOKED_HERE) {
            tokio::task::yield_now().await;
        }
    };
    soon("the reason", refused).await;
}

/// The first administrator is revoked and removed, in a broker that goes on and in a new broker.
#[tokio::test]
async fn a_second_administrator_revokes_the_first() {
    for remove in [false, true] {
        let mut grid = Grid::start().await;
        let token = grid.token(Role::Admin, None, Some("berta"));
        let second = soon("joining", enrol::join(&token, None, None)).await.unwrap();
        let first = grid.admin();
        asked(&grid, &first).await.unwrap();
        let by = AdministrationClient::new(broker(&grid, &second).await);
        let member = revoke(&by, "admin", remove).await.unwrap();
        assert_eq!(member.identity, "isthmus:///admin//admin/");
        for restarted in [false, true] {
            if restarted {
                grid.stop_broker().await;
                grid.start_broker().await;
            }
            told(async || asked(&grid, &first).await).await;
            let channel = broker(&grid, &second).await;
            let mut enrolment = proto::enrolment_client::EnrolmentClient::new(channel);
            let refused = enrolment.renew(EnrolmentRequest::of(&first).0).await.unwrap_err();
            assert!(refused.message().contains("of admin issued until"), "{refused}");
            asked(&grid, &second).await.unwrap();
        }
    }
}

/// The revoked party itself learns why nobody answers it, from broker, gateway and agent.
#[tokio::test]
async fn a_revoked_party_is_told_so() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let n1 = join(&grid, &alpha, "n1", "anna").await.unwrap();
    let n2 = join(&grid, &alpha, "n2", "anna").await.unwrap();
    let mut n2_up = n2.up("10.0.0.2:7730").await.0;
    let tls = n1.credentials.client_config(&[]).unwrap();
    let meet = async |tls: &isthmus_identity::secured::ClientTls| {
        let (connected, accepted) = connection().await;
        let name = ServerName::try_from("n2.alpha").unwrap();
        let server = n2.credentials.server_config(&[]).unwrap();
        let served = async {
            let mut served = server.accept(accepted).await?;
            served.write_all(b"x").await?;
            served.flush().await?;
            served.read_u8().await
        };
        let asked = async {
            let mut stream = tls.connect(name, connected).await?;
            let read = stream.read_u8().await;
            drop(stream);
            read
        };
        tokio::join!(asked, served).0
    };
    meet(&tls).await.unwrap();
    revoke(&administrator(&grid).await, "n1.alpha", false).await.unwrap();
    receive(&mut n2_up, &n2.credentials).await;
    let by_agent = soon("an answer", meet(&tls)).await.unwrap_err();
    assert!(by_agent.to_string().contains(REVOKED_HERE), "{by_agent}");
    told(async || asked(&grid, &n1.credentials).await).await;
    let at = alpha.address.to_string();
    told(async || {
        let channel = grpc::connect(&at, "gateway.alpha", &n1.credentials).await;
        let mut client = RegistryClient::new(channel.map_err(|error| error.to_string())?);
        let request = proto::LookupRequest { name: "n2.alpha".to_owned(), ..Default::default() };
        client.lookup(request).await.map(drop).map_err(|status| grpc::reason(&status))
    })
    .await;
    assert!(n1.credentials.peers().is_revoked_here());
}

/// A session from before the revocation verifies no certificate when it is resumed.
#[tokio::test]
async fn a_revocation_ends_resumption() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let n1 = join(&grid, &alpha, "n1", "anna").await.unwrap();
    let n2 = join(&grid, &alpha, "n2", "anna").await.unwrap();
    let (client, server) =
        (n1.credentials.client_config(&[]).unwrap(), n2.credentials.server_config(&[]).unwrap());
    let meet = async || {
        let (connected, accepted) = connection().await;
        let name = ServerName::try_from("n2.alpha").unwrap();
        let connecting = async {
            let mut stream = client.connect(name, connected).await?;
            // The tickets come before the first byte.
            stream.read_u8().await.map(|_| stream.get_ref().1.handshake_kind())
        };
        let accepting = async {
            let mut stream = server.accept(accepted).await?;
            stream.write_all(b"x").await?;
            stream.flush().await?;
            io::Result::Ok(stream)
        };
        let (kind, served) = tokio::join!(connecting, accepting);
        served.and(kind)
    };
    assert_eq!(meet().await.unwrap(), Some(HandshakeKind::Full));
    assert_eq!(meet().await.unwrap(), Some(HandshakeKind::Resumed));
    let other = Revoked { identity: "isthmus:///relay//r9/".to_owned(), issued_until: 1, ends: u64::MAX };
    n2.credentials.peers().revoke([other]).unwrap();
    assert_eq!(meet().await.unwrap(), Some(HandshakeKind::Full));
    assert_eq!(meet().await.unwrap(), Some(HandshakeKind::Resumed));
}

/// The list is sent in messages within the bounds.
#[test]
fn ten_thousand_revocations_are_sent_in_bounded_messages() {
    use isthmus_identity::peers::{Peers, messages};
    use isthmus_wire::bounds::{MESSAGE_BYTES, encoded_len};
    let name = |index: usize| format!("{:a<58}{index:05}", "");
    let now = isthmus_service::clock::unix_seconds(SystemTime::now());
    let list: Vec<_> = (0..10_000)
        .map(|index| {
            let uri = format!("isthmus:///agent/{}/{}/anna", name(index), name(index));
            let identity = Identity::from_uri(&uri).unwrap();
            Revoked { identity: Revoked::key(&identity), issued_until: now, ends: now + 3600 }
        })
        .collect();
    let peers = Peers::default();
    for message in messages(list) {
        assert!(encoded_len(&message) < MESSAGE_BYTES);
        peers.receive(message);
    }
    assert_eq!(peers.revoked().len(), 10_000);
}
