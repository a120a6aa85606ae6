//! Spliced pairs that go from one plane to another, as from one program to the next.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use isthmus_carry::Released;
use isthmus_carry::plane::Plane;
use isthmus_wire::upgrade::{Pair, Service, State};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::ends::Both;
use crate::common::{PATIENCE, counts, pair, plane};

/// Two programs joined by a plane.
async fn joined(plane: &Plane) -> (TcpStream, TcpStream) {
    let (near, one) = pair().await;
    let (far, other) = pair().await;
    plane.splice(one.into_std().unwrap(), other.into_std().unwrap(), None).unwrap();
    (near, far)
}

/// What a successor gets: the state as it is written and read, with descriptors that stay
/// open when the former program's are closed.
fn inherit(released: &Released<'_>) -> Vec<Pair<OwnedFd>> {
    let state = State {
        service: Service::Relay,
        connections: released.totals().connections,
        bytes: released.totals().bytes,
        listeners: Vec::new(),
        pairs: released.pairs(),
    };
    let state = State::decode(&state.encode().unwrap()).unwrap();
    let copies = released
        .descriptors()
        .map(|descriptor| (descriptor.as_raw_fd().unsigned_abs(), descriptor.try_clone_to_owned().unwrap()));
    let mut copies: HashMap<u32, OwnedFd> = copies.collect();
    let pairs = state.pairs.into_iter();
    pairs.map(|pair| pair.try_map(|number, _| copies.remove(&number).ok_or(())).unwrap()).collect()
}

/// Moves all pairs of a plane to a new one. Returns the new plane, and the pairs as they were
/// handed over.
fn moved(former: &Plane) -> (Plane, Vec<Pair>) {
    let released = former.release().unwrap();
    let (pairs, totals, held) = (inherit(&released), released.totals(), released.pairs());
    drop(released);
    let successor = plane();
    successor.adopt(pairs, totals.connections, totals.bytes).unwrap();
    (successor, held)
}

