//! What a gateway answers while the broker is away.

use std::time::Duration;

use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{self, Dial, attach_up};
use tonic::{Code, Status};

use crate::grid::{Agent, Grid, list, soon};
use crate::promised::promised;

/// A page of records, from the broker or from the gateway.
async fn page(agent: &Agent, records: Records) -> Result<proto::ListReply, Status> {
    let request =
        proto::ListRequest { records: Some(records), without_broker: true, ..proto::ListRequest::default() };
    soon("a page", agent.client.clone().list(request)).await.map(tonic::Response::into_inner)
}

async fn explain(agent: &Agent, from: &str, to: &str) -> Result<proto::ExplainReply, Status> {
    let request = proto::ExplainRequest { from: from.to_owned(), to: to.to_owned(), without_broker: true };
    soon("an answer", agent.client.clone().explain(request)).await.map(tonic::Response::into_inner)
}

fn nodes(filter: proto::NodeFilter) -> Records {
    Records::Nodes(filter)
}

fn names(reply: &proto::ListReply) -> Vec<&str> {
    reply.nodes.iter().map(|node| node.name.as_str()).collect()
}

/// Waits until the gateway answers by itself.
async fn by_itself(agent: &Agent) -> proto::ListReply {
    soon("the gateway answers by itself", async {
        loop {
            let reply = page(agent, nodes(proto::NodeFilter::default())).await.unwrap();
            if reply.without_broker.is_some() {
                return reply;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_gateway_answers_by_itself_what_it_knows() {
    let mut grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let n1 = grid.agent(&alpha, "n1").await;
    let (n1_attached, _) = n1.up("10.0.0.1:7730").await;
    let n2 = grid.agent(&alpha, "n2").await;
    let (n2_attached, _) = n2.up("10.0.0.2:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (_far_attached, _) = far.up("10.0.0.1:7730").await;
    let report = proto::JobReport {
        job: "ab".repeat(16),
        nodes: vec!["n1.alpha".to_owned()],
        ..proto::JobReport::default()
    };
    n1_attached.send(attach_up::Kind::Job(report)).await;
    let (_relay, _) = grid.relay("r1").await;
    assert_eq!(n1.plan("n1.beta").await, (vec![Dial::Relay], true));
    let before = page(&n1, nodes(proto::NodeFilter::default())).await.unwrap();
    assert_eq!(
        (names(&before), before.without_broker.is_some()),
        (vec!["n1.alpha", "n2.alpha", "n1.beta"], false)
    );

    grid.stop_broker().await;
    let reply = by_itself(&n1).await;
    let answer = reply.without_broker.clone().unwrap();
    assert_eq!(answer.gateway, "gateway.alpha");
    assert!(answer.away_ms >= 3000 && answer.told_ms.is_some(), "{answer:?}");
    assert_eq!((names(&reply), reply.grid.as_str()), (vec!["n1.alpha", "n2.alpha", "n1.beta"], "demo"));
    assert!(reply.nodes.iter().all(|node| node.up && node.owner == "anna"), "{reply:?}");
    // What changes within the site meanwhile is known.
    drop(n2_attached);
    soon("the node is down", async {
        let filter = || proto::NodeFilter { sites: vec!["alpha".to_owned()], up: true, ..Default::default() };
        while names(&page(&n1, nodes(filter())).await.unwrap()) != ["n1.alpha"] {}
    })
    .await;
    let own = proto::NodeFilter { names: vec!["n1.alpha".to_owned()], ..proto::NodeFilter::default() };
    let reply = page(&n1, nodes(own)).await.unwrap();
    assert_eq!((names(&reply), reply.without_broker.as_ref().unwrap().told_ms), (vec!["n1.alpha"], None));
    let sites = page(&n1, Records::Sites(proto::SiteFilter::default())).await.unwrap().sites;
    let sites: Vec<_> = sites.iter().map(|site| (&*site.name, site.nodes_up, site.nodes_down)).collect();
    assert_eq!(sites, [("alpha", 1, 1), ("beta", 1, 0)]);
    let jobs = page(&n1, Records::Jobs(proto::JobFilter::default())).await.unwrap().jobs;
    assert_eq!(jobs.len(), 1, "{jobs:?}");

    // Whoever doesn't ask for that gets no such answer.
    let request = proto::ListRequest {
        records: Some(nodes(proto::NodeFilter::default())),
        ..proto::ListRequest::default()
    };
    let mut request = tonic::Request::new(request);
    request.set_timeout(Duration::from_secs(2));
    assert!(n1.client.clone().list(request).await.is_err());

    grid.start_broker().await;
    soon("the broker answers", async {
        while page(&n1, nodes(proto::NodeFilter::default())).await.unwrap().without_broker.is_some() {}
    })
    .await;
    list(&n1.client, nodes(proto::NodeFilter::default())).await;
}

#[tokio::test]
async fn pages_without_the_broker_have_each_node_once() {
    let mut grid = Grid::start().await;
    let (alpha, beta, gamma) =
        (grid.gateway("alpha").await, grid.gateway("beta").await, grid.gateway("gamma").await);
    let mut attached = Vec::new();
    let asking = grid.agent(&beta, "n1").await;
    attached.push(asking.up("10.0.0.1:7730").await);
    for (gateway, name) in [(&alpha, "n1"), (&beta, "n2"), (&gamma, "n1"), (&alpha, "n2")] {
        let agent = grid.agent(gateway, name).await;
        attached.push(agent.up("10.0.0.2:7730").await);
    }
    page(&asking, nodes(proto::NodeFilter::default())).await.unwrap();
    grid.stop_broker().await;
    by_itself(&asking).await;
    let (mut token, mut found) = (Vec::new(), Vec::new());
    loop {
        let request = proto::ListRequest {
            page_token: token,
            page_size: 1,
            records: Some(nodes(proto::NodeFilter::default())),
            without_broker: true,
            ..proto::ListRequest::default()
        };
        let reply = soon("a page", asking.client.clone().list(request)).await.unwrap().into_inner();
        found.extend(reply.nodes.into_iter().map(|node| node.name));
        token = reply.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, ["n1.alpha", "n2.alpha", "n1.beta", "n2.beta", "n1.gamma"]);
    let request = proto::ListRequest {
        page_token: b"nonsense".to_vec(),
        records: Some(nodes(proto::NodeFilter::default())),
        without_broker: true,
        ..proto::ListRequest::default()
    };
    let refused = asking.client.clone().list(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    #[tokio::test]
    async fn plans_without_the_broker_leave_out_what_it_must_arrange() {
        let mut grid = Grid::start().await;
        let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
        let n1 = grid.agent(&alpha, "n1").await;
        let (_n1_attached, n1_address) = n1.up("10.0.0.1:7730").await;
        let n2 = grid.agent(&alpha, "n2").await;
        let (_n2_attached, _) = n2.up("10.0.0.2:7730").await;
        let far = grid.agent(&beta, "n1").await;
        let (_far_attached, far_address) = far.up("10.0.0.1:7730").await;
        let unknown = grid.agent(&beta, "n2").await;
        let (_unknown_attached, unknown_address) = unknown.up("10.0.0.2:7730").await;
        let (_relay, _) = grid.relay("r1").await;
        assert_eq!(n1.plan("n1.beta").await, (vec![Dial::Relay], true));
        grid.stop_broker().await;
        by_itself(&n1).await;

        let steps = |reply: &proto::ExplainReply| {
            let plan = reply.plan.clone().unwrap();
            (plan.steps.iter().map(proto::PlanStep::dial).collect::<Vec<_>>(), plan.left_out)
        };
        let inside = explain(&n1, "n1.alpha", "n2.alpha").await.unwrap();
        assert_eq!(steps(&inside).0, [Dial::Direct]);
        let outside = explain(&n1, "n1.alpha", "n1.beta").await.unwrap();
        let (dials, left_out) = steps(&outside);
        assert!(dials.is_empty() && outside.without_broker.is_some());
        let relay = left_out.iter().find(|left| left.dial() == Dial::Relay).unwrap();
        assert_eq!(relay.reason, "the broker must arrange it, and it can't be reached");
        for (from, to, want) in [
            ("n1.alpha", "n2.beta", "knows no contact of n2.beta"),
            ("n1.beta", "n1.alpha", "knows no plans of n1.beta"),
        ] {
            let status = explain(&n1, from, to).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().contains(want), "{status}");
        }

        // A call that the broker must answer fails at once. What the gateway could arrange must
        // be in the plan.
        use proto::rendezvous_request::{OverGateways, Relay, Way};
        let out = |dial: Dial| {
            let route = proto::Route::GatewayOut.into();
            Way::OverGateways(OverGateways { route, dial: dial.into(), ..OverGateways::default() })
        };
        for (destination, way, want) in [
            (
                far_address,
                Way::Relay(Relay::default()),
                "cannot arrange the way relay, end-to-end: the gateway has had no connection to the broker for ",
            ),
            (far_address, out(Dial::Relay), "cannot arrange the way relay, gateway-out: "),
            (far_address, out(Dial::Direct), "not in the plan: the node of site alpha has a way out itself"),
            (unknown_address, out(Dial::Direct), "cannot arrange the way direct, gateway-out: "),
        ] {
            let (initiator, way) = (n1_address, Some(way));
            let request = proto::RendezvousRequest { destination, initiator, way, ..Default::default() };
            let began = std::time::Instant::now();
            let status = n1.client.clone().rendezvous(request).await.unwrap_err();
            assert!(began.elapsed() < promised(Duration::from_secs(4)), "{:?}", began.elapsed());
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().starts_with(want), "{status}");
        }
    }
}
