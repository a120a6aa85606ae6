//! The broker's audit log of who becomes a member, who no longer is one, and who was
//! refused: who asked, from where, and about whom.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

// A binary of its own: the audit log is the whole process's.
#[path = "it/grid/mod.rs"]
mod grid;

use std::path::Path;
use std::time::SystemTime;

use grid::{Grid, soon};
use isthmus_net::audit::{self, Format};
use isthmus_net::credentials::SigningRequest;
use isthmus_net::{Credentials, Role, enrol, grpc, renewal};
use isthmus_wire::proto;
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
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
    let request = renewal::proof::request(of, &key.der, SystemTime::now()).unwrap();
    let mut client = EnrolmentClient::new(broker(grid, by).await);
    soon("an answer", client.renew(request)).await.map(drop)
}

/// The lines since the last call, without their times and ports.
fn lines(path: &Path, read: &mut usize) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().skip(*read).map(|line| line.split_once(' ').unwrap().1).collect();
    *read += lines.len();
    let source = |line: &str| {
        let (before, rest) = line.split_once("source=\"127.0.0.1:").unwrap();
        format!("{before}source{}", rest.split_once('"').unwrap().1)
    };
    lines.into_iter().map(source).collect()
}

#[tokio::test]
async fn each_change_of_membership_and_each_refusal_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    audit::start(Some(&path), Format::Text, directory.path()).unwrap();
    let grid = Grid::start().await;
    let (alpha, mut read) = (grid.gateway("alpha").await, 0);
    let joined = lines(&path, &mut read);
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
        lines(&path, &mut read),
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
    let found = lines(&path, &mut read);
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
