//! Strangers hold 10,000 connections of every bad kind on one port after the other.
//! Meanwhile a node joins, a certificate is renewed, and a job runs.

#[path = "../../../crates/net/tests/frames/mod.rs"]
mod frames;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus};
use isthmus_net::{Credentials, listen, renewal};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

const SOON: Duration = Duration::from_secs(30);
/// Connections on one port.
const FLOOD: usize = 10_000;
/// How long a stranger waits before it connects again.
const AGAIN: Duration = Duration::from_secs(2);
/// Each step takes less than 2 s on a machine with nothing else to do.
const LIMIT: Duration = Duration::from_secs(10);
/// Memory of each service, as docs/operators.md states it.
const MEMORY_MIB: u64 = 512;
const GATEWAY: &str = "192.168.1";

/// A stranger checks no certificate.
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

/// TLS of a client without a certificate.
fn anonymous() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// What all strangers share.
struct Flood {
    to: SocketAddr,
    tls: Arc<ClientConfig>,
    hello: Vec<u8>,
    stop: AtomicBool,
    /// Connections made so far, and those that stand.
    made: AtomicUsize,
    standing: AtomicUsize,
}

impl Flood {
    fn new(to: SocketAddr) -> Result<Self> {
        let tls = anonymous();
        let mut session = ClientConnection::new(tls.clone(), ServerName::try_from("broker")?)?;
        let mut hello = Vec::new();
        session.write_tls(&mut hello)?;
        let (stop, made, standing) = Default::default();
        Ok(Self { to, tls, hello, stop, made, standing })
    }

    /// Holds `count` connections, until the flood is stopped.
    fn hold(self: &Arc<Self>, count: usize) -> Result<()> {
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
        let mut stream = TcpStream::connect(self.to).await?;
        // Without a reset, the strangers' ports would be used up.
        stream.set_zero_linger()?;
        self.made.fetch_add(1, Relaxed);
        self.standing.fetch_add(1, Relaxed);
        let result = self.misuse(&mut stream, index).await;
        self.standing.fetch_sub(1, Relaxed);
        result
    }

    async fn misuse(&self, stream: &mut TcpStream, index: usize) -> Result<()> {
        match index % 20 {
            // Silence.
            0..5 => {}
            // Garbage: for a ticket it has the right length.
            5..10 => stream.write_all(&[0x5a; 64]).await?,
            // One byte per second, of a TLS record, a ticket, a preamble.
            10..15 => {
                let first = [&[22, 3, 1, 2, 0][..], b"ISTR", b"ISTH"][index % 3];
                for byte in first.iter().chain(&[0; 600]) {
                    stream.write_all(&[*byte]).await?;
                    sleep(Duration::from_secs(1)).await;
                }
            }
            // A handshake begun.
            15..17 => stream.write_all(&self.hello).await?,
            // A first message of the largest size, without its end.
            17..19 => stream.write_all(&large_hello()).await?,
            // A handshake without a certificate, and HTTP/2.
            _ => {
                let name = ServerName::try_from("broker")?;
                let mut tls = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
                tls.write_all(&frames::preface()).await?;
                tls.write_all(&trick(index / 20)).await?;
                tls.flush().await?;
                while tls.read(&mut [0; 4096]).await? > 0 {}
                return Ok(());
            }
        }
        while stream.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    }
}

/// The beginning of a ClientHello of 64,768 bytes: 48 KiB in three records.
fn large_hello() -> Vec<u8> {
    let mut message = vec![0; 3 << 14];
    message[..4].copy_from_slice(&[1, 0, 0xfd, 0]);
    message.chunks(1 << 14).flat_map(|part| [&[22, 3, 1, 0x40, 0][..], part].concat()).collect()
}

/// Frames after those that open an HTTP/2 connection.
fn trick(index: usize) -> Vec<u8> {
    let odd = (0..500_u32).map(|index| 2 * index + 1);
    let join = "/isthmus.v1.Enrolment/Join";
    match index % 6 {
        0 => Vec::new(),
        1 => odd.flat_map(|stream| frames::cancelled(stream, join)).collect(),
        2 => frames::endless_headers(200),
        3 => (0..10_000).flat_map(|_| frames::frame(frames::PING, 0, 0, &[0; 8])).collect(),
        // No window for the answer.
        4 => [frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), frames::call(1, join)].concat(),
        // Each call begins a message of 256 KiB.
        _ => odd
            .flat_map(|stream| {
                let data = [&[0, 0, 4, 0, 0][..], &[0; 8000]].concat();
                [frames::call(stream, join), frames::frame(frames::DATA, 0, stream, &data)].concat()
            })
            .collect(),
    }
}

