//! Both ends of trunks, each a process, with the parts that agents use: TLS between
//! identities, the carrying worker threads, and what keeps a trunk.
//!
//! program – loopback – near end – carriers – far end – loopback – program. The near end
//! has a port for each kind of carrying. The far end connects to the one program there.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use isthmus_carry::Uncounted;
use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::accept::hello;
use isthmus_carry::trunk::{Bbr, By, Dialed, Embedding, First, Kept, Stream, Undialed, config, keep};
use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::secured::{ClientTls, Secured};
use isthmus_identity::{Authority, Credentials, Identity, Role as Party};
use isthmus_trunk::{Config, Congestion, Role, TrunkId};
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// The port at which the far end takes carriers.
pub(super) const CARRIERS_PORT: u16 = 7201;
/// The port at which the far end takes connections that each have TLS of their own.
const SEALED_PORT: u16 = 7202;
/// Congestion control of sockets for which a trunk sets none, whatever the system's default is.
const DEFAULT: &[u8] = b"cubic";
/// The first bytes that the near end sends on a stream, as agents do.
const INTRODUCTION: [u8; 4] = *b"open";
/// Most bytes that are copied at once between a program and its TLS connection.
const COPIED_BYTES: usize = 64 << 10;
/// Longest wait for a connection, a handshake or a stream.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the near end carries connections, depending on the port that they come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrying {
    /// Over a trunk whose carriers use BBR.
    TrunkBbr,
    /// Over a trunk whose carriers use CUBIC.
    TrunkPlain,
    /// Over a TLS connection of their own.
    Sealed,
}

impl Carrying {
    pub(super) const ALL: [Self; 3] = [Self::TrunkBbr, Self::TrunkPlain, Self::Sealed];

    /// The name for the near end's arguments.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TrunkBbr => "trunk-bbr",
            Self::TrunkPlain => "trunk-plain",
            Self::Sealed => "sealed",
        }
    }

    /// The port at which the near end takes connections to be carried so.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::TrunkBbr => 7101,
            Self::TrunkPlain => 7102,
            Self::Sealed => 7103,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum UnderTest {
    /// The end that programs connect to.
    Near(Near),
    /// The end that connects to the program.
    Far(Far),
}

#[derive(Debug, Args)]
pub(crate) struct Near {
    /// Directory of the end's credentials.
    #[arg(long)]
    state: PathBuf,
    /// The address of the far end.
    #[arg(long)]
    peer: Ipv4Addr,
    /// How connections are carried, by [`Carrying::name`].
    #[arg(long)]
    carry: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Far {
    /// Directory of the end's credentials.
    #[arg(long)]
    state: PathBuf,
    /// The address of the program that is connected to.
    #[arg(long)]
    program: SocketAddr,
}

/// Names of the near and the far end, which are agents of the same user.
pub(super) const NAMES: [&str; 2] = ["near", "far"];
const SITE: &str = "bench";

/// Writes the credentials of both ends. Returns their directories.
///
/// # Errors
/// Credentials can't be made or written.
pub(super) fn credentials(directory: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let authority = Authority::create("bench", SystemTime::now())?;
    let mut states = [PathBuf::new(), PathBuf::new()];
    for (name, state) in NAMES.iter().zip(&mut states) {
        let identity =
            Identity::new(Party::Agent, Some(SITE.parse()?), Some(name.parse()?), Some("bench".parse()?))?;
        let request = SigningRequest::new()?;
        let certificate = authority.sign(&identity, request.public_key(), SystemTime::now())?;
        *state = directory.join(name);
        Credentials::new(&request, &certificate, authority.certificate_pem(), "127.0.0.1:1")?.save(state)?;
    }
    Ok(states)
}

/// Runs an end until it is killed.
///
/// # Errors
/// The end can't be started.
pub(crate) fn run(end: UnderTest) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match end {
            UnderTest::Near(options) => near(options).await,
            UnderTest::Far(options) => far(options).await,
        }
    })
}

fn plane() -> anyhow::Result<Arc<Plane>> {
    let workers = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Ok(Arc::new(Plane::start(workers)?.0))
}

