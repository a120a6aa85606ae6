//! What a revoked member can't do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod grid;

use std::io;
use std::time::SystemTime;

use grid::{Agent, Attachment, Grid, list, soon};
use isthmus_net::secured::Secured;
use isthmus_net::token::{Invitation, JoinToken};
use isthmus_net::{Credentials, Identity, Role, enrol, grpc, renewal};
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::Channel;
use tonic::{Code, Status};

type Administrator = AdministrationClient<Channel>;

async fn broker(grid: &Grid, credentials: &Credentials) -> Channel {
    grpc::connect(&grid.broker_address.to_string(), "broker", credentials).await.unwrap()
}

async fn administrator(grid: &Grid) -> Administrator {
    AdministrationClient::new(broker(grid, &grid.admin()).await)
}

async fn revoke(by: &Administrator, name: &str, remove: bool) -> Result<proto::Member, Status> {
    let request = proto::RevokeRequest { name: name.to_owned(), remove };
    let reply = soon("an answer", by.clone().revoke(request)).await?;
    Ok(reply.into_inner().member.unwrap())
}

async fn join(grid: &Grid, via: &grid::Gateway, name: &str, owner: &str) -> Result<Agent, String> {
    let invitation = grid.invitation(Role::Agent, Some(&via.site), Some(name));
    let invitation = Invitation { owner: Some(owner.parse().unwrap()), ..invitation };
    let state = grid.state();
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation).unwrap();
    let address = via.address.to_string();
    let joined = soon("joining", enrol::join(&token, None, Some(&address))).await;
    let credentials = joined.map_err(|error| error.to_string())?;
    let channel = grpc::connect(&address, &format!("gateway.{}", via.site), &credentials).await.unwrap();
    Ok(Agent { credentials, client: RegistryClient::new(channel) })
}

/// The handshake of two agents; each end's result.
async fn meet(from: &Credentials, to: &Credentials) -> (io::Result<Secured>, io::Result<Secured>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    let name = ServerName::try_from(to.identity().server_name()).unwrap();
    let (client, server) = (from.client_config(&[]).unwrap(), to.server_config(&[]).unwrap());
    tokio::join!(client.connect(name, connected.unwrap()), server.accept(accepted.unwrap().0))
}

/// Takes revocations in, as an agent does, until there is one.
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

    // Its gateway.
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
        let request = isthmus_net::credentials::SigningRequest::new().unwrap();
        Self(renewal::proof::request(credentials, &request.der, SystemTime::now()).unwrap())
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
    assert_eq!(names, [("gateway.alpha", 0), ("n1.alpha", 0)]);
    assert_eq!(members[1].identity, "isthmus:///agent/alpha/n1/berta");
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

/// The list is sent in messages within the bounds.
#[test]
fn ten_thousand_revocations_are_sent_in_bounded_messages() {
    use isthmus_net::peers::{Peers, Revoked, messages};
    use isthmus_wire::bounds::{MESSAGE_BYTES, encoded_len};
    let name = |index: usize| format!("{:a<58}{index:05}", "");
    let list: Vec<_> = (0..10_000)
        .map(|index| {
            let uri = format!("isthmus:///agent/{}/{}/anna", name(index), name(index));
            let identity = Identity::from_uri(&uri).unwrap();
            Revoked { identity: Revoked::key(&identity), issued_until: 1 << 40, ends: 1 << 40 }
        })
        .collect();
    let peers = Peers::default();
    for message in messages(list) {
        assert!(encoded_len(&message) < MESSAGE_BYTES);
        peers.receive(message);
    }
    assert_eq!(peers.revoked().len(), 10_000);
}