/// Bytes that differ everywhere (xorshift64).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// Reads everything, in pieces of many sizes, with pauses, so that data is held on its way.
async fn read_slowly(mut stream: impl tokio::io::AsyncRead + Unpin) -> Vec<u8> {
    let (mut bytes, mut size, mut piece) = (Vec::new(), 1000, vec![0; 200_000]);
    loop {
        match stream.read(&mut piece[..size]).await.unwrap() {
            0 => return bytes,
            count => bytes.extend_from_slice(&piece[..count]),
        }
        size = size * 7 % 200_000 + 1;
        if size % 3 == 0 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_is_lost_or_doubled() {
    let mut plane = plane();
    let (near, far) = joined(&plane).await;
    let sent = noise(24 << 20);
    let small = sent[..2 << 20].to_vec();
    let (near_read, mut near_write) = near.into_split();
    let (far_read, mut far_write) = far.into_split();
    let want = sent.clone();
    let writing = tokio::spawn(async move { near_write.write_all(&sent).await.unwrap() });
    let back = small.clone();
    let answering = tokio::spawn(async move {
        // Small messages, which are copied.
        for piece in back.chunks(300) {
            far_write.write_all(piece).await.unwrap();
        }
    });
    let there = tokio::spawn(read_slowly(far_read));
    let reading = tokio::spawn(read_slowly(near_read));
    let mut held = 0;
    let mut moves = 0;
    while !there.is_finished() {
        let pairs;
        (plane, pairs) = tokio::task::spawn_blocking(move || moved(&plane)).await.unwrap();
        held +=
            pairs.iter().flat_map(|pair| &pair.flows).filter(|flow| flow.held != Default::default()).count();
        moves += 1;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(there.await.unwrap() == want);
    assert!(reading.await.unwrap() == small);
    writing.await.unwrap();
    answering.await.unwrap();
    assert!(moves > 5 && held > 0, "{moves} moves, {held} times something was held");
    let ended = async {
        while plane.totals().running > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("ends in time");
    let totals = plane.totals();
    assert_eq!((totals.connections, totals.bytes), (1, (want.len() + small.len()) as u64));
}

/// Where small pieces come close together, the plane has the kernel wake it for many. The next program
/// knows nothing of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_small_pieces_goes_on() {
    let mut plane = plane();
    let (near, far) = joined(&plane).await;
    near.set_nodelay(true).unwrap();
    let mut near = near.into_std().unwrap();
    near.set_nonblocking(false).unwrap();
    let sent = noise(1_000_000);
    let want = sent.clone();
    let sending = std::thread::spawn(move || {
        for piece in sent.chunks(300) {
            std::io::Write::write_all(&mut near, piece).unwrap();
            // Some 60 µs, so that the piece isn't read along with others before the plane gathers.
            std::thread::sleep(Duration::from_micros(1));
        }
        near
    });
    let there = tokio::spawn(async move {
        let (mut far, mut bytes) = (far, vec![0; 1_000_000]);
        timeout(PATIENCE, far.read_exact(&mut bytes)).await.expect("the last ones arrive").unwrap();
        bytes
    });
    while !sending.is_finished() {
        (plane, _) = tokio::task::spawn_blocking(move || moved(&plane)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(there.await.unwrap() == want);
    sending.join().unwrap();
}

#[tokio::test]
async fn the_end_of_one_direction_is_kept() {
    let plane = plane();
    let (mut near, mut far) = joined(&plane).await;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    timeout(PATIENCE, far.read_to_end(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, b"question");
    let (plane, pairs) = moved(&plane);
    let ended = pairs[0].flows.iter().map(|flow| (flow.source_ended, flow.ended));
    assert_eq!(ended.collect::<Vec<_>>(), [(true, true), (false, false)]);
    far.write_all(b"answer").await.unwrap();
    far.shutdown().await.unwrap();
    bytes.clear();
    timeout(PATIENCE, near.read_to_end(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, b"answer");
    drop(plane);
}

/// The new plane notices what happened to the sockets while no plane had them.
#[tokio::test]
async fn ends_and_resets_in_between_are_noticed() {
    let former = plane();
    let (mut ending, mut ended) = joined(&former).await;
    let (resetting, mut reset) = joined(&former).await;
    let released = former.release().unwrap();
    assert_eq!((released.totals().connections, released.pairs().len()), (2, 2));
    ending.write_all(b"last").await.unwrap();
    ending.shutdown().await.unwrap();
    resetting.set_zero_linger().unwrap();
    drop(resetting);
    let pairs = inherit(&released);
    drop(released);
    let successor = plane();
    successor.adopt(pairs, 0, 0).unwrap();
    let mut bytes = Vec::new();
    timeout(PATIENCE, ended.read_to_end(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, b"last");
    let error = timeout(PATIENCE, reset.read_to_end(&mut bytes)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn urgent_data_holds_nothing_back_afterwards() {
    let former = plane();
    let (mut near, mut far) = joined(&former).await;
    SockRef::from(&near).send_out_of_band(b"!").unwrap();
    near.write_all(b"after").await.unwrap();
    let mut first = [0; 5];
    timeout(PATIENCE, far.read_exact(&mut first)).await.unwrap().unwrap();
    let (_successor, pairs) = moved(&former);
    assert!(pairs[0].ends.iter().any(|end| end.urgent), "{pairs:?}");
    let large = noise(1 << 20);
    let (sent, mut got) = (large.clone(), vec![0; large.len()]);
    let (written, read) = tokio::join!(near.write_all(&sent), timeout(PATIENCE, far.read_exact(&mut got)));
    written.unwrap();
    read.unwrap().unwrap();
    assert!(got == large && &first == b"after");
}

/// If no program takes over, all goes on. A thread that wanted to splice meanwhile may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_if_nobody_takes_over() {
    let plane = std::sync::Arc::new(plane());
    let (mut near, mut far) = joined(&plane).await;
    let (new_near, one) = pair().await;
    let (mut new_far, other) = pair().await;
    let splicing = {
        let released = plane.release().unwrap();
        let plane = plane.clone();
        let (one, other) = (one.into_std().unwrap(), other.into_std().unwrap());
        let splicing = std::thread::spawn(move || plane.splice(one, other, None));
        near.write_all(b"meanwhile").await.unwrap();
        assert!(!splicing.is_finished());
        released.resume();
        splicing
    };
    splicing.join().unwrap().unwrap();
    let mut got = [0; 9];
    timeout(PATIENCE, far.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!(&got, b"meanwhile");
    let mut new_near = new_near;
    new_near.write_all(b"meanwhile").await.unwrap();
    timeout(PATIENCE, new_far.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!((plane.totals().connections, plane.totals().running), (2, 2));
}

/// A trunk can't be handed over. When the process is replaced, its programs must not take that for
/// an end in order.
#[tokio::test]
async fn what_stays_behind_ends_by_a_reset() {
    let mut both = Both::new().await;
    let (near, _far) = both.stream().await;
    let (_program, agent) = pair().await;
    let agent = agent.into_std().unwrap();
    let watched = agent.try_clone().unwrap();
    let linger = || SockRef::from(&watched).linger().unwrap();
    // The socket may come to the worker before the release or after it.
    near.attach(agent, counts()).unwrap();
    let released = both.near.plane.release().unwrap();
    assert_eq!(released.pairs(), []);
    let until = async |want| {
        while linger() != want {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, until(Some(Duration::ZERO))).await.expect("it would be reset");
    released.resume();
    timeout(PATIENCE, until(None)).await.expect("it would end in order again");
}
