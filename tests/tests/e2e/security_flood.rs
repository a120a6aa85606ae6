//! Strangers hold 10,000 connections on one port after the other: of every bad kind at
//! once, and of each kind alone. Meanwhile a node joins, a certificate is renewed, and a
//! job runs.

#[path = "../../../crates/net/tests/frames/mod.rs"]
mod frames;
mod stranger;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus, promised};
use isthmus_net::{Credentials, listen, renewal};

use stranger::{FLOOD, Flood, Kind, Trick};

/// Guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// Within which each step is done under a flood. It takes less than 2 s on a machine with
/// nothing else to do.
const LIMIT: Duration = Duration::from_secs(10);
/// Memory of each service, as docs/operators.md states it.
const MEMORY_MIB: u64 = 512;
const GATEWAY: &str = "192.168.1";

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

/// The most memory that a service has had, in MiB.
fn memory(world: &World, machine: &str, role: &str) -> Result<u64> {
    let pid = world.service(machine, role)?;
    let status = world.sh(machine, SOON, &["cat", &format!("/proc/{pid}/status")])?;
    let most = status.stdout.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    Ok(most.with_context(|| status.whole())?.trim().parse::<u64>()? / 1024)
}

/// A port: the machine of its service, the service, and its address.
type Port<'a> = (&'a str, &'a str, SocketAddr);

fn ports(world: &World) -> Result<[Port<'static>; 5]> {
    let at = |machine: &str| -> Result<_> { Ok(world.lab().machine(machine)?.address()) };
    let outside = world.lab().record().grid.sites[0].outside;
    Ok([
        ("hub", "broker", SocketAddr::from((at("hub")?, 7700))),
        ("fe.alpha", "gateway", SocketAddr::from((at("fe.alpha")?, 7710))),
        ("fe.alpha", "gateway", SocketAddr::from((outside, 7740))),
        ("spare", "relay", SocketAddr::from((at("spare")?, 7720))),
        ("n1.alpha", "agent", SocketAddr::from((at("n1.alpha")?, 7730))),
    ])
}

/// Floods of one lab, with what was found.
struct Floods {
    world: World,
    number: usize,
    report: Vec<String>,
}

impl Floods {
    fn new() -> Result<Self> {
        listen::raise_descriptor_limit();
        let world = World::up_alone("flood")?;
        let quiet = honest(&world, 0)?;
        let report = vec![format!("without a flood: join, renewal, job {quiet:.1?}")];
        Ok(Self { world, number: 0, report })
    }

    /// Runs the honest steps while strangers hold their connections.
    fn one(&mut self, kind: Kind, (machine, role, to): Port<'_>) -> Result<()> {
        self.number += 1;
        let before = memory(&self.world, machine, role)?;
        let (took, standing, handshakes) = self
            .under(kind, to)
            .map_err(|error| error.context(format!("{kind:?} floods {role} at {to}; {:#?}", self.report)))?;
        let after = memory(&self.world, machine, role)?;
        self.report.push(format!(
            "{kind:?} at {role} {to}: join, renewal, job {took:.1?}; {standing} connections stand, \
             {handshakes} handshakes; at most {before} -> {after} MiB"
        ));
        ensure!(took.iter().all(|took| *took < promised(LIMIT)), "{:#?}", self.report);
        ensure!(after < MEMORY_MIB, "{:#?}", self.report);
        Ok(())
    }

    fn under(&self, kind: Kind, to: SocketAddr) -> Result<([Duration; 3], usize, usize)> {
        let inside = to.ip().to_string().starts_with(GATEWAY);
        let strangers: &[&str] = if inside { &["s4.alpha", "s5.alpha"] } else { &["s1", "s2", "s3"] };
        let (world, flood) = (&self.world, Arc::new(Flood::new(kind, to)?));
        std::thread::scope(|scope| {
            for stranger in strangers {
                let (flood, count) = (flood.clone(), FLOOD.div_ceil(strangers.len()));
                scope.spawn(move || world.lab().machine(stranger)?.in_network(|| flood.hold(count))?);
            }
            let (connections, handshakes) = kind.risen();
            let risen = || {
                let made = flood.made.load(Relaxed) >= connections;
                Ok(made && flood.handshakes.load(Relaxed) >= handshakes)
            };
            let result = World::eventually("the flood has risen", SOON, risen)
                .and_then(|()| honest(world, self.number));
            let (standing, handshakes) = (flood.standing.load(Relaxed), flood.handshakes.load(Relaxed));
            flood.stop.store(true, Relaxed);
            Ok((result?, standing, handshakes))
        })
    }
}

impl Drop for Floods {
    fn drop(&mut self) {
        // `cargo test -- --nocapture` shows it.
        println!("{:#?}", self.report);
    }
}

/// The kinds of the issue, each alone.
const ALONE: [Kind; 6] = [
    Kind::Silence,
    Kind::Garbage,
    Kind::SlowBytes,
    Kind::Http2(Trick::RapidReset),
    Kind::Http2(Trick::Settings),
    Kind::Http2(Trick::SlowHeaders),
];

#[test]
#[ignore = "test-all"]
fn strangers_keep_nobody_out() -> Result<()> {
    let mut floods = Floods::new()?;
    let ports = ports(&floods.world)?;
    for port in ports {
        floods.one(Kind::Mixture, port)?;
    }
    // Of HTTP/2, which only two of the ports speak with strangers, each alone.
    for kind in ALONE.into_iter().filter(|kind| matches!(kind, Kind::Http2(_))) {
        floods.one(kind, ports[0])?;
    }
    Ok(())
}

/// Takes two minutes or more.
#[test]
#[ignore = "test-all"]
fn each_kind_alone_keeps_nobody_out() -> Result<()> {
    let mut floods = Floods::new()?;
    for port in ports(&floods.world)? {
        // Relays and the gateway's port outside speak no TLS.
        let tls = !matches!(port.2.port(), 7720 | 7740);
        for kind in ALONE.into_iter().filter(|kind| tls || !matches!(kind, Kind::Http2(_))) {
            floods.one(kind, port)?;
        }
    }
    Ok(())
}
