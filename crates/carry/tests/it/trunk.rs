//! Trunks: two planes over real sockets and real TLS.

use std::io;
use std::time::Duration;

use isthmus_carry::trunk::{CarrierSnapshot, Notice};
use isthmus_trunk::{CarrierState, Config, Purpose, Role, TrunkId};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::common::ends::{Both, TrunkEnd};
use crate::common::rules::Exchanges;
use crate::common::{Agents, PATIENCE, counts, filled, pair, rules};

/// Cuts a connection at once, without an end of TLS.
fn cut(sockets: &[std::net::TcpStream]) {
    for socket in sockets {
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
}

#[tokio::test]
async fn everything_arrives_both_ways_at_once() {
    const SIZE: usize = 8 << 20;
    let mut both = Both::new().await;
    let counts = counts();
    let programs = both.counted_programs(counts.clone()).await;
    rules::everything_arrives_both_ways_at_once(programs, SIZE).await;
    both.unused().await;
    assert_eq!(counts.both(), (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn one_direction_may_end_before_the_other() {
    let mut both = Both::new().await;
    rules::one_direction_may_end_before_the_other(both.programs().await).await;
    both.unused().await;
}

#[tokio::test]
async fn a_reset_stays_a_reset() {
    let mut both = Both::new().await;
    rules::a_reset_stays_a_reset(both.programs().await).await;
    both.unused().await;
}

#[tokio::test]
async fn data_before_a_close_arrives_though_the_closed_end_had_unread_data() {
    let mut both = Both::new().await;
    for _ in 0..10 {
        let programs = both.programs().await;
        rules::data_before_a_close_arrives_though_the_closed_end_had_unread_data(programs).await;
    }
    both.unused().await;
}

#[tokio::test]
async fn data_before_a_reset_arrives_before_the_reset() {
    let mut both = Both::new().await;
    for _ in 0..20 {
        rules::data_before_a_reset_arrives_before_the_reset(both.programs().await).await;
    }
    both.unused().await;
}

#[tokio::test]
async fn urgent_data_holds_nothing_back() {
    let mut both = Both::new().await;
    rules::urgent_data_holds_nothing_back(both.programs().await).await;
}

#[tokio::test]
async fn an_answer_and_what_follows_it_come_before_the_socket() {
    let mut both = Both::new().await;
    let mut near = both.near.trunk.open().await.unwrap();
    near.send(b"preamble");
    let mut far = both.far.opened().await;
    assert_eq!(far.receive::<8>().await.unwrap(), *b"preamble");
    // The acceptor's program says something at once, and ends.
    far.send(b"answer");
    let (mut other_program, other_agent) = pair().await;
    far.attach(other_agent.into_std().unwrap(), counts()).unwrap();
    other_program.write_all(&filled(100_000)).await.unwrap();
    other_program.shutdown().await.unwrap();
    assert_eq!(near.receive::<6>().await.unwrap(), *b"answer");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (mut program, agent) = pair().await;
    near.attach(agent.into_std().unwrap(), counts()).unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, program.read_to_end(&mut got)).await.expect("ends in time").unwrap();
    assert!(got == filled(100_000));
}

#[tokio::test]
async fn a_stream_that_is_given_up_ends_at_the_other_end() {
    let mut both = Both::new().await;
    let (near, mut far) = both.stream().await;
    drop(near);
    assert_eq!(far.receive::<1>().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    drop(far);
    both.unused().await;
    // A refusal is read, although the stream was dropped behind it.
    let mut near = both.near.trunk.open().await.unwrap();
    near.send(b"preamble");
    let far = both.far.opened().await;
    far.send(b"no");
    drop(far);
    assert_eq!(near.receive::<2>().await.unwrap(), *b"no");
    assert_eq!(near.receive::<1>().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// A program's connection goes on over the next carrier, with no byte lost or doubled.
#[tokio::test]
async fn a_cut_of_every_carrier_is_outlived() {
    let mut both = Both::new().await;
    let mut exchanges = Exchanges::steady();
    exchanges.add(both.programs().await);
    // The first carrier was not copied; this one replaces it.
    for _ in 0..20 {
        let (id, sockets) = both.carrier().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        let others = both.near.trunk.status().await.unwrap().carriers;
        for other in others.iter().filter(|other| other.id != id) {
            both.near.trunk.end_carrier(other.id);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        cut(&sockets);
    }
    both.carrier().await;
    exchanges.stop().await;
    both.unused().await;
}

/// The trunk asks for more carriers, and uses them.
#[tokio::test]
async fn a_busy_trunk_has_several_carriers_and_lets_go_of_those_it_does_not_want() {
    let mut both = Both::new().await;
    let mut exchanges = Exchanges::in_bursts();
    for _ in 0..2 {
        exchanges.add(both.programs().await);
    }
    let wanted = both.near.wanted(|wanted| wanted.bulk == 2).await;
    assert!(wanted.small);
    let (bulk, _) = both.carrier().await;
    let (small, _) = both.carrier_for(pair().await, Purpose::Small).await;
    let live = |carriers: &[CarrierSnapshot], id| {
        carriers.iter().any(|it| it.id == id && it.status.state == CarrierState::Live)
    };
    both.near.carriers(|carriers| live(carriers, bulk) && live(carriers, small)).await;
    both.far
        .carriers(|carriers| {
            let small =
                |it: &&CarrierSnapshot| it.status.purpose == Purpose::Small && it.tcp.rtt > Duration::ZERO;
            carriers.iter().filter(small).count() == 1
        })
        .await;
    // One too many: the oldest leaves.
    let (another, _) = both.carrier().await;
    both.near.carriers(|carriers| carriers.len() == 3 && live(carriers, another)).await;
    both.near
        .carriers(|carriers| {
            let further = carriers.iter().filter(|it| [bulk, small, another].contains(&it.id));
            further.map(|it| it.status.acknowledged).sum::<u64>() > 0
        })
        .await;
    exchanges.stop().await;
    both.unused().await;
}

#[tokio::test]
async fn many_streams_share_a_carrier() {
    let mut both = Both::new().await;
    let mut exchanges = tokio::task::JoinSet::new();
    for number in 0..100 {
        let programs = both.programs().await;
        exchanges.spawn(rules::everything_arrives_both_ways_at_once(programs, number * 5_000));
    }
    exchanges.join_all().await;
    both.unused().await;
}

#[tokio::test]
async fn a_receiver_that_does_not_read_stops_nobody_else() {
    let mut both = Both::new().await;
    let (mut stuck, unread) = both.programs().await;
    let writing = tokio::spawn(async move {
        let chunk = filled(1 << 20);
        let mut sent = 0_usize;
        while let Ok(Ok(())) = timeout(Duration::from_millis(500), stuck.write_all(&chunk)).await {
            sent += chunk.len();
            assert!(sent < 1 << 30, "the trunk keeps it all in memory");
        }
    });
    let programs = both.programs().await;
    rules::everything_arrives_both_ways_at_once(programs, 8 << 20).await;
    writing.await.unwrap();
    drop(unread);
    both.unused().await;
}

#[tokio::test]
async fn a_trunk_that_ends_resets_its_programs() {
    let mut both = Both::new().await;
    let (mut near, mut far) = both.programs().await;
    both.near.trunk.close(isthmus_trunk::Reason::Done);
    for program in [&mut near, &mut far] {
        let error = timeout(PATIENCE, program.read(&mut [0])).await.expect("ends in time").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    both.far
        .notice(|notice| match notice {
            Notice::Closed(why) => Some(why),
            _ => None,
        })
        .await;
    assert!(both.far.trunk.open().await.is_err());
    assert!(both.near.trunk.status().await.is_none());
}

/// The end reaches the peer, too, when it comes while much is under way to the end that closes. A
/// connection that is closed with something unread is reset, and its last bytes may be lost.
#[tokio::test]
async fn a_trunk_that_ends_amid_data_ends_at_both_ends() {
    for _ in 0..10 {
        let mut both = Both::new().await;
        let (mut near, mut far) = both.programs().await;
        let writing = tokio::spawn(async move {
            let chunk = filled(1 << 20);
            while far.write_all(&chunk).await.is_ok() {}
        });
        near.read_exact(&mut vec![0; 4 << 20]).await.unwrap();
        both.near.trunk.close(isthmus_trunk::Reason::Done);
        timeout(PATIENCE, writing).await.expect("the writer is told in time").unwrap();
        both.far
            .notice(|notice| match notice {
                Notice::Closed(why) => Some(why),
                _ => None,
            })
            .await;
    }
}

/// A party that counts the carriers that work must not count one that has ended.
#[tokio::test]
async fn the_end_of_a_carrier_is_the_last_that_is_heard_of_it() {
    let agents = Agents::new();
    let mut near = TrunkEnd::new(Role::Initiator);
    for _ in 0..20 {
        let (a, mut b) = agents.secured().await;
        let id = near.trunk.join(a.into_parts().0).await.unwrap();
        // With this unread, the other end's close would be a reset.
        assert!(b.read(&mut [0; 512]).await.unwrap() > 0);
        // The other end says that it is there, and is gone: both in one segment.
        let mut far = isthmus_trunk::Trunk::new(Config::new(Role::Acceptor, TrunkId([7; 16])));
        let now = std::time::Instant::now();
        let carrier = far.carrier_joined(now).unwrap();
        let mut hello = Vec::new();
        far.fill(carrier, &mut hello, isthmus_trunk::frame::MAX_FRAME, now);
        SockRef::from(b.get_ref().0).set_tcp_cork(true).unwrap();
        b.write_all(&hello).await.unwrap();
        b.flush().await.unwrap();
        drop(b);
        near.notice(|notice| match notice {
            Notice::CarrierEnded(ended, _) => (ended == id).then_some(()),
            _ => None,
        })
        .await;
        // Answered behind all notices of the carrier.
        near.trunk.status().await.unwrap();
        let more = near.notices.try_recv();
        assert!(more.is_err(), "{more:?} after its end");
    }
}
