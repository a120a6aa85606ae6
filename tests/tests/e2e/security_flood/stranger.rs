//! What strangers, and members, do: connections of each bad kind, held by one machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use isthmus_identity::tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::frames;

/// Number of a flood's connections to a port.
pub(super) const FLOOD: usize = 10_000;
/// How long a stranger waits before it connects again.
const AGAIN: Duration = Duration::from_secs(2);
/// Time between two TLS handshakes of all strangers together. A service can't defend itself against
/// handshakes that take all processor time.
const HANDSHAKE: Duration = Duration::from_millis(3);

/// A verifier that accepts every certificate, as a stranger checks none.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The TLS configuration of a client without a certificate.
fn anonymous() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// What a stranger does once it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Silence,
    /// Sends random bytes, as many as a ticket has.
    Garbage,
    /// Sends a TLS record, a ticket or a preamble, a byte per second.
    SlowBytes,
    /// Begins a TLS handshake.
    Hello,
    /// Sends a first message of the largest size, without its end.
    LargeHello,
    /// Makes a handshake without a certificate and speaks HTTP/2, on every fifth connection. The
    /// others are silent.
    Http2(Trick),
    /// Does what all kinds do. Five in a hundred connections are HTTP/2.
    Mixture,
    /// Makes as many calls as a connection may have, none with a message. Only a member can.
    Calls,
}

/// Number of calls on a connection.
const CALLS: u32 = 4032;

/// A member of the grid, and what it calls.
pub(super) struct Member {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server: ServerName<'static>,
    pub(super) path: &'static str,
}

/// What a client does with HTTP/2 after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trick {
    Nothing,
    /// Makes calls that it cancels at once (CVE-2023-44487).
    RapidReset,
    /// Sends many settings (CVE-2019-9515).
    Settings,
    Pings,
    /// Sends headers without an end, all at once (CVE-2024-27316).
    EndlessHeaders,
    /// Sends headers without an end, a CONTINUATION per second.
    SlowHeaders,
    /// Gives no window for the answer.
    NoWindow,
    /// Makes calls that each begin a message of 256 KiB.
    LargeCalls,
}

impl Kind {
    /// What the flood's connection with this number does.
    fn of(self, index: usize) -> Self {
        use Trick::{
            EndlessHeaders, LargeCalls, NoWindow, Nothing, Pings, RapidReset, Settings, SlowHeaders,
        };
        let tricks =
            [Nothing, RapidReset, EndlessHeaders, Pings, NoWindow, LargeCalls, Settings, SlowHeaders];
        match (self, index % 20) {
            (Self::Mixture, 0..5) => Self::Silence,
            (Self::Mixture, 5..10) => Self::Garbage,
            (Self::Mixture, 10..15) => Self::SlowBytes,
            (Self::Mixture, 15..17) => Self::Hello,
            (Self::Mixture, 17..19) => Self::LargeHello,
            (Self::Mixture, _) => Self::Http2(tricks[index / 20 % tricks.len()]),
            (Self::Http2(_), _) if !index.is_multiple_of(5) => Self::Silence,
            (kind, _) => kind,
        }
    }

    /// How many connections and handshakes a flood has when it has risen. At most 512 connections
    /// stand without a certificate.
    fn risen(self) -> (usize, usize) {
        match self {
            // All calls are of one member. Calls beyond its share have been refused.
            Self::Calls => (60, 60),
            Self::Http2(_) => (FLOOD * 4 / 5, 600),
            Self::Mixture => (FLOOD * 9 / 10, 0),
            _ => (FLOOD, 0),
        }
    }
}

/// What all strangers of a flood share.
pub(super) struct Flood {
    kind: Kind,
    to: SocketAddr,
    tls: Arc<ClientConfig>,
    server: ServerName<'static>,
    /// Path of what a member calls.
    path: &'static str,
    hello: Vec<u8>,
    pub(super) stop: AtomicBool,
    /// Held while a handshake begins, so that they begin one at a time.
    turn: tokio::sync::Mutex<()>,
    /// Connections made so far. `standing` are those that stand, and `handshakes` the handshakes
    /// made.
    pub(super) made: AtomicUsize,
    pub(super) standing: AtomicUsize,
    pub(super) handshakes: AtomicUsize,
}

impl Flood {
    pub(super) fn new(kind: Kind, to: SocketAddr) -> Result<Self> {
        let stranger = Member { config: anonymous(), server: ServerName::try_from("broker")?, path: "" };
        Self::of(kind, stranger, to)
    }

    /// A flood of a member, which shows its certificate.
    pub(super) fn of_member(member: Member, to: SocketAddr) -> Result<Self> {
        Self::of(Kind::Calls, member, to)
    }

    fn of(kind: Kind, Member { config: tls, server, path }: Member, to: SocketAddr) -> Result<Self> {
        let mut session = ClientConnection::new(tls.clone(), server.clone())?;
        let mut hello = Vec::new();
        session.write_tls(&mut hello)?;
        let (stop, turn, made, standing, handshakes) = Default::default();
        Ok(Self { kind, to, tls, server, path, hello, stop, turn, made, standing, handshakes })
    }

