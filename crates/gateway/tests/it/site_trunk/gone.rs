//! A gateway that is gone and back: what it had carried ends at the other end.

use super::*;

/// How long a test waits to see that nothing ends.
const WHILE: Duration = Duration::from_secs(1);

/// Whether a node's connection goes on for a while.
async fn goes_on(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(WHILE, stream.read_u8()).await.is_err()
}

async fn expect_reset(stream: &mut TcpStream) {
    let begun = Instant::now();
    let error = soon("its end", stream.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    assert!(begun.elapsed() < promised(Duration::from_secs(5)), "{:?}", begun.elapsed());
}

/// The far node's connection for a stream.
async fn taken(three: &mut Three, stream: &Stream) -> TcpStream {
    stream.send(&whom(three.far_address, three.near_address));
    let order = next_order(&mut three.far_attached).await;
    let Some(dial_request::Way::SiteTrunk(at)) = order.way else { panic!("{order:?}") };
    connect(&three.beta, &at.ticket).await
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    #[tokio::test]
    async fn connections_over_a_gateway_that_was_killed_end_when_it_is_back() {
        let mut two = Two::start(true).await;
        two.alpha.restart_as_process().await;
        two.near_again().await;
        let near_ticket = two.ask().await.unwrap().ticket;
        let _near = connect(&two.alpha, &near_ticket).await;
        let far_ticket = two.ordered().await;
        let mut far = connect(&two.beta, &far_ticket).await;
        // The gateway says nothing when it goes, as if it were killed.
        two.to_relay.cut().await;
        two.alpha.kill_and_restart().await;
        two.near_again().await;
        assert!(goes_on(&mut far).await, "it may be back");
        two.to_relay.heal().await;
        let works = async {
            // The relay may not be known to be back.
            while two.ask().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        soon("a trunk with the new one", works).await;
        expect_reset(&mut far).await;
    }

    #[tokio::test]
    async fn only_a_new_start_of_the_same_gateway_ends_what_is_cut() {
        let mut three = Three::start().await;
        let mut cable = Cable::to(three.outside.parse().unwrap()).await;
        let (plane, first, second) = (plane(), Some(Incarnation([1; 16])), Some(Incarnation([2; 16])));
        let alpha = three.alpha.credentials.clone();
        let to = cable.address.to_string();
        let (_trunk, stream) = stream_since(&plane, &alpha, &to, first).await.unwrap();
        let mut far = taken(&mut three, &stream).await;
        stream.send(b"!");
        assert_eq!(soon("a byte", far.read_u8()).await.unwrap(), b'!');
        // While the trunk isn't cut, the former gateway may be there still.
        let new = stream_since(&plane, &alpha, &three.outside, second).await.unwrap();
        assert!(goes_on(&mut far).await, "it isn't cut");
        drop(new);
        cable.cut().await;
        expect_reset(&mut far).await;
    }

    #[tokio::test]
    async fn others_and_the_same_start_end_nothing() {
        let mut three = Three::start().await;
        let mut cable = Cable::to(three.outside.parse().unwrap()).await;
        let (plane, first, second) = (plane(), Some(Incarnation([1; 16])), Some(Incarnation([2; 16])));
        let alpha = three.alpha.credentials.clone();
        let to = cable.address.to_string();
        let (_trunk, stream) = stream_since(&plane, &alpha, &to, first).await.unwrap();
        let mut far = taken(&mut three, &stream).await;
        cable.cut().await;
        let (sibling, _siblings) = attached(&three.grid, "alpha", Some("other"), true).await;
        for (party, since, why) in [
            (&three.gamma, second, "another site's gateway"),
            (&sibling, second, "another gateway of the site"),
            (&alpha, first, "the same start"),
            (&alpha, None, "no start is told"),
        ] {
            let _new = stream_since(&plane, party, &three.outside, since).await.unwrap();
            assert!(goes_on(&mut far).await, "{why}");
        }
        let _new = stream_since(&plane, &alpha, &three.outside, second).await.unwrap();
        expect_reset(&mut far).await;
    }
}
