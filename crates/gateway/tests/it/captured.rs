//! A captured gateway and the nodes of its sibling, another gateway of the same site. The captured
//! gateway knows all that the broker tells it of them. It also has what their agents signed when
//! they were attached to it.

use std::time::{Duration, Instant};

use isthmus_identity::{Credentials, Role};
use isthmus_rpc::enrol;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{self, attach_down, attach_up};

use crate::grid::{Agent, Attachment, Grid, address, list, signed, soon};
use crate::members::{admin, hostile_gateway_as, refusal, welcome};
use crate::promised::promised;

const AT: &str = "10.0.0.1:7730";
const ELSEWHERE: &str = "10.6.6.6:7730";
/// How soon a node is back once the gateway that took it has left.
const BACK: Duration = Duration::from_secs(5);

/// What the broker tells a gateway of a node that is attached to the site's other gateway.
async fn told(attachment: &mut Attachment, node: &str) -> proto::NodeUp {
    loop {
        match attachment.next().await {
            attach_down::Kind::SiteNode(told) => {
                let contact = told.contact.unwrap();
                if contact.node == node && !told.gone {
                    return contact;
                }
            }
            attach_down::Kind::ContactChanged(_) | attach_down::Kind::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The credentials of a further gateway of the site, which the tests take as captured.
async fn captured(grid: &Grid) -> Credentials {
    let token = grid.token(Role::Gateway, Some("alpha"), Some("captured"));
    soon("joining", enrol::join(&token, None, None)).await.unwrap()
}

#[tokio::test]
async fn it_takes_no_node() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let (n1, far) = (grid.agent(&alpha, "n1").await, grid.agent(&beta, "n1").await);
    let (n1_attached, own) = n1.up(AT).await;
    let (_far_attached, _) = far.up(AT).await;
    let captured = captured(&grid).await;
    let (_, mut hostile) = hostile_gateway_as(&grid, "alpha", &captured).await;
    let contact = told(&mut hostile, "n1").await;
    assert_eq!(contact.address, AT);
    let announced = |change: &dyn Fn(&mut proto::NodeUp)| {
        let mut up = contact.clone();
        change(&mut up);
        attach_up::Kind::NodeUp(up)
    };
    let n2 = grid.agent(&alpha, "n2").await;
    let by_n2 = signed(&n2.credentials, captured.identity(), u64::MAX, ELSEWHERE);
    let attach_up::Kind::NodeUp(by_n2) = by_n2 else { panic!("{by_n2:?}") };
    let unsigned = "its agent hasn't signed where it is";
    for (case, up, want) in [
        ("as it was told", announced(&|_| {}), "it is for gateway.alpha, not for gateway captured.alpha"),
        ("a later attachment", announced(&|up| up.attachment = 1 << 62), "it is for gateway.alpha"),
        ("without a signature", announced(&|up| (up.signed, up.attachment) = (None, 1 << 62)), unsigned),
        (
            "the same, at its own address",
            announced(&|up| (up.signed, up.address) = (None, ELSEWHERE.to_owned())),
            unsigned,
        ),
        (
            "at its own address",
            announced(&|up| up.address = ELSEWHERE.to_owned()),
            "it is for gateway.alpha, not for gateway captured.alpha",
        ),
        (
            "signed by another agent",
            announced(&|up| {
                (up.signed, up.address) = (by_n2.signed.clone(), ELSEWHERE.to_owned());
            }),
            "it is that of agent n2.alpha, not of agent n1.alpha",
        ),
    ] {
        hostile.send(up).await;
        let reason = refusal(&mut hostile).await;
        assert!(reason.contains(want), "{case}: {reason}");
        assert_eq!(far.address_of("n1.alpha").await, AT, "{case}");
    }
    // The node is still attached to its own gateway.
    assert_eq!(attached_to(&grid).await, [("captured".to_owned(), 0), ("gateway".to_owned(), 1)]);
    drop((hostile, n1_attached));
    assert_eq!(own, address(1, 1));
}

/// The gateways of alpha, with how many of their nodes are up.
async fn attached_to(grid: &Grid) -> Vec<(String, u32)> {
    let sites = Records::Sites(proto::SiteFilter { names: vec!["alpha".to_owned()] });
    let sites = list(&admin(grid).await, sites).await.sites;
    let gateways = sites.into_iter().flat_map(|site| site.gateways);
    gateways.map(|gateway| (gateway.name, gateway.nodes)).collect()
}

/// Waits until alpha's nodes are attached as `want` says. The broker answers before it hears of a
/// node.
async fn until_attached_to(grid: &Grid, want: &[(String, u32)]) {
    soon("the broker hears of the node", async {
        while attached_to(grid).await != want {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// The broker was started anew and knows no later attachment, and the node's own gateway isn't
/// there yet.
#[tokio::test]
async fn what_it_has_recorded_is_worth_nothing_once_the_node_s_own_gateway_is_back() {
    let mut grid = Grid::start().await;
    let mut alpha = grid.gateway("alpha").await;
    let n1 = grid.agent(&alpha, "n1").await;
    let captured = captured(&grid).await;
    // The agent was attached to it before.
    let recorded = signed(&n1.credentials, captured.identity(), 1, AT);
    alpha.stop().await;
    grid.stop_broker().await;
    grid.start_broker().await;
    let (_, mut hostile) = hostile_gateway_as(&grid, "alpha", &captured).await;
    hostile.send(recorded.clone()).await;
    welcome(&mut hostile).await;
    assert_eq!(attached_to(&grid).await, [("captured".to_owned(), 1)]);

    alpha.start_again().await;
    let again = Agent::at(&alpha, n1.credentials.clone()).await;
    let (_n1_attached, _) = again.up(AT).await;
    let both = [("captured".to_owned(), 0), ("gateway".to_owned(), 1)];
    until_attached_to(&grid, &both).await;
    // What the captured gateway sends about n1 has no effect any more, and the broker says nothing.
    assert!(told(&mut hostile, "n1").await.attachment > 1);
    hostile.send(recorded).await;
    hostile.send(attach_up::Kind::NodeDown(proto::NodeDown { node: "n1".to_owned() })).await;
    hostile.send(attach_up::Kind::NodeUp(proto::NodeUp::default())).await;
    let reason = refusal(&mut hostile).await;
    assert!(!reason.contains("n1"), "the one after them is refused: {reason}");
    assert_eq!(attached_to(&grid).await, both);
}

/// Tests that assert a time, which run one at a time.
mod alone {
    use super::*;

    /// The captured gateway has what an agent signed that tried to attach to it, and stayed where
    /// it was. What the agent signed there is its last word.
    #[tokio::test]
    async fn a_node_is_back_within_seconds_where_its_agent_is_attached() {
        let grid = Grid::start().await;
        let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
        let (n1, far) = (grid.agent(&alpha, "n1").await, grid.agent(&beta, "n1").await);
        let (mut n1_attached, _) = n1.up(AT).await;
        let (_far_attached, _) = far.up(AT).await;
        let captured = captured(&grid).await;
        let (_, mut hostile) = hostile_gateway_as(&grid, "alpha", &captured).await;
        let before = told(&mut hostile, "n1").await;
        hostile.send(signed(&n1.credentials, captured.identity(), before.attachment + 1, AT)).await;
        welcome(&mut hostile).await;
        let taken = Instant::now();
        assert_eq!(attached_to(&grid).await, [("captured".to_owned(), 1), ("gateway".to_owned(), 0)]);
        loop {
            match n1_attached.next().await {
                attach_down::Kind::AnnounceAgain(_) => break,
                attach_down::Kind::ContactChanged(_) => {}
                other => panic!("{other:?}"),
            }
        }
        n1_attached.send(n1.announcement(AT)).await;
        assert!(told(&mut hostile, "n1").await.attachment > before.attachment + 1);
        let took = taken.elapsed();
        assert!(took < promised(BACK), "{took:?}");
        assert_eq!(attached_to(&grid).await, [("captured".to_owned(), 0), ("gateway".to_owned(), 1)]);
        drop(hostile);
        assert_eq!(far.address_of("n1.alpha").await, AT);
    }
}
