//! Services whose program is replaced in place, under a connection that every byte of is
//! checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Stream, World, files, isthmus, write_program};

use crate::outlive::{cuts, expect_success, lasting};

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// Longest time of a service that the test has started, after which it is ended.
const SERVING: Duration = Duration::from_secs(600);
const NODES: [&str; 2] = ["n1.alpha", "n1.beta"];

/// A service with a program, a configuration and a log of its own.
struct Service {
    machine: &'static str,
    role: &'static str,
    directory: PathBuf,
    pid: String,
    _running: Job,
}

impl Service {
    /// Starts a service in place of the lab's own service.
    fn start(world: &World, machine: &'static str, role: &'static str) -> Result<Self> {
        let directory = world.directory.path().join(format!("{role}.{machine}"));
        fs::create_dir(&directory)?;
        world.stop(machine, role)?;
        let copied = world.sh(machine, SOON, &["cp", &World::config(role), &path(&directory, "config")])?;
        ensure!(copied.status == 0, "{}", copied.whole());
        let copied = world.sh(machine, SOON, &["cp", "-rT", &path(&files(), ""), &path(&directory, "")])?;
        ensure!(copied.status == 0, "{}", copied.whole());
        let command = format!(
            "exec {program} {role} --state /var/lib/isthmus/{role} --config {config} 2>{log}",
            program = path(&directory, "isthmus"),
            config = path(&directory, "config"),
            log = path(&directory, "log"),
        );
        let running = Job::start(world.command(machine, SERVING, &["sh", "-c", &command])?)?;
        World::eventually("it runs", SOON, || {
            Ok(fs::read_to_string(directory.join("log")).is_ok_and(|log| log.contains(" ready")))
        })?;
        let pid = world.service(machine, role)?;
        Ok(Self { machine, role, directory, pid, _running: running })
    }

    /// How many lines of the service's log have a text.
    fn logged(&self, text: &str) -> Result<usize> {
        let log = fs::read_to_string(self.directory.join("log"))?;
        Ok(log.lines().filter(|line| line.contains(text)).count())
    }

    /// Sends SIGHUP to the service, and waits for another line of its log with this text.
    fn hang_up(&self, world: &World, text: &str) -> Result<()> {
        let before = self.logged(text)?;
        world.kill(self.machine, "-HUP", &self.pid)?;
        World::eventually(text, SOON, || Ok(self.logged(text)? > before))
            .and_then(|()| world.service(self.machine, self.role))
            .and_then(|pid| {
                ensure!(pid == self.pid, "it is another process");
                Ok(())
            })
            .with_context(|| fs::read_to_string(self.directory.join("log")).unwrap_or_default())
    }

    /// Puts another program in place of the service's own, as `make install` does.
    fn install(&self, program: &[u8], mode: u32) -> Result<()> {
        let new = self.directory.join("new");
        write_program(&new, program, mode)?;
        Ok(fs::rename(new, self.directory.join("isthmus"))?)
    }