    pub(super) fn risen(&self) -> (usize, usize) {
        self.kind.risen()
    }

    /// Holds `count` connections until the flood is stopped.
    pub(super) fn hold(self: &Arc<Self>, count: usize) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            for index in 0..count {
                let flood = self.clone();
                tokio::spawn(async move {
                    loop {
                        // Ends when the service closes it.
                        let _ = flood.connection(index).await;
                        sleep(AGAIN).await;
                    }
                });
                if index % 100 == 99 {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            while !self.stop.load(Relaxed) {
                sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(())
    }

    async fn connection(&self, index: usize) -> Result<()> {
        if let Kind::Http2(_) | Kind::Calls = self.kind.of(index) {
            // Before it connects: the service closes the oldest connections first.
            let _turn = self.turn.lock().await;
            sleep(HANDSHAKE).await;
        }
        let stream = TcpStream::connect(self.to).await?;
        // Without a reset, the strangers' ports would be used up.
        stream.set_zero_linger()?;
        self.made.fetch_add(1, Relaxed);
        self.standing.fetch_add(1, Relaxed);
        let result = self.misuse(stream, index).await;
        self.standing.fetch_sub(1, Relaxed);
        result
    }

    async fn misuse(&self, mut stream: TcpStream, index: usize) -> Result<()> {
        match self.kind.of(index) {
            Kind::Silence | Kind::Mixture => {}
            Kind::Garbage => stream.write_all(&[0x5a; 64]).await?,
            Kind::SlowBytes => {
                let first = [&[22, 3, 1, 2, 0][..], b"ISTR", b"ISTH"][index % 3];
                for byte in first.iter().chain(&[0; 600]) {
                    stream.write_all(&[*byte]).await?;
                    sleep(Duration::from_secs(1)).await;
                }
            }
            Kind::Hello => stream.write_all(&self.hello).await?,
            Kind::LargeHello => stream.write_all(&large_hello()).await?,
            Kind::Http2(trick) => return self.http2(stream, trick).await,
            Kind::Calls => return self.calls(stream).await,
        }
        while stream.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    }

    /// Makes a connection with TLS and HTTP/2.
    async fn shaken(&self, stream: TcpStream) -> Result<tls::Stream> {
        let mut tls = tls::connect(self.tls.clone(), self.server.clone(), stream).await?;
        self.handshakes.fetch_add(1, Relaxed);
        tls.write_all(&frames::preface()).await?;
        Ok(tls)
    }

    async fn calls(&self, stream: TcpStream) -> Result<()> {
        let mut tls = self.shaken(stream).await?;
        for call in 0..CALLS {
            tls.write_all(&frames::call(2 * call + 1, self.path)).await?;
        }
        tls.flush().await?;
        while tls.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    }

    async fn http2(&self, stream: TcpStream, trick: Trick) -> Result<()> {
        let mut tls = self.shaken(stream).await?;
        tls.write_all(&trick.frames()).await?;
        tls.flush().await?;
        if trick == Trick::SlowHeaders {
            loop {
                sleep(Duration::from_secs(1)).await;
                let part = frames::header("a", "b");
                tls.write_all(&frames::frame(frames::CONTINUATION, 0, 1, &part)).await?;
                tls.flush().await?;
            }
        }
        while tls.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    }
}

/// The beginning of a ClientHello of 64,768 bytes: 48 KiB in three records.
fn large_hello() -> Vec<u8> {
    let mut message = vec![0; 3 << 14];
    message[..4].copy_from_slice(&[1, 0, 0xfd, 0]);
    message.chunks(1 << 14).flat_map(|part| [&[22, 3, 1, 0x40, 0][..], part].concat()).collect()
}

impl Trick {
    /// The frames that follow those that open an HTTP/2 connection.
    fn frames(self) -> Vec<u8> {
        let odd = (0..500_u32).map(|index| 2 * index + 1);
        let join = "/isthmus.v1.Enrolment/Join";
        match self {
            Self::Nothing => Vec::new(),
            Self::RapidReset => odd.flat_map(|stream| frames::cancelled(stream, join)).collect(),
            Self::Settings => (0..10_000).flat_map(|_| frames::frame(frames::SETTINGS, 0, 0, &[])).collect(),
            Self::Pings => (0..10_000).flat_map(|_| frames::frame(frames::PING, 0, 0, &[0; 8])).collect(),
            Self::EndlessHeaders => frames::endless_headers(200),
            Self::SlowHeaders => frames::endless_headers(0),
            Self::NoWindow => {
                [frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), frames::call(1, join)].concat()
            }
            Self::LargeCalls => odd
                .flat_map(|stream| {
                    let data = [&[0, 0, 4, 0, 0][..], &[0; 8000]].concat();
                    [frames::call(stream, join), frames::frame(frames::DATA, 0, stream, &data)].concat()
                })
                .collect(),
        }
    }
}
