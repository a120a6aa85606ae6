//! One site's gateways take what they can get of another's places: others still find one.

use super::*;

/// As in the gateway.
const OPENING: usize = 16 * 1024;
const JOINING_EACH: usize = 32;

/// A gateway at beta with a node and a port outside, and parties of two other sites.
struct Three {
    _grid: Grid,
    _beta: Gateway,
    alpha: Gateway,
    near_address: u32,
    _near_attached: Attachment,
    far: Agent,
    far_address: u32,
    far_attached: Attachment,
    gamma: Credentials,
    outside: String,
}

impl Three {
    async fn start() -> Self {
        let grid = Grid::start().await;
        let outside = free_port().await;
        let config = |outside| GatewayConfig { site_trunk: true, outside, ..GatewayConfig::default() };
        let alpha = grid.gateway_with("alpha", config(None)).await;
        let beta = grid.gateway_with("beta", config(Some(outside))).await;
        let near = grid.agent(&alpha, "n1").await;
        let (near_attached, near_address) = near.up("10.0.0.1:7730").await;
        let far = grid.agent(&beta, "n1").await;
        let (far_attached, far_address) = far.up("10.0.0.1:7730").await;
        let gamma = joined(&grid, Role::Gateway, "gamma", None, None).await;
        Self {
            _grid: grid,
            _beta: beta,
            alpha,
            near_address,
            _near_attached: near_attached,
            far,
            far_address,
            far_attached,
            gamma,
            outside: outside.to_string(),
        }
    }
}

#[tokio::test]
async fn a_site_that_opens_all_streams_it_can_leaves_places_for_others() {
    let mut three = Three::start().await;
    let plane = plane();
    let (trunk, first) = stream_of(&plane, &three.gamma, &three.outside).await.unwrap();
    // They say nothing, so each keeps its place for a while.
    let mut flood = vec![first];
    while flood.len() < OPENING {
        flood.push(soon("a stream", trunk.open()).await.unwrap());
    }
    let mut last = flood.pop().unwrap();
    // Much less than the time that a stream has to say something.
    let refused = tokio::time::timeout(Duration::from_secs(5), last.receive::<1>()).await;
    refused.expect("the last is refused at once").unwrap_err();
    let (_alphas, stream) = stream_of(&plane, &three.alpha.credentials, &three.outside).await.unwrap();
    stream.send(&whom(three.far_address, three.near_address));
    let attach_down::Kind::Dial(order) = three.far_attached.next().await else { panic!("no order") };
    assert!(matches!(order.way, Some(dial_request::Way::SiteTrunk(_))), "{order:?}");
    // So do the streams of beta's own nodes.
    let own = answer(three.far.client.clone(), three.far_address, three.near_address).await.unwrap();
    assert!(matches!(own.way, Some(rendezvous_reply::Way::OwnGateway(_))), "{own:?}");
}

#[tokio::test]
async fn a_gateway_that_sends_no_hello_has_few_carriers_at_once() {
    let three = Three::start().await;
    let mut silent = Vec::new();
    for _ in 0..JOINING_EACH {
        silent.push(carrier_of(&three.gamma, &three.outside).await.unwrap());
    }
    let mut more = carrier_of(&three.gamma, &three.outside).await.unwrap();
    let ended = soon("one more is refused", more.read_u8()).await;
    assert!(ended.is_err());
    let plane = plane();
    stream_of(&plane, &three.alpha.credentials, &three.outside).await.unwrap();
    // One that leaves makes room.
    drop(silent.pop());
    let again = async {
        while stream_of(&plane, &three.gamma, &three.outside).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("a carrier after that", again).await;
}