async fn near(options: Near) -> anyhow::Result<()> {
    let tls = Credentials::load(&options.state)?.client_config(&[])?;
    let dialer = Arc::new(Dialer { tls, peer: options.peer });
    let plane = plane()?;
    let mut ports = tokio::task::JoinSet::new();
    for carrying in
        Carrying::ALL.into_iter().filter(|one| options.carry.iter().any(|name| name == one.name()))
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, carrying.port())).await?;
        let trunk = match carrying {
            Carrying::TrunkBbr => Some(trunk(&dialer, &plane, Congestion::Bbr).await?),
            Carrying::TrunkPlain => Some(trunk(&dialer, &plane, Congestion::Other).await?),
            Carrying::Sealed => None,
        };
        let dialer = dialer.clone();
        ports.spawn(async move {
            loop {
                let Ok((program, _)) = listener.accept().await else { break };
                let taken = carry(dialer.clone(), trunk.clone(), program);
                tokio::spawn(async move {
                    if let Err(error) = taken.await {
                        eprintln!("a connection is dropped: {error:#}");
                    }
                });
            }
        });
    }
    ports.join_next().await;
    anyhow::bail!("no longer listening")
}

/// Carries a program's connection, over `trunk` or, without a trunk, over a TLS connection of its
/// own.
async fn carry(dialer: Arc<Dialer>, trunk: Option<Arc<Kept>>, mut program: TcpStream) -> anyhow::Result<()> {
    let Some(trunk) = trunk else {
        return join(dialer.connect(SEALED_PORT).await?, &mut program).await;
    };
    let stream = timeout(PATIENCE, trunk.trunk.open()).await??;
    stream.send(&INTRODUCTION);
    stream.attach(program.into_std()?, Arc::new(Uncounted))?;
    Ok(())
}

/// Carries a program's bytes over a TLS connection of their own until both directions have ended.
async fn join(mut tls: Secured, program: &mut TcpStream) -> anyhow::Result<()> {
    program.set_nodelay(true)?;
    tokio::io::copy_bidirectional_with_sizes(program, &mut tls, COPIED_BYTES, COPIED_BYTES).await?;
    Ok(())
}

/// Makes a trunk, and spawns the task that keeps it up.
async fn trunk(dialer: &Arc<Dialer>, plane: &Plane, congestion: Congestion) -> anyhow::Result<Arc<Kept>> {
    let id = TrunkId([if congestion == Congestion::Bbr { 1 } else { 2 }; 16]);
    let ours = Config { congestion, ..config(Role::Initiator, id, &[], Bbr::Auto) };
    ensure!(
        congestion == Congestion::Other
            || config(Role::Initiator, id, &[], Bbr::Auto).congestion == Congestion::Bbr,
        "the kernel has no BBR for this process"
    );
    let tls = dialer.connect(CARRIERS_PORT).await?;
    let peer = tls.identity().cloned().context("the far end has no certificate")?;
    let (trunk, notices) = plane.trunk(ours)?;
    let kept = Arc::new(Kept::new((id, true), trunk, peer));
    let (carrier, _) = kept.join(tls, Vec::new()).await.map_err(anyhow::Error::msg)?;
    let first = First { id: carrier, dialed: Some(((), None)) };
    tokio::spawn(keep(dialer.clone(), kept.clone(), notices, (first, None)));
    Ok(kept)
}

/// Dials TLS connections to the far end.
struct Dialer {
    tls: ClientTls,
    peer: Ipv4Addr,
}

impl Dialer {
    async fn connect(&self, port: u16) -> anyhow::Result<Secured> {
        let connecting = async {
            let socket = TcpSocket::new_v4()?;
            SockRef::from(&socket).set_tcp_congestion(DEFAULT)?;
            let tcp = socket.connect((self.peer, port).into()).await?;
            tcp.set_nodelay(true)?;
            let name = ServerName::try_from(format!("{}.{SITE}", NAMES[1]))?;
            anyhow::Ok(self.tls.connect(name, tcp).await?)
        };
        timeout(PATIENCE, connecting).await?.with_context(|| format!("cannot dial {}:{port}", self.peer))
    }
}

impl Embedding for Dialer {
    type CarrierWay = ();

    fn peer(&self) -> String {
        self.peer.to_string()
    }

    fn dials(&self) -> bool {
        true
    }