/// How long the honest steps took: join, renewal, job.
fn honest(world: &World, number: usize) -> Result<[Duration; 3]> {
    let binary = isthmus().display().to_string();
    let path = |name: String| world.directory.path().join(name).display().to_string();
    let (token, state) = (path(format!("token-{number}")), path(format!("state-{number}")));
    let invite = ["grid", "invite", "--role", "agent", "--site", "alpha", "--owner", "anna", "--out", &token];
    let mut words = vec![binary.as_str()];
    words.extend(invite);
    words.extend(["--state", "/var/lib/isthmus/broker"]);
    let invited = world.sh("hub", SOON, &words)?;
    ensure!(invited.status == 0, "{}", invited.whole());

    let via = format!("{}:7710", world.lab().machine("fe.alpha")?.address());
    let name = format!("x{number}");
    let mut words = vec![binary.as_str(), "join", "--state", &state, "--name", &name];
    words.extend(["--via", &via, "--token", &token]);
    let joined = world.sh("n1.alpha", SOON, &words)?;
    ensure!(joined.status == 0, "{}", joined.whole());

    let began = Instant::now();
    let renewed = world.lab().machine("n1.alpha")?.in_network(|| -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Path::new(&state);
        let credentials = Credentials::load(state)?;
        runtime.block_on(renewal::renew(&credentials, state, &via))?;
        Ok(())
    })?;
    renewed?;
    let renewal = began.elapsed();

    let hello = Mpi::OpenMpi.program("hello");
    let launcher = Mpi::OpenMpi.launcher();
    let words = [launcher.as_str(), "-n", "2", "--map-by", "node", &hello];
    let output = world.run("n1.alpha", &["--quiet", "--nodes", "n1.alpha,n1.beta"], &words)?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    Ok([joined.took, renewal, output.took])
}

/// Memory of a service in MiB.
fn memory(world: &World, machine: &str, role: &str) -> Result<u64> {
    let pid = world.service(machine, role)?;
    let listed = world.sh(machine, SOON, &["ps", "-o", "rss=", "-p", &pid])?;
    Ok(listed.stdout.trim().parse::<u64>()? / 1024)
}

/// Runs the honest steps while strangers hold their connections.
fn under_flood(
    world: &World,
    strangers: &[&str],
    to: SocketAddr,
    number: usize,
) -> Result<([Duration; 3], usize)> {
    let flood = Arc::new(Flood::new(to)?);
    std::thread::scope(|scope| {
        for stranger in strangers {
            let (flood, count) = (flood.clone(), FLOOD.div_ceil(strangers.len()));
            scope.spawn(move || world.lab().machine(stranger)?.in_network(|| flood.hold(count))?);
        }
        let result =
            World::eventually("10,000 connections were made", SOON, || Ok(flood.made.load(Relaxed) >= FLOOD))
                .and_then(|()| honest(world, number));
        let standing = flood.standing.load(Relaxed);
        flood.stop.store(true, Relaxed);
        Ok((result?, standing))
    })
}

#[test]
fn strangers_keep_nobody_out() -> Result<()> {
    listen::raise_descriptor_limit();
    let world = World::up("flood")?;
    let at = |machine: &str| -> Result<_> { Ok(world.lab().machine(machine)?.address()) };
    let outside = world.lab().record().grid.sites[0].outside;
    let ports = [
        ("hub", "broker", SocketAddr::from((at("hub")?, 7700))),
        ("fe.alpha", "gateway", SocketAddr::from((at("fe.alpha")?, 7710))),
        ("fe.alpha", "gateway", SocketAddr::from((outside, 7740))),
        ("spare", "relay", SocketAddr::from((at("spare")?, 7720))),
        ("n1.alpha", "agent", SocketAddr::from((at("n1.alpha")?, 7730))),
    ];
    let mut report = Vec::new();
    let quiet = honest(&world, 0)?;
    report.push(format!("without a flood: join, renewal, job {quiet:.1?}"));
    for (number, (machine, role, to)) in ports.into_iter().enumerate() {
        let inside = to.ip().to_string().starts_with(GATEWAY);
        let strangers: &[&str] = if inside { &["s4.alpha", "s5.alpha"] } else { &["s1", "s2", "s3"] };
        let before = memory(&world, machine, role)?;
        let (took, standing) = under_flood(&world, strangers, to, number + 1)
            .map_err(|error| error.context(format!("{role} at {to} is flooded; {report:#?}")))?;
        let after = memory(&world, machine, role)?;
        report.push(format!(
            "{role} at {to}: join, renewal, job {took:.1?}; {standing} connections stand; {before} -> {after} MiB"
        ));
        ensure!(took.iter().all(|took| *took < LIMIT), "{report:#?}");
        ensure!(after < MEMORY_MIB, "{report:#?}");
    }
    // `cargo test -- --nocapture` shows it.
    println!("{report:#?}");
    Ok(())
}
