//! The broker's audit log of who becomes a member, who no longer is one, and who was
//! refused: who asked, from where, and about whom.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

// A binary of its own: the audit log is the whole process's.
#[path = "it/grid/mod.rs"]
mod grid;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use grid::{Attachment, Grid, signed, soon};
use isthmus_identity::audit::{self, Format};
use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::{Credentials, Role, signed};
use isthmus_rpc::{enrol, grpc};
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tonic::transport::Channel;

async fn broker(grid: &Grid, credentials: &Credentials) -> Channel {
    grpc::connect(&grid.broker_address.to_string(), "broker", credentials).await.unwrap()
}

async fn revoke(grid: &Grid, by: &Credentials, name: &str, remove: bool) -> Result<(), tonic::Status> {
    let mut client = AdministrationClient::new(broker(grid, by).await);
    let request = proto::RevokeRequest { name: name.to_owned(), remove, keep_token: false };
    soon("an answer", client.revoke(request)).await.map(drop)
}

async fn renew(grid: &Grid, by: &Credentials, of: &Credentials) -> Result<(), tonic::Status> {
    let key = SigningRequest::new().unwrap();
    let request = signed::renewal::request(of, &key.der, SystemTime::now()).unwrap();
    let mut client = EnrolmentClient::new(broker(grid, by).await);
    soon("an answer", client.renew(request)).await.map(drop)
}

/// The audit log of this process, which all tests write.
fn log() -> &'static Path {
    static LOG: OnceLock<PathBuf> = OnceLock::new();
    LOG.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = directory.join("audit-of-the-broker.log");
        let _ = std::fs::remove_file(&path);
        audit::start(Some(&path), Format::Text, directory).unwrap();
        path
    })
}

/// Whether a line is about an attachment. Another test makes these lines, at any time.
fn is_attachment(line: &str) -> bool {
    ["attach ", "detach ", "node ", "move "].iter().any(|event| line.starts_with(event))
}

/// The lines about members of this test since the last call, without their times and ports.
fn lines(path: &Path, read: &mut usize) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split_once(' ').unwrap().1);
    let lines = lines.filter(|line| !is_attachment(line) && !line.contains("delta"));
    let lines: Vec<_> = lines.skip(*read).collect();
    *read += lines.len();
    let source = |line: &str| {
        let (before, rest) = line.split_once("source=\"127.0.0.1:").unwrap();
        format!("{before}source{}", rest.split_once('"').unwrap().1)
    };
    lines.into_iter().map(source).collect()
}

#[tokio::test]
async fn each_change_of_membership_and_each_refusal_is_one_line() {
    let path = log();
    let grid = Grid::start().await;
    let (alpha, mut read) = (grid.gateway("alpha").await, 0);
    let joined = lines(path, &mut read);
    assert_eq!(joined, ["join done identity=\"gateway.alpha\" owner=\"anna\" source"]);

    let token = grid.token(Role::Agent, Some("alpha"), Some("n1"));
    let via = alpha.address.to_string();
    let n1 = soon("joining", enrol::join(&token, None, Some(&via))).await.unwrap();
    soon("joining", enrol::join(&token, None, Some(&via))).await.unwrap_err();
    renew(&grid, &alpha.credentials, &n1).await.unwrap();
    let used =
        "the join token was used before, and each is good once; ask for a new one (isthmus grid invite)";
    let by_gateway = "identity=\"gateway.alpha\" owner=\"anna\" source";
    assert_eq!(
        lines(path, &mut read),
        [
            "join done identity=\"agent n1.alpha\" owner=\"anna\" source".to_owned(),
            format!(
                "join refused {by_gateway} subject=\"role agent site alpha name n1 owner anna under the name \\\"n1\\\"\" \
                 reason=\"{used}\""
            ),
            "renew done identity=\"agent n1.alpha\" owner=\"anna\" source".to_owned(),
        ]
    );

    let admin = grid.admin();
    revoke(&grid, &alpha.credentials, "n1.alpha", false).await.unwrap_err();
    revoke(&grid, &admin, "n9.alpha", true).await.unwrap_err();
    revoke(&grid, &admin, "admin", true).await.unwrap_err();
    revoke(&grid, &admin, "n1.alpha", false).await.unwrap();
    renew(&grid, &alpha.credentials, &n1).await.unwrap_err();
    revoke(&grid, &admin, "n1.alpha", true).await.unwrap();
    let made_up = proto::JoinRequest { token: "x\u{1b}[2J".to_owned(), ..proto::JoinRequest::default() };
    EnrolmentClient::new(broker(&grid, &alpha.credentials).await).join(made_up).await.unwrap_err();
    let by_admin = "identity=\"admin\" source";
    let n1 = "subject=\"isthmus:///agent/alpha/n1/anna\"";
    let found = lines(path, &mut read);
    for (line, want) in found.iter().zip([
        format!("call refused {by_gateway} reason=\"gateway.alpha may not call Administration/Revoke at the broker"),
        format!("remove refused {by_admin} subject=\"n9.alpha\" reason=\"no member has the name"),
        format!("remove refused {by_admin} subject=\"admin\" reason=\"admin can't revoke itself"),
        format!("revoke done {by_admin} {n1}"),
        format!("renew refused {by_gateway} {n1} reason=\"the certificates of agent n1.alpha issued until"),
        format!("remove done {by_admin} {n1}"),
        format!("join refused {by_gateway} subject=\"no join token, under the name \\\"\\\"\" reason=\"not a join token"),
    ]) {
        assert!(line.starts_with(&want), "{line}\nnot {want}");
    }
    assert_eq!(found.len(), 7, "{found:#?}");
}

