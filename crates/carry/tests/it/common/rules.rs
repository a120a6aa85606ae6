//! What two programs see of each other, whatever carries their bytes.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{PATIENCE, filled};

/// How many bytes fit into a socket's receive buffer. Data that a sender hasn't sent when it is
/// reset is lost on any network.
const HELD: usize = 40_000;

pub(crate) async fn everything_arrives_both_ways_at_once((near, far): (TcpStream, TcpStream), size: usize) {
    let exchange = |stream: TcpStream, own: u8, other: u8| async move {
        let (mut reading, mut writing) = stream.into_split();
        let data = |seed: u8| filled(size).into_iter().map(|byte| byte ^ seed).collect::<Vec<_>>();
        let write = async {
            writing.write_all(&data(own)).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(write, reading.read_to_end(&mut got));
        read.unwrap();
        assert!(got == data(other));
    };
    let both = async { tokio::join!(exchange(near, 1, 2), exchange(far, 2, 1)) };
    timeout(PATIENCE, both).await.expect("arrives in time");
}

/// What programs send at once in an exchange: several frames.
const BLOCK: usize = 64 << 10;

/// Programs that send to each other for as long as a test needs it, on any machine.
#[derive(Default)]
pub(crate) struct Exchanges {
    running: JoinSet<()>,
    stopped: Arc<AtomicBool>,
    /// The pause after each block.
    pause: Duration,
}

impl Exchanges {
    /// Programs that send without a pause: data is under way at every moment.
    pub(crate) fn steady() -> Self {
        Self::default()
    }

    /// Programs that send often enough to be busy, and not much.
    pub(crate) fn in_bursts() -> Self {
        Self { pause: Duration::from_millis(1), ..Self::default() }
    }

    /// Begins an exchange between two programs.
    pub(crate) fn add(&mut self, (near, far): (TcpStream, TcpStream)) {
        let (stopped, pause) = (self.stopped.clone(), self.pause);
        self.running.spawn(async move {
            let near = exchange_blocks(near, [1, 2], pause, &stopped);
            let (near, far) = tokio::join!(near, exchange_blocks(far, [2, 1], pause, &stopped));
            assert_eq!(near, [far[1], far[0]], "blocks sent and received");
        });
    }

    /// Ends the exchanges. All that was sent arrives, and nothing else.
    pub(crate) async fn stop(self) {
        self.stopped.store(true, Relaxed);
        timeout(PATIENCE, self.running.join_all()).await.expect("arrives in time");
    }
}

/// Sends blocks until it is stopped, and receives those of the other end. Returns how many of both.
async fn exchange_blocks(
    stream: TcpStream,
    [own, other]: [u8; 2],
    pause: Duration,
    stopped: &AtomicBool,
) -> [u64; 2] {
    let (mut reading, mut writing) = stream.into_split();
    let block = |number: u64, seed: u8| {
        let mut block: Vec<u8> = filled(BLOCK).into_iter().map(|byte| byte ^ seed).collect();
        block[..8].copy_from_slice(&number.to_be_bytes());
        block
    };
    let write = async {
        let mut number = 0;
        while !stopped.load(Relaxed) {
            writing.write_all(&block(number, own)).await.unwrap();
            number += 1;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        writing.shutdown().await.unwrap();
        number
    };
    let read = async {
        let (mut got, mut number) = (vec![0; BLOCK], 0);
        loop {
            match reading.read_exact(&mut got).await {
                Ok(_) => assert!(got == block(number, other), "block {number}"),
                // A part of a block is missed: it was sent as a whole.
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
                    break number;
                }
            }
            number += 1;
        }
    };
    let (sent, received) = tokio::join!(write, read);
    [sent, received]
}

pub(crate) async fn one_direction_may_end_before_the_other((mut near, mut far): (TcpStream, TcpStream)) {
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut question = String::new();
    far.read_to_string(&mut question).await.unwrap();
    assert_eq!(question, "question");
    far.write_all(b"answer").await.unwrap();
    drop(far);
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}

pub(crate) async fn a_reset_stays_a_reset((near, mut far): (TcpStream, TcpStream)) {
    SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
    drop(near);
    let error = timeout(PATIENCE, far.read(&mut [0])).await.expect("ends in time").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// One program answers and closes while the other still sends.
pub(crate) async fn data_before_a_close_arrives_though_the_closed_end_had_unread_data(
    (mut near, far): (TcpStream, TcpStream),
) {
    let (mut reading, mut writing) = far.into_split();
    let late = tokio::spawn(async move { while writing.write_all(&[7; 999]).await.is_ok() {} });
    // By then all buffers on the way hold data.
    let mut unread = vec![0; 4 << 20];
    near.read_exact(&mut unread).await.unwrap();
    let near = near.into_std().unwrap();
    assert_eq!(io::Write::write(&mut &near, &filled(HELD)).unwrap(), HELD);
    // Closing with unread data is a reset. Some may arrive before the close, so the end goes ahead.
    near.shutdown(Shutdown::Write).unwrap();
    while io::Read::read(&mut &near, &mut unread).is_ok() {}
    drop(near);
    let mut got = Vec::new();
    let end = timeout(PATIENCE, reading.read_to_end(&mut got)).await.expect("ends in time");
    assert!(got == filled(HELD), "{} bytes, then {end:?}", got.len());
    end.unwrap();
    // The writer gets an error, because the reader is gone.
    timeout(PATIENCE, late).await.expect("writing fails").unwrap();
}

pub(crate) async fn data_before_a_reset_arrives_before_the_reset(
    (mut near, mut far): (TcpStream, TcpStream),
) {
    far.write_all(b"unread").await.unwrap();
    near.readable().await.unwrap();
    near.write_all(&filled(HELD)).await.unwrap();
    drop(near);
    let mut got = Vec::new();
    let end = timeout(PATIENCE, far.read_to_end(&mut got)).await.expect("ends in time");
    assert_eq!((got.len(), end.unwrap_err().kind()), (HELD, io::ErrorKind::ConnectionReset));
}

/// A read stops at urgent data, and no event tells of what follows.
pub(crate) async fn urgent_data_holds_nothing_back((mut near, mut far): (TcpStream, TcpStream)) {
    for _ in 0..20 {
        near.write_all(b"before").await.unwrap();
        SockRef::from(&near).send_out_of_band(b"!").unwrap();
        near.write_all(b"behind").await.unwrap();
        let mut got = [0; 12];
        timeout(PATIENCE, far.read_exact(&mut got)).await.expect("arrives in time").unwrap();
        assert_eq!(&got, b"beforebehind");
    }
}
