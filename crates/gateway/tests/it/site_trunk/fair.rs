//! The gateways of a site take what they can get of another site's places. Other sites still find a
//! place.

use super::*;

/// The gateway's bound of streams that are being opened at once.
const OPENING: usize = 16 * 1024;
const JOINING_EACH: usize = 32;

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
    // A holder that leaves makes room.
    drop(silent.pop());
    let again = async {
        while stream_of(&plane, &three.gamma, &three.outside).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("a carrier after that", again).await;
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    #[tokio::test]
    async fn a_site_that_opens_all_streams_it_can_leaves_places_for_others() {
        let mut three = Three::start().await;
        let plane = plane();
        let (trunk, first) = stream_of(&plane, &three.gamma, &three.outside).await.unwrap();
        // The streams of the flood say nothing, so each keeps its place for a while.
        let mut flood = vec![first];
        while flood.len() < OPENING {
            flood.push(soon("a stream", trunk.open()).await.unwrap());
        }
        let mut last = flood.pop().unwrap();
        // Half the time that a stream has to say something.
        let refused = tokio::time::timeout(Duration::from_secs(5), last.receive::<1>()).await;
        refused.expect("the last is refused at once").unwrap_err();
        let (_alphas, stream) = stream_of(&plane, &three.alpha.credentials, &three.outside).await.unwrap();
        stream.send(&whom(three.far_address, three.near_address));
        let order = next_order(&mut three.far_attached).await;
        assert!(matches!(order.way, Some(dial_request::Way::SiteTrunk(_))), "{order:?}");
        // The streams of beta's own nodes get places, too.
        let own = answer(three.far.client.clone(), three.far_address, three.near_address).await.unwrap();
        assert!(matches!(own.way, Some(rendezvous_reply::Way::OwnGateway(_))), "{own:?}");
    }
}