/// A gateway of site delta, which sends its own messages.
async fn gateway(grid: &Grid, name: &str) -> (Credentials, Attachment) {
    let token = grid.token(Role::Gateway, Some("delta"), Some(name));
    let credentials = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    let hello = proto::GatewayUp { site: "delta".to_owned(), ..proto::GatewayUp::default() };
    let client = RegistryClient::new(broker(grid, &credentials).await);
    let attaching = Attachment::open(client, attach_up::Kind::GatewayUp(hello));
    (credentials, soon("attaching", attaching).await.unwrap())
}

/// Has a gateway announce a node, and waits until the broker has taken or refused it.
async fn announce(attachment: &mut Attachment, up: attach_up::Kind) {
    attachment.send(up).await;
    while !matches!(attachment.next().await, attach_down::Kind::Welcome(_) | attach_down::Kind::Refusal(_)) {}
}

#[tokio::test]
async fn each_attachment_and_each_move_is_one_line() {
    let path = log();
    let grid = Grid::start().await;
    let delta = grid.gateway("delta").await;
    let n1 = grid.agent(&delta, "n1").await;
    let ((a, mut at_a), (b, mut at_b)) = (gateway(&grid, "a").await, gateway(&grid, "b").await);
    let at = |gateway: &Credentials, attachment| {
        signed(&n1.credentials, gateway.identity(), attachment, "10.0.0.1:7730")
    };
    announce(&mut at_a, at(&a, 1)).await;
    // Announced again: it is no other attachment.
    announce(&mut at_a, at(&a, 1)).await;
    announce(&mut at_a, at(&a, 2)).await;
    announce(&mut at_b, at(&a, 2)).await;
    announce(&mut at_b, at(&b, 3)).await;
    drop(at_b);
    let lines = || {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned());
        lines.filter(|line| is_attachment(line) && line.contains("delta")).collect::<Vec<_>>()
    };
    let of = |event: &str, by: &str| {
        let found = lines();
        let wanted = found.iter().filter(|line| line.starts_with(event) && line.contains(by)).cloned();
        wanted.collect::<Vec<_>>()
    };
    soon("the end of b's attachment", async {
        while of("detach done", "gateway b.delta").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let node = "identity=\"agent n1.delta\" owner=\"anna\"";
    for (event, by, want) in [
        ("attach done", "identity=\"gateway a.delta\"", &["source=\"127.0.0.1:"][..]),
        ("attach done", "identity=\"gateway b.delta\"", &["source=\"127.0.0.1:"]),
        (
            "node done",
            node,
            &["\"to gateway a of site delta, listening at 10.0.0.1:7730\"", "to gateway a of site delta"],
        ),
        ("node refused", "identity=\"gateway b.delta\"", &["reason=\"what its agent has signed is refused"]),
        ("move done", node, &["from gateway a of site delta to gateway b of site delta, listening at"]),
    ] {
        let found = of(event, by);
        assert_eq!(found.len(), want.len(), "{event} {by}: {found:#?}");
        assert!(found.iter().zip(want).all(|(line, want)| line.contains(want)), "{event} {by}: {found:#?}");
    }
    drop(at_a);
}
