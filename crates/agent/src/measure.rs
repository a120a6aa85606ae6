//! How fast the way to another node is: the time that one byte takes there and
//! back, and how fast a short transfer arrives, over a connection opened along
//! the plan like any other.
//!
//! The initiator asks by one byte at a time; TLS says who it is, and keeps the
//! broker's nodes among themselves.
//!
//! ```text
//! P           the acceptor answers P
//! U frames    a transfer; the acceptor answers how many bytes arrived in how
//!             many microseconds, u64 each, big-endian
//! D           the acceptor makes a transfer of frames
//! frame: u32 length, big-endian, at most FRAME; as many bytes; length 0 ends
//! ```

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isthmus_net::Role;
use isthmus_wire::proto::{self, attach_up};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsStream;

use crate::account::micros;
use crate::carrier::Carrier;
use crate::node::Node;
use crate::reach::{Purpose, peer_identity};

/// Bytes of one transfer at most.
const MOST: usize = 8 * 1024 * 1024;
/// How long one may take.
const TRANSFER: Duration = Duration::from_secs(1);
/// Bytes of one frame.
const FRAME: usize = 64 * 1024;
/// Times that the round trip is taken.
const ROUND_TRIPS: usize = 10;
/// How long all of it may take once the connection stands; the other side ends
/// then, too.
const DEADLINE: Duration = Duration::from_secs(15);
/// How long it may take to open the connection, over every step of a plan.
const REACH_DEADLINE: Duration = Duration::from_secs(40);
/// Characters of a failure that are told.
const MOST_TEXT: usize = 1000;

/// Lets others measure the way to here, one at a time: it takes of what jobs
/// need.
#[derive(Debug)]
pub struct Measuring(Semaphore);

impl Default for Measuring {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Measured {
    round_trip: Duration,
    sent_bytes_per_second: u64,
    received_bytes_per_second: u64,
}

/// What arrived of a transfer, and in which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrived {
    bytes: u64,
    micros: u64,
}

impl Arrived {
    fn bytes_per_second(self) -> u64 {
        self.bytes.saturating_mul(1_000_000) / self.micros.max(1)
    }
}