    async fn dial(self: Arc<Self>, _: By) -> Result<Dialed<()>, Undialed> {
        let dialed = self.connect(CARRIERS_PORT).await;
        let dialed = dialed.map(|tls| Dialed { tls, way: (), segment: None });
        dialed.map_err(|error| Undialed::Failed(format!("{error:#}")))
    }

    fn opened(&self, stream: Stream) {
        drop(stream);
    }

    fn ended(&self) {
        eprintln!("a trunk has ended");
    }
}

async fn far(options: Far) -> anyhow::Result<()> {
    let tls = Credentials::load(&options.state)?.server_config(&[])?;
    let plane = plane()?;
    let carriers = TcpListener::bind((Ipv4Addr::UNSPECIFIED, CARRIERS_PORT)).await?;
    let sealed = TcpListener::bind((Ipv4Addr::UNSPECIFIED, SEALED_PORT)).await?;
    let acceptor =
        Arc::new(Acceptor { plane, program: options.program, trunks: std::sync::Mutex::default() });
    loop {
        let (tcp, is_carrier) = tokio::select! {
            accepted = carriers.accept() => (accepted?.0, true),
            accepted = sealed.accept() => (accepted?.0, false),
        };
        tcp.set_nodelay(true)?;
        let (acceptor, tls) = (acceptor.clone(), tls.clone());
        tokio::spawn(async move {
            let taking = async {
                let secured = timeout(PATIENCE, tls.accept(tcp)).await??;
                if is_carrier { acceptor.carrier(secured).await } else { acceptor.sealed(secured).await }
            };
            if let Err(error) = taking.await {
                eprintln!("a connection is refused: {error:#}");
            }
        });
    }
}

/// Takes carriers and streams at the far end.
struct Acceptor {
    plane: Arc<Plane>,
    program: SocketAddr,
    trunks: std::sync::Mutex<Vec<Arc<Kept>>>,
}

impl Acceptor {
    async fn carrier(self: Arc<Self>, mut tls: Secured) -> anyhow::Result<()> {
        let (hello, first) = hello(&mut tls).await?;
        let known = isthmus_service::lock(&self.trunks).iter().find(|kept| kept.id == hello.trunk).cloned();
        if let Some(kept) = known {
            kept.join(tls, first).await.map_err(anyhow::Error::msg)?;
            return Ok(());
        }
        let peer = tls.identity().cloned().context("the near end has no certificate")?;
        let ours =
            Config { congestion: hello.congestion, ..config(Role::Acceptor, hello.trunk, &[], Bbr::Auto) };
        let (trunk, notices) = self.plane.trunk(ours)?;
        let kept = Arc::new(Kept::new((hello.trunk, false), trunk, peer));
        isthmus_service::lock(&self.trunks).push(kept.clone());
        let (id, _) = kept.join(tls, first).await.map_err(anyhow::Error::msg)?;
        tokio::spawn(keep(self, kept, notices, (First { id, dialed: None }, None)));
        Ok(())
    }

    async fn sealed(&self, tls: Secured) -> anyhow::Result<()> {
        join(tls, &mut self.connect().await?).await
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let connected = timeout(PATIENCE, TcpStream::connect(self.program)).await?;
        connected.with_context(|| format!("no program at {}", self.program))
    }
}

impl Embedding for Acceptor {
    type CarrierWay = ();

    fn peer(&self) -> String {
        NAMES[0].to_owned()
    }

    fn dials(&self) -> bool {
        false
    }

    async fn dial(self: Arc<Self>, _: By) -> Result<Dialed<()>, Undialed> {
        Err(Undialed::Failed("the near end dials".to_owned()))
    }

    fn opened(&self, mut stream: Stream) {
        let (program, plane) = (self.program, self.plane.clone());
        tokio::spawn(async move {
            let attaching = async {
                stream.receive::<{ INTRODUCTION.len() }>().await?;
                let program = TcpStream::connect(program).await?.into_std()?;
                stream.attach(program, Arc::new(Uncounted))
            };
            if let Err(error) = attaching.await {
                eprintln!("a stream is dropped: {error}");
            }
            drop(plane);
        });
    }

    fn ended(&self) {
        eprintln!("a trunk has ended");
    }
}
