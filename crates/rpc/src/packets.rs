//! Whether large packets pass between two parties. A network that drops packets that are
//! too long for one of its links, and the ICMP messages that would tell so, is a PMTU black
//! hole (RFC 2923): connections open over it, and hang once a segment is of full size.
//!
//! The client has the same exchange over connections with shorter segments (`TCP_MAXSEG`
//! holds for both directions). If those pass and the one with the kernel's own segments does
//! not, it is a black hole.
//!
//! The exchange, over TLS, so between members of the grid only:
//! ```text
//! client → server   P, then LARGE bytes
//! server → client   P, then LARGE bytes
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use isthmus_identity::secured::{ClientTls, Secured};
use isthmus_net::dial::{self, SocketOptions};
use isthmus_service::unidentified::UnidentifiedEntry;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

/// Protocol name (ALPN, RFC 7301) of the exchange of large packets.
pub const PROTOCOL: &[u8] = b"isthmus-packets/1";
/// Bytes that each way sends: several segments, and no more than may be sent at once (RFC 6928).
const LARGE: usize = 12 * 1024;
/// Most exchanges that a service takes part in at once.
const SERVED: usize = 64;
/// How long a service waits for the end of an exchange.
const SERVING: Duration = Duration::from_secs(30);
/// How long a connect may take.
const CONNECT: Duration = Duration::from_secs(8);
/// How long a user's own test is silent before shorter segments are tried.
pub const SOON: Duration = Duration::from_secs(1);
/// The longest segments of the tries, in bytes: IPv4 packets of 1400, 1280, 1000 and 540 bytes.
pub const SEGMENTS: &[u16] = &[1360, 1240, 960, 500];
/// Bytes of the headers before a segment's data (IPv4, TCP).
const HEADERS: u16 = 40;
/// How long a connection must hang at least while a connection with shorter segments works.
const HANGS: Duration = Duration::from_secs(3);

static PLACES: Semaphore = Semaphore::const_new(SERVED);

/// The finding that shorter segments pass, and the kernel's own don't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The longest segment that was tried and passed, in bytes.
    pub passes: u16,
}

impl Hole {
    /// The text that a user reads. `on` is the way, such as "between A and B" or "on the way from A
    /// to B".
    pub fn text(self, on: &str) -> String {
        let (segment, packet) = (self.passes, self.passes + HEADERS);
        format!(
            "packets above about {packet} bytes vanish {on} (PMTU black hole): connections open, and hang once more \
             is sent at a time; let ICMP \"fragmentation needed\" (type 3, code 4) through the firewalls on that way, \
             or lower the MTU of the interface that leads there (ip link set dev DEVICE mtu {packet}), or clamp the \
             MSS at the router (nft add rule inet TABLE forward tcp flags syn tcp option maxseg size set {segment})"
        )
    }
}

/// How far an exchange has come.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU8>);

/// The stages of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    /// The handshake of TLS is under way. Its first large flight is the server's.
    Shaking,
    Sending,
    Receiving,
}

impl Progress {
    fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    fn stage(&self) -> Stage {
        match self.0.load(Ordering::Relaxed) {
            0 => Stage::Opening,
            1 => Stage::Shaking,
            2 => Stage::Sending,
            _ => Stage::Receiving,
        }
    }
}

/// How long the whole may hang, from its beginning, before it is judged: several times as long as
/// shorter segments take. So a few lost packets are no black hole. `soon` is when shorter segments
/// were tried, and `took` how long they took.
fn patience(soon: Duration, took: Duration) -> Duration {
    soon + HANGS.max(took.saturating_mul(4))
}

