//! Connections with TLS of their own: two planes over real sockets.

use std::io;
use std::sync::Arc;

use isthmus_carry::plane::{Plane, Sealed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::{Agents, Counts, PATIENCE, counts, pair, plane, rules};

/// Two programs that are joined by two planes.
struct Joined {
    _planes: [Plane; 2],
    counts: Arc<Counts>,
    sealed: [Sealed; 2],
}

impl Joined {
    async fn new() -> (Self, (TcpStream, TcpStream)) {
        let (a, b) = Agents::new().secured().await;
        let (near, near_agent) = pair().await;
        let (far, far_agent) = pair().await;
        let planes = [plane(), plane()];
        let counts = counts();
        let sealed = [
            planes[0].seal(near_agent.into_std().unwrap(), a.into_parts().0, counts.clone()).unwrap(),
            planes[1]
                .seal(far_agent.into_std().unwrap(), b.into_parts().0, Arc::<Counts>::default())
                .unwrap(),
        ];
        (Self { _planes: planes, counts, sealed }, (near, far))
    }

    async fn end(mut self) {
        for sealed in &mut self.sealed {
            timeout(PATIENCE, sealed.ended()).await.expect("ends in time");
        }
    }
}

#[tokio::test]
async fn everything_arrives_both_ways_at_once() {
    const SIZE: usize = 8 << 20;
    let (joined, programs) = Joined::new().await;
    rules::everything_arrives_both_ways_at_once(programs, SIZE).await;
    let counts = joined.counts.clone();
    joined.end().await;
    assert_eq!(counts.both(), (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn one_direction_may_end_before_the_other() {
    let (joined, programs) = Joined::new().await;
    rules::one_direction_may_end_before_the_other(programs).await;
    joined.end().await;
}

#[tokio::test]
async fn a_reset_stays_a_reset() {
    let (joined, programs) = Joined::new().await;
    rules::a_reset_stays_a_reset(programs).await;
    joined.end().await;
}

#[tokio::test]
async fn data_before_a_close_arrives_though_the_closed_end_had_unread_data() {
    let mut rounds = tokio::task::JoinSet::new();
    for _ in 0..10 {
        rounds.spawn(async {
            let (joined, programs) = Joined::new().await;
            rules::data_before_a_close_arrives_though_the_closed_end_had_unread_data(programs).await;
            joined.end().await;
        });
    }
    rounds.join_all().await;
}

#[tokio::test]
async fn data_before_a_reset_arrives_before_the_reset() {
    for _ in 0..20 {
        let (joined, programs) = Joined::new().await;
        rules::data_before_a_reset_arrives_before_the_reset(programs).await;
        joined.end().await;
    }
}

#[tokio::test]
async fn urgent_data_holds_nothing_back() {
    let (_joined, programs) = Joined::new().await;
    rules::urgent_data_holds_nothing_back(programs).await;
}

#[tokio::test]
async fn a_cut_network_is_a_reset_after_the_data() {
    let (mut near, near_agent) = pair().await;
    let (a, mut peer) = Agents::new().secured().await;
    let plane = plane();
    let mut sealed = plane.seal(near_agent.into_std().unwrap(), a.into_parts().0, counts()).unwrap();
    // The other agent dies: its end closes without a TLS end.
    peer.write_all(b"last bytes").await.unwrap();
    peer.flush().await.unwrap();
    drop(peer);
    let mut got = Vec::new();
    let error = near.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((got.as_slice(), error.kind()), (&b"last bytes"[..], io::ErrorKind::ConnectionReset));
    timeout(PATIENCE, sealed.ended()).await.expect("ends in time");
}

#[tokio::test]
async fn it_can_be_reset() {
    let (mut joined, (mut near, mut far)) = Joined::new().await;
    near.write_all(b"x").await.unwrap();
    far.read_exact(&mut [0]).await.unwrap();
    joined.sealed[0].reset();
    timeout(PATIENCE, joined.sealed[0].ended()).await.expect("ends in time");
    for mut program in [near, far] {
        let error = timeout(PATIENCE, program.read(&mut [0])).await.expect("ends in time").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