    /// Path of the program that the service's process runs.
    fn runs(&self, world: &World) -> Result<String> {
        let link = world.sh(self.machine, SOON, &["readlink", &format!("/proc/{}/exe", self.pid)])?;
        ensure!(link.status == 0, "{}", link.whole());
        Ok(link.stdout.trim().to_owned())
    }
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

/// Brings up two nodes that are joined over both gateways and a relay without encryption. Returns
/// them with the services that can be upgraded.
fn grid() -> Result<(World, [Service; 2])> {
    let world = World::up("upgrade")?;
    let services = [Service::start(&world, "hub", "relay")?, Service::start(&world, "fe.alpha", "gateway")?];
    World::eventually("the nodes are joined over both gateways", SOON, || {
        // The agents attach again.
        let Ok(plan) = world.plan(NODES[1], NODES[0]) else { return Ok(false) };
        let first = &plan["steps"][0];
        let raw = plan["ways"][0]["encryption"] == "none";
        Ok(raw && first["dial"] == "relay" && first["route"] == "two-gateway")
    })
    .with_context(|| format!("{:#}", world.plan(NODES[1], NODES[0]).unwrap_or_default()))?;
    Ok((world, services))
}

#[test]
fn a_connection_survives_upgrades_of_gateway_and_relay() -> Result<()> {
    let (world, services) = grid()?;
    let stream = Stream::start(&world, &NODES, &[])?;
    let program = fs::read(isthmus())?;
    for round in 0..5 {
        for service in &services {
            service.install(&program, 0o755)?;
            service.hang_up(&world, "upgraded in place")?;
            let (runs, path) = (service.runs(&world)?, path(&service.directory, "isthmus"));
            ensure!(runs == path, "{runs}, not {path}");
            stream.flows().with_context(|| format!("{} in round {round}", service.role))?;
        }
    }
    // The upgrades of each service follow without a pause, and both services upgrade at once.
    for _ in 0..3 {
        for service in &services {
            world.kill(service.machine, "-HUP", &service.pid)?;
        }
    }
    stream.flows()?;
    let bytes = stream.end()?;
    for service in &services {
        ensure!(world.service(service.machine, service.role)? == service.pid, "it is another process");
        eprintln!("{}: {} upgrades", service.role, service.logged("upgraded in place")?);
    }
    eprintln!("{bytes} bytes");
    // New connections are opened, too.
    World::eventually("the nodes are joined anew", SOON, || {
        Ok(world.all_to_all(&NODES).is_ok_and(|output| output.status == 0))
    })
}

#[test]
#[ignore = "test-all"]
fn a_program_that_cannot_take_over_changes_nothing() -> Result<()> {
    let (world, services) = grid()?;
    let stream = Stream::start(&world, &NODES, &[])?;
    let program = fs::read(isthmus())?;
    for service in &services {
        let runs = service.runs(&world)?;
        let refused = |text: &str| {
            service.hang_up(&world, text)?;
            ensure!(service.logged("not upgraded, and all goes on as before")? > 0, "{text}");
            let still = service.runs(&world)?;
            ensure!(still == runs || still == format!("{runs} (deleted)"), "{text}: {still}");
            stream.flows().with_context(|| text.to_owned())
        };
        service.install(&program, 0o644)?;
        refused("it can't be started: Permission denied")?;
        service.install(b"#!/bin/sh\necho no such library >&2\nexit 1\n", 0o755)?;
        refused("ended with exit status: 1 and said: no such library")?;
        service.install(b"#!/bin/sh\nexec sleep 100\n", 0o755)?;
        refused("it didn't answer within 10s")?;
        service.install(b"#!/bin/sh\necho isthmus upgrade 7-9\n", 0o755)?;
        refused("it understands hand-overs of version 7 to 9, and this program writes version 1")?;
        service.install(&program, 0o755)?;
        let config = service.directory.join("config");
        let good = fs::read(&config)?;
        fs::write(&config, format!("[{}]\nlistne = 1\n", service.role))?;
        refused("unknown field `listne`")?;
        // Repaired, it is upgraded.
        fs::write(&config, good)?;
        service.hang_up(&world, "upgraded in place")?;
        stream.flows()?;
    }
    stream.end().map(drop)
}

/// How many upgrades the lab's own services have logged.
fn upgrades(world: &World) -> Result<usize> {
    Ok(world.logs()?.lines().filter(|line| line.contains("upgraded in place")).count())
}

/// A relay splices ciphertext, so the agents' trunk doesn't notice that the relay is upgraded.
#[test]
#[ignore = "test-all"]
fn a_trunk_of_agents_does_not_notice_that_its_relay_is_upgraded() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    let before = cuts(&world)?;
    for host in ["hub", "spare"] {
        let done = upgrades(&world)?;
        world.kill(host, "-HUP", &world.service(host, "relay")?)?;
        World::eventually("the relay is upgraded", SOON, || Ok(upgrades(&world)? > done))?;
    }
    job.goes_on()?;
    expect_success(&world, job.end()?)?;
    ensure!(cuts(&world)? == before, "a trunk was cut\n{}", world.logs()?);
    Ok(())
}

/// Connections that a gateway encrypts itself end with its program, and the job learns of that.
#[test]
fn connections_over_a_trunk_of_gateways_end() -> Result<()> {
    let world = World::up("site-trunks")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    world.kill("fe.alpha", "-HUP", &world.service("fe.alpha", "gateway")?)?;
    World::eventually("the gateway is upgraded", SOON, || Ok(upgrades(&world)? == 1))?;
    let (status, printed) = job.ended()?;
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    // Whichever end tells it first.
    let cause = printed.lines().find(|line| line.trim_start().starts_with("cause: "));
    ensure!(cause.is_some_and(|cause| cause.contains("site trunk")), "{printed}");
    World::eventually("the next job works", SOON, || Ok(world.all_to_all(&NODES).is_ok()))
}

/// An agent that is to be upgraded waits for the end of its job.
#[test]
#[ignore = "test-all"]
fn an_agent_is_upgraded_between_jobs() -> Result<()> {
    let world = World::up("two-relays")?;
    let agent = Service::start(&world, "n1.alpha", "agent")?;
    World::eventually("the agent is attached", SOON, || Ok(world.plan("n1.alpha", "n1.beta").is_ok()))?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    agent.install(&fs::read(isthmus())?, 0o755)?;
    agent.hang_up(&world, "asked by SIGHUP to upgrade in place, between jobs")?;
    job.goes_on()?;
    let (status, printed) = job.end()?;
    ensure!(status == 0, "status {status}\n{printed}");
    World::eventually("it is upgraded", SOON, || Ok(agent.logged("upgraded in place")? > 0))?;
    ensure!(world.service("n1.alpha", "agent")? == agent.pid, "it is another process");
    let log = fs::read_to_string(agent.directory.join("log"))?;
    let at = |text: &str| log.find(text).with_context(|| format!("no {text:?} in\n{log}"));
    ensure!(at("job ended")? < at("upgraded in place")?, "{log}");
    // Without a job it goes at once, and the next job works.
    agent.install(b"#!/bin/sh\nexit 1\n", 0o755)?;
    agent.hang_up(&world, "not upgraded, and all goes on as before")?;
    agent.install(&fs::read(isthmus())?, 0o755)?;
    for _ in 0..2 {
        agent.hang_up(&world, "upgraded in place")?;
        let defunct = || {
            Ok(!world.sh("n1.alpha", SOON, &["ps", "-eo", "stat=,ppid=,args="])?.stdout.contains("defunct"))
        };
        World::eventually("no child is left behind", SOON, defunct)?;
    }
    World::eventually("the agent is attached again", SOON, || Ok(world.plan("n1.alpha", "n1.beta").is_ok()))?;
    world.all_to_all(&["n1.alpha", "n1.beta"]).map(drop)
}
