//! Strangers hold 10,000 connections on one port after the other: of every bad kind at
//! once, and of each kind alone. And a member opens as many calls as it can, by a key of its
//! own. Meanwhile a node joins, a certificate is renewed, and a job runs.

#[path = "../../../crates/rpc/tests/frames/mod.rs"]
mod frames;
mod stranger;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus, promised};
use isthmus_identity::Credentials;
use isthmus_identity::credentials::ALPN_H2;
use isthmus_rpc::renewal;
use isthmus_service::listen;

use stranger::{FLOOD, Flood, Kind, Member, Trick};

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// Time within which each step is done under a flood. It takes less than 2 s on a machine with
/// nothing else to do.
const LIMIT: Duration = Duration::from_secs(10);
/// Most memory of each service in MiB, as docs/operators.md states it.
const MEMORY_MIB: u64 = 512;
const GATEWAY: &str = "192.168.1";
/// Number of a member's connections, each with 4,032 calls. They would take 2 GB of a broker
/// without bounds.
const MEMBERS: usize = 60;
/// Most memory in MiB that a member may cost a service. `GIVEN_BACK_MIB` may stay after it.
const MEMBER_MIB: u64 = 64;
const GIVEN_BACK_MIB: u64 = 32;

/// Has a node of alpha join. Returns its state directory and how long that took.
fn join(world: &World, name: &str, owner: &str) -> Result<(String, Duration)> {
    let binary = isthmus().display().to_string();
    let path = |kind: &str| world.directory.path().join(format!("{kind}-{name}")).display().to_string();
    let (token, state) = (path("token"), path("state"));
    let invite = ["grid", "invite", "--role", "agent", "--site", "alpha", "--owner", owner, "--out", &token];
    let mut words = vec![binary.as_str()];
    words.extend(invite);
    words.extend(["--state", "/var/lib/isthmus/broker"]);
    let invited = world.sh("hub", SOON, &words)?;
    ensure!(invited.status == 0, "{}", invited.whole());

    let via = via(world)?;
    let mut words = vec![binary.as_str(), "join", "--state", &state, "--name", name];
    words.extend(["--via", &via, "--token", &token]);
    let joined = world.sh("n1.alpha", SOON, &words)?;
    ensure!(joined.status == 0, "{}", joined.whole());
    Ok((state, joined.took))
}

/// The address at which alpha's nodes reach their gateway.
fn via(world: &World) -> Result<String> {
    Ok(format!("{}:7710", world.lab().machine("fe.alpha")?.address()))
}

/// Runs the honest steps. Returns how long each took: join, renewal, job.
fn honest(world: &World, number: usize) -> Result<[Duration; 3]> {
    let (state, join) = join(world, &format!("x{number}"), "anna")?;
    let via = via(world)?;
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
    Ok([join, renewal, output.took])
}

/// The most memory in MiB that a service has had so far.
fn memory(world: &World, machine: &str, role: &str) -> Result<u64> {
    memory_of(world, (machine, role), "VmHWM:")
}

/// The value in MiB of a line of a service's /proc/PID/status.
fn memory_of(world: &World, (machine, role): (&str, &str), line: &str) -> Result<u64> {
    let pid = world.service(machine, role)?;
    let status = world.sh(machine, SOON, &["cat", &format!("/proc/{pid}/status")])?;
    let found = status.stdout.lines().find_map(|text| text.strip_prefix(line)?.strip_suffix("kB"));
    Ok(found.with_context(|| status.whole())?.trim().parse::<u64>()? / 1024)
}

/// A port to flood: the machine of its service, the service's role, and its address.
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

/// The floods in a lab, with what was found.
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

    /// Runs the honest steps while strangers hold their connections to a port, and checks time and
    /// memory.
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
        let flood = Arc::new(Flood::new(kind, to)?);
        self.meanwhile(&flood, strangers, FLOOD, || honest(&self.world, self.number))
    }

    /// Calls `done` while these machines together hold so many connections. Also returns how many
    /// stood at its end, and how many handshakes were made.
    fn meanwhile<T>(
        &self,
        flood: &Arc<Flood>,
        machines: &[&str],
        connections: usize,
        done: impl FnOnce() -> Result<T>,
    ) -> Result<(T, usize, usize)> {
        let world = &self.world;
        std::thread::scope(|scope| {
            for machine in machines {
                let (flood, count) = (flood.clone(), connections.div_ceil(machines.len()));
                scope.spawn(move || world.lab().machine(machine)?.in_network(|| flood.hold(count))?);
            }
            let (connections, handshakes) = flood.risen();
            let risen = || {
                let made = flood.made.load(Relaxed) >= connections;
                Ok(made && flood.handshakes.load(Relaxed) >= handshakes)
            };
            let result = World::eventually("the flood has risen", SOON, risen).and_then(|()| done());
            let (standing, handshakes) = (flood.standing.load(Relaxed), flood.handshakes.load(Relaxed));
            flood.stop.store(true, Relaxed);
            Ok((result?, standing, handshakes))
        })
    }

    /// Runs the honest steps while a member on a machine opens all calls that it can at a port.
    fn by_member(
        &mut self,
        credentials: &Credentials,
        (machine, role, to): Port<'_>,
        (from, server, path): (&str, &str, &'static str),
    ) -> Result<()> {
        self.number += 1;
        let resident = |world| memory_of(world, (machine, role), "VmRSS:");
        let before = resident(&self.world)?;
        let config = credentials.client_config(&[ALPN_H2])?.config();
        let flood =
            Arc::new(Flood::of_member(Member { config, server: server.to_owned().try_into()?, path }, to)?);
        let both = || Ok((honest(&self.world, self.number)?, resident(&self.world)?));
        let ((took, during), standing, _) = self.meanwhile(&flood, &[from], MEMBERS, both)?;
        self.report.push(format!(
            "a member at {role} {to}: join, renewal, job {took:.1?}; {standing} connections stand; {before} -> \
             {during} MiB"
        ));
        ensure!(took.iter().all(|took| *took < promised(LIMIT)), "{:#?}", self.report);
        ensure!(during < before + MEMBER_MIB, "{:#?}", self.report);
        World::eventually("memory is given back", SOON, || {
            Ok(resident(&self.world)? < before + GIVEN_BACK_MIB)
        })
    }
}

impl Drop for Floods {
    fn drop(&mut self) {
        // `cargo test -- --nocapture` shows it.
        println!("{:#?}", self.report);
    }
}

/// The kinds of floods that are tested alone.
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
    // Only two of the ports speak HTTP/2 with strangers. Each kind of HTTP/2 flood comes alone.
    for kind in ALONE.into_iter().filter(|kind| matches!(kind, Kind::Http2(_))) {
        floods.one(kind, ports[0])?;
    }
    Ok(())
}

/// The test takes two minutes or more.
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

/// An agent of another owner makes calls that send headers and no message.
#[test]
#[ignore = "test-all"]
fn a_member_takes_no_more_than_its_share() -> Result<()> {
    let mut floods = Floods::new()?;
    let (state, _) = join(&floods.world, "greedy", "berta")?;
    let credentials = Credentials::load(Path::new(&state))?;
    let [broker, gateway, _, _, agent] = ports(&floods.world)?;
    for (port, from, server, path) in [
        (broker, "s1", "broker", "/isthmus.v1.Enrolment/Renew"),
        (gateway, "s4.alpha", "gateway.alpha", "/isthmus.v1.Registry/Lookup"),
        (agent, "s4.alpha", "n1.alpha", "/isthmus.v1.Peer/End"),
    ] {
        floods.by_member(&credentials, port, (from, server, path))?;
    }
    Ok(())
}