/// Waits for `whole`. If it hangs for longer than `soon`, `shorter` is tried with each of these
/// segments. The caller bounds the time.
///
/// # Errors
/// [`Hole`] if shorter segments pass, and the whole still hangs.
pub async fn look<T, F>(
    soon: Duration,
    segments: &[u16],
    whole: impl Future<Output = T>,
    shorter: impl Fn(u16) -> F,
) -> Result<T, Hole>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    tokio::pin!(whole);
    if let Ok(done) = timeout(soon, &mut whole).await {
        return Ok(done);
    }
    let tried = Instant::now();
    let mut tries = JoinSet::new();
    for segment in segments.iter().copied() {
        let shorter = shorter(segment);
        tries.spawn(async move { shorter.await.map(|()| segment) });
    }
    let mut found: Option<(Hole, Instant)> = None;
    loop {
        let judged = async move {
            match found {
                Some((hole, at)) => {
                    sleep_until(at).await;
                    hole
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = &mut whole => return Ok(done),
            Some(ended) = tries.join_next() => if let Ok(Ok(segment)) = ended {
                let passes = found.map_or(segment, |(hole, _)| hole.passes.max(segment));
                found = Some((Hole { passes }, tried + patience(soon, tried.elapsed()) - soon));
            },
            hole = judged => return Err(hole),
        }
    }
}

/// Finds a black hole between this service, `near`, and the service `far` at `address`,
/// `HOST:PORT`. Returns the text for the user. `tls` is a client's for [`PROTOCOL`]. `None` if
/// there is no hole, or if the service isn't reached or is too old to take part. The caller bounds
/// the time.
pub async fn hole_towards((near, far): (&str, &str), address: &str, tls: &ClientTls) -> Option<String> {
    let progress = Progress::default();
    let exchange = |segment, progress| {
        let (address, far, tls) = (address.to_owned(), far.to_owned(), tls.clone());
        async move { exchange_with(&address, &far, &tls, segment, progress).await }
    };
    let whole = exchange(None, progress.clone());
    let hole = look(SOON, SEGMENTS, whole, |segment| exchange(Some(segment), Progress::default())).await;
    let far = format!("{far} ({address})");
    let on = match progress.stage() {
        Stage::Opening => return None,
        Stage::Sending => format!("on the way from {near} to {far}"),
        Stage::Shaking | Stage::Receiving => format!("on the way from {far} to {near}"),
    };
    hole.err().map(|hole| hole.text(&on))
}

async fn exchange_with(
    address: &str,
    server_name: &str,
    tls: &ClientTls,
    segment: Option<u16>,
    progress: Progress,
) -> io::Result<()> {
    let mut stream = connect((address, server_name), tls, (segment, CONNECT), &progress).await?;
    progress.set(Stage::Sending);
    exchange(&mut stream, &progress).await
}

/// Opens a connection with segments of at most this many bytes, and makes the handshake of TLS.
/// `limit` bounds the connect alone.
///
/// # Errors
/// The connection's error.
pub(crate) async fn connect(
    (address, server_name): (&str, &str),
    tls: &ClientTls,
    (segment, limit): (Option<u16>, Duration),
    progress: &Progress,
) -> io::Result<Secured> {
    let options = SocketOptions { segment, ..SocketOptions::default() };
    let tcp = dial::direct(address, options, limit).await.map_err(io::Error::other)?;
    progress.set(Stage::Shaking);
    let name = ServerName::try_from(server_name.to_owned()).map_err(io::Error::other)?;
    tls.connect(name, tcp).await
}

/// The client's side of an exchange, over an open connection.
///
/// # Errors
/// The connection's error; `InvalidData` if the answer is wrong.
pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    progress: &Progress,
) -> io::Result<()> {
    stream.write_all(&[b'P'; 1 + LARGE]).await?;
    stream.flush().await?;
    if stream.read_u8().await? != b'P' {
        return Err(io::ErrorKind::InvalidData.into());
    }
    progress.set(Stage::Receiving);
    skip(stream).await
}