impl Measuring {
    /// The acceptor's side.
    ///
    /// # Errors
    /// As the connection's; if it isn't another agent's, or others measure.
    pub async fn serve(&self, stream: TlsStream<TcpStream>) -> io::Result<()> {
        if peer_identity(&stream).is_none_or(|peer| peer.role() != Role::Agent) {
            return Err(io::Error::other("only agents measure"));
        }
        let permit = tokio::time::timeout(DEADLINE, self.0.acquire()).await;
        let _permit = permit.map_err(|_| io::Error::other("others measure"))?.map_err(io::Error::other)?;
        tokio::time::timeout(DEADLINE, serve(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// Measures as the broker orders; never returns while it may.
pub async fn carry_out(node: &Arc<Node>, mut orders: mpsc::Receiver<proto::MeasureOrder>) {
    while let Some(order) = orders.recv().await {
        let report = report(node, order.destination.into()).await;
        node.reacher().upstream.tell(attach_up::Kind::Measured(report)).await;
    }
    std::future::pending::<()>().await;
}

async fn report(node: &Node, destination: std::net::Ipv4Addr) -> proto::PathReport {
    let name = node.reacher().upstream.lookup(destination).await;
    let to = name.ok().and_then(|found| found.node.as_ref().map(|node| node.name.clone()));
    let mut report = proto::PathReport {
        from: node.name().to_string(),
        to: to.unwrap_or_default(),
        route: proto::Route::EndToEnd.into(),
        ..proto::PathReport::default()
    };
    let reaching = node.reacher().reach(destination, Purpose::Measure);
    match tokio::time::timeout(REACH_DEADLINE, reaching).await {
        Ok(Ok(reached)) => {
            report.dial = reached.dial.into();
            report.relay = reached.relay;
            report.failed = reached.failures.iter().map(|reason| shortened(reason)).collect();
            report.setup_us = micros(reached.setup);
            let measuring = async {
                match reached.carrier {
                    Carrier::Tls(stream) => measure(*stream).await,
                    Carrier::Raw(_) => Err(io::Error::other("the connection is not encrypted")),
                }
            };
            match tokio::time::timeout(2 * DEADLINE, measuring).await {
                Ok(Ok(measured)) => {
                    report.round_trip_us = micros(measured.round_trip).max(1);
                    report.sent_bytes_per_second = measured.sent_bytes_per_second;
                    report.received_bytes_per_second = measured.received_bytes_per_second;
                }
                Ok(Err(error)) => {
                    report.failure = format!("the connection broke while it was measured: {error}")
                }
                Err(_) => report.failure = format!("no measurement within {:?}", 2 * DEADLINE),
            }
        }
        Ok(Err(error)) => report.failure = shortened(&error.to_string()),
        Err(_) => report.failure = format!("no connection within {REACH_DEADLINE:?}"),
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    report.measured_unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    report
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

/// The initiator's side.
async fn measure<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<Measured> {
    let mut round_trip = Duration::MAX;
    for _ in 0..ROUND_TRIPS {
        let asked = Instant::now();
        say(&mut stream, b"P").await?;
        if stream.read_u8().await? != b'P' {
            return Err(io::ErrorKind::InvalidData.into());
        }
        round_trip = round_trip.min(asked.elapsed());
    }
    say(&mut stream, b"U").await?;
    send(&mut stream).await?;
    let sent = Arrived { bytes: stream.read_u64().await?, micros: stream.read_u64().await? };
    say(&mut stream, b"D").await?;
    let received = receive(&mut stream).await?;
    Ok(Measured {
        round_trip,
        sent_bytes_per_second: sent.bytes_per_second(),
        received_bytes_per_second: received.bytes_per_second(),
    })
}

/// The acceptor's side, until the initiator has had enough.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let mut transfers = 0;
    loop {
        let asked = match stream.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            asked => asked?,
        };
        match asked {
            b'P' => say(&mut stream, b"P").await?,
            // One of each is enough.
            b'U' | b'D' if transfers >= 2 => return Err(io::Error::other("too many transfers")),
            b'U' => {
                transfers += 1;
                let arrived = receive(&mut stream).await?;
                stream.write_u64(arrived.bytes).await?;
                stream.write_u64(arrived.micros).await?;
                stream.flush().await?;
            }
            b'D' => {
                transfers += 1;
                send(&mut stream).await?;
            }
            other => return Err(io::Error::other(format!("unknown question {other}"))),
        }
    }
}

async fn say<S: AsyncWrite + Unpin>(stream: &mut S, what: &[u8]) -> io::Result<()> {
    stream.write_all(what).await?;
    stream.flush().await
}

/// Makes a transfer, as long as it may last.
async fn send<S: AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    let frame = vec![0x5a; FRAME];
    let started = Instant::now();
    let mut sent = 0;
    while sent < MOST && started.elapsed() < TRANSFER {
        stream.write_u32(FRAME as u32).await?;
        stream.write_all(&frame).await?;
        sent += FRAME;
    }
    stream.write_u32(0).await?;
    stream.flush().await
}

/// Takes a transfer in. Its time begins with its first frame: what came with
/// that one says nothing.
async fn receive<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Arrived> {
    let mut frame = vec![0; FRAME];
    let (mut first, mut last, mut bytes, mut whole) = (None, Instant::now(), 0_u64, 0_usize);
    loop {
        let length = stream.read_u32().await? as usize;
        if length == 0 {
            let micros = first.map_or(0, |first| micros(last.saturating_duration_since(first)));
            return Ok(Arrived { bytes, micros });
        }
        whole = whole.saturating_add(length);
        if length > FRAME || whole > MOST + FRAME {
            return Err(io::Error::other("the transfer is too long"));
        }
        let Some(part) = frame.get_mut(..length) else { return Err(io::ErrorKind::InvalidData.into()) };
        stream.read_exact(part).await?;
        last = Instant::now();
        match first {
            None => first = Some(last),
            Some(_) => bytes += length as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_directions_are_measured() {
        let (near, far) = tokio::io::duplex(FRAME);
        let (measured, served) = tokio::join!(measure(near), serve(far));
        let measured = measured.unwrap();
        assert!(measured.sent_bytes_per_second > 0 && measured.received_bytes_per_second > 0);
        assert!(measured.round_trip < DEADLINE);
        served.unwrap();
    }

    #[test]
    fn rates_follow_from_what_arrived() {
        for (bytes, micros, want) in [(0, 0, 0), (1000, 1_000_000, 1000), (8_000_000, 500_000, 16_000_000)] {
            assert_eq!(Arrived { bytes, micros }.bytes_per_second(), want);
        }
    }

    #[tokio::test]
    async fn nobody_can_have_more_than_is_due() {
        for (name, said) in [
            ("a frame too long", b"U\xff\xff\xff\xff".to_vec()),
            ("an unknown question", b"X".to_vec()),
            ("many transfers", b"U\0\0\0\0U\0\0\0\0U\0\0\0\0".to_vec()),
        ] {
            let (mut near, far) = tokio::io::duplex(1 << 20);
            near.write_all(&said).await.unwrap();
            assert!(serve(far).await.is_err(), "{name}");
        }
    }
}
