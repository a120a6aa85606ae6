//! The protocol of two agents over the connection that is measured. The initiator
//! sends one byte for each request.
//!
//! ```text
//! P           the acceptor answers P
//! B           the acceptor answers Y if transfers are allowed, N if not, such as while a job
//!             runs there
//! U frames    a transfer; the acceptor answers how many bytes arrived in how
//!             many microseconds, u64 each, big-endian
//! D           the acceptor makes a transfer of frames
//! frame: u32 length, big-endian, at most FRAME; as many bytes; length 0 ends
//! ```

use std::io;
use std::time::{Duration, Instant};

use isthmus_service::clock::micros;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Length of one frame in bytes.
const FRAME: usize = 64 * 1024;
/// Most bytes of one transfer: somewhat less than 8 MB.
const MOST: usize = 122 * FRAME;
/// How long the sending of one transfer may take.
const TRANSFER: Duration = Duration::from_secs(1);
/// Number of round trips; the shortest counts.
const ROUND_TRIPS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) round_trip: Duration,
    /// `None` if nothing was transferred.
    pub(super) bandwidth: Option<Bandwidth>,
}

/// The bandwidth in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bandwidth {
    pub(super) sent_bytes_per_second: u64,
    pub(super) received_bytes_per_second: u64,
}

/// The bytes of a transfer that arrived, and the time that they took.
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

/// Measures at the initiator's side. `transfers` says whether to measure the bandwidth, if the
/// other end allows it.
pub(super) async fn measure<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    transfers: bool,
) -> io::Result<Measured> {
    let mut round_trip = Duration::MAX;
    for _ in 0..ROUND_TRIPS {
        let asked = Instant::now();
        write(&mut stream, b"P").await?;
        if stream.read_u8().await? != b'P' {
            return Err(io::ErrorKind::InvalidData.into());
        }
        round_trip = round_trip.min(asked.elapsed());
    }
    let allowed = transfers && {
        write(&mut stream, b"B").await?;
        stream.read_u8().await? == b'Y'
    };
    let bandwidth = if allowed { Some(bandwidth(&mut stream).await?) } else { None };
    Ok(Measured { round_trip, bandwidth })
}

async fn bandwidth<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<Bandwidth> {
    write(stream, b"U").await?;
    send(stream).await?;
    let sent = Arrived { bytes: stream.read_u64().await?, micros: stream.read_u64().await? };
    write(stream, b"D").await?;
    let received = receive(stream).await?;
    Ok(Bandwidth {
        sent_bytes_per_second: sent.bytes_per_second(),
        received_bytes_per_second: received.bytes_per_second(),
    })
}

/// Serves a measurement at the acceptor's side, until the initiator closes. `allows` says whether
/// transfers may be made now.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    allows: impl Fn() -> bool,
) -> io::Result<()> {
    let (mut transfers, mut allowed) = (0, false);
    loop {
        let asked = match stream.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            asked => asked?,
        };
        match asked {
            b'P' => write(&mut stream, b"P").await?,
            b'B' => {
                allowed = allows();
                write(&mut stream, if allowed { b"Y" } else { b"N" }).await?;
            }
            b'U' | b'D' if !allowed => return Err(io::Error::other("a transfer that was not allowed")),
            // One transfer in each direction is enough.
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
            other => return Err(io::Error::other(format!("unknown request {other}"))),
        }
    }
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, what: &[u8]) -> io::Result<()> {
    stream.write_all(what).await?;
    stream.flush().await
}

/// Sends a transfer, up to its limits.
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

/// Receives a transfer. Its time begins with the first frame, whose bytes don't
/// count.
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
    async fn both_directions_are_measured_if_wanted_and_allowed() {
        for (transfers, allowed, want) in [(false, true, false), (true, true, true), (true, false, false)] {
            let (near, far) = tokio::io::duplex(FRAME);
            let (measured, served) = tokio::join!(measure(near, transfers), serve(far, || allowed));
            let Measured { round_trip, bandwidth } = measured.unwrap();
            assert!(round_trip > Duration::ZERO && round_trip < Duration::from_secs(60));
            let both = bandwidth
                .is_some_and(|found| found.sent_bytes_per_second > 0 && found.received_bytes_per_second > 0);
            assert_eq!((bandwidth.is_some(), both), (want, want), "{transfers}, {allowed}");
            served.unwrap();
        }
    }

    #[test]
    fn rates_follow_from_what_arrived() {
        for (bytes, micros, want) in [(0, 0, 0), (1000, 1_000_000, 1000), (8_000_000, 500_000, 16_000_000)] {
            assert_eq!(Arrived { bytes, micros }.bytes_per_second(), want);
        }
    }

    #[tokio::test]
    async fn malformed_and_excessive_requests_are_refused() {
        for (name, sent, allowed) in [
            ("a frame too long", b"BU\xff\xff\xff\xff".to_vec(), true),
            ("an unknown request", b"X".to_vec(), true),
            ("many transfers", b"BU\0\0\0\0U\0\0\0\0U\0\0\0\0".to_vec(), true),
            ("a transfer that nobody has asked for", b"U\0\0\0\0".to_vec(), true),
            ("a transfer that is not allowed", b"BU\0\0\0\0".to_vec(), false),
            ("the same in the other direction", b"BD".to_vec(), false),
        ] {
            let (mut near, far) = tokio::io::duplex(1 << 20);
            near.write_all(&sent).await.unwrap();
            assert!(serve(far, || allowed).await.is_err(), "{name}");
        }
    }
}