/// The server's side of an exchange.
///
/// # Errors
/// The connection's error. If the peer showed no certificate, if there are too many exchanges at
/// once, or if it takes too long.
pub async fn serve(mut stream: Secured) -> io::Result<()> {
    if stream.identity().is_none() {
        return Err(io::Error::other("only members of the grid have packets tried"));
    }
    let _place = PLACES.try_acquire().map_err(|_| io::Error::other("too many have packets tried"))?;
    timeout(SERVING, answer(&mut stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// The server's side of an exchange, for a connection that has just been accepted. The connection
/// is identified now, and gives its entry up.
pub async fn take_part(stream: Secured, peer: SocketAddr, entry: UnidentifiedEntry) {
    drop(entry);
    if let Err(error) = serve(stream).await {
        debug!(%peer, %error, "packets not tried");
    }
}

/// Whether a client has asked for the exchange.
pub fn is_asked(stream: &Secured) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(PROTOCOL)
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    if stream.read_u8().await? != b'P' {
        return Err(io::ErrorKind::InvalidData.into());
    }
    skip(stream).await?;
    stream.write_all(b"P").await?;
    stream.flush().await?;
    stream.write_all(&[b'P'; LARGE]).await?;
    stream.flush().await?;
    // The client closes first: what is under way isn't reset.
    let _ = stream.read_u8().await;
    Ok(())
}

async fn skip<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let skipped = tokio::io::copy(&mut stream.take(LARGE as u64), &mut tokio::io::sink()).await?;
    if skipped < LARGE as u64 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn a_connection_must_hang_for_several_times_what_shorter_segments_take() {
        for (soon, took, want) in
            [(1_000, 0, 4_000), (1_000, 500, 4_000), (1_000, 2_000, 9_000), (5_000, 6_000, 29_000)]
        {
            let [soon, took, want] = [soon, took, want].map(Duration::from_millis);
            assert_eq!(patience(soon, took), want);
        }
    }

    #[tokio::test]
    async fn both_ends_exchange() {
        let (mut near, mut far) = tokio::io::duplex(1000);
        let progress = Progress::default();
        let (asked, answered) = tokio::join!(
            async {
                let done = exchange(&mut near, &progress).await;
                drop(near);
                done
            },
            answer(&mut far)
        );
        asked.unwrap();
        answered.unwrap();
        assert_eq!(progress.stage(), Stage::Receiving);
    }

    #[tokio::test]
    async fn what_is_no_exchange_is_refused() {
        for sent in [&b"X"[..], b"PPP"] {
            let (mut near, mut far) = tokio::io::duplex(1000);
            near.write_all(sent).await.unwrap();
            drop(near);
            assert!(answer(&mut far).await.is_err(), "{sent:?}");
        }
    }

    /// What is found if segments up to `passes` pass after this time, and the whole after that, if
    /// it does.
    async fn found(whole_ms: Option<u64>, passes: u16, took_ms: u64) -> (Option<u16>, u128) {
        let begun = Instant::now();
        let sleep = |ms| tokio::time::sleep(Duration::from_millis(ms));
        let whole = async {
            match whole_ms {
                Some(ms) => sleep(ms).await,
                None => pending().await,
            }
        };
        let shorter = move |segment| async move {
            if segment > passes {
                pending::<()>().await;
            }
            sleep(took_ms).await;
            Ok(())
        };
        let looking = timeout(Duration::from_secs(60), look(SOON, SEGMENTS, whole, shorter)).await;
        let hole = looking.ok().and_then(Result::err).map(|hole| hole.passes);
        (hole, begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_hole_is_found_in_ten_seconds_and_a_long_way_is_none() {
        for (name, whole, passes, took, want) in [
            ("all pass", Some(100), 1360, 100, None),
            ("a hole at 1300 bytes", None, 1260, 100, Some(1240)),
            ("the same over 400 ms", None, 1260, 2_000, Some(1240)),
            ("a narrow hole", None, 500, 100, Some(500)),
            ("nothing passes", None, 0, 100, None),
            ("a long way", Some(7_000), 1360, 6_000, None),
            ("a lossy one", Some(3_500), 1360, 200, None),
        ] {
            let (hole, took_ms) = found(whole, passes, took).await;
            assert_eq!(hole, want, "{name}");
            assert!(want.is_none() || took_ms < 10_000, "{name}: {took_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_no_hole() {
        let looked = look(SOON, SEGMENTS, ready(Err::<(), _>("refused")), |_| ready(Ok(()))).await;
        assert_eq!(looked, Ok(Err("refused")));
    }

    #[test]
    fn a_hole_is_named_with_its_remedies() {
        let text = Hole { passes: 1240 }.text("on the way from n1.alpha to n1.beta");
        for part in
            ["above about 1280 bytes vanish on the way from n1.alpha to n1.beta", "mtu 1280", "set 1240"]
        {
            assert!(text.contains(part), "{part:?}: {text}");
        }
    }
}
