//! Tokens of pilots: nobody else can read one, and who has one all the same gets nothing by it.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_e2e::{Output, Printing, World, isthmus, promised};
use isthmus_rpc::grpc;
use isthmus_wire::proto::SchedulerRequest;
use isthmus_wire::proto::local_client::LocalClient;
use serde_json::Value;

use super::logins::{Agent, Logins};
use crate::clusters::{self, GONE, GRID, LOOK, Pilot, VIA, sh};
use crate::security_members::{inside, runtime};

/// How the text of every pilot's token begins.
pub(super) const TOKEN: &str = "isthmus-pilot-";
/// Id of another user of a node: nobody.
const OTHER: &str = "65534";
/// What any user can ask for of all processes; of those of others not all is told.
pub(super) const PROCESSES: &str = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ";

/// A run over a node of alpha, which lasts, and its pilot.
struct Running<'a> {
    world: &'a World,
    run: Printing,
    pilot: Pilot,
    /// The file with the pilot's secret.
    secret: PathBuf,
}

impl<'a> Running<'a> {
    fn start(world: &'a World, logins: &Logins<'_>) -> Result<Self> {
        let run = logins.printing("alpha=1", &["sleep", "600"])?;
        run.prints("of Slurm at alpha: n")?;
        let pilot = clusters::pilot(world, "alpha", "RUNNING")?;
        let secret =
            logins.agent("alpha")?.state().join("pilots/slurm").join(format!("{}.secret", pilot.name));
        Ok(Self { world, run, pilot, secret })
    }

    /// The pilot's node, by its name in the lab.
    fn node(&self) -> String {
        format!("{}.alpha", self.pilot.nodes)
    }

    /// Copies the token to a file that all machines see.
    fn steal(&self) -> Result<String> {
        let order: Value = serde_json::from_str(&fs::read_to_string(&self.secret)?)?;
        let token = order["token"].as_str().context("no token")?;
        ensure!(token.starts_with(TOKEN), "it is another token");
        let file = self.world.directory.path().join("stolen.token");
        fs::write(&file, token)?;
        Ok(file.display().to_string())
    }

    fn end(self) -> Result<()> {
        self.world.kill("n1.alpha", "-TERM", &self.world.service("n1.alpha", "run")?)?;
        let (status, text) = self.run.ended()?;
        ensure!(status == 143, "status {status}\n{text}");
        Ok(())
    }
}

#[test]
fn nobody_else_reads_a_pilot_s_token() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let running = Running::start(&world, &logins)?;
    let mode = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    let directory = running.secret.parent().context("no directory")?;
    let modes = (mode(&running.secret)?, mode(directory)?);
    ensure!(modes == (0o600, 0o700), "{:o} in {:o}", modes.0, modes.1);

    let (node, id, path) = (running.node(), &running.pilot.id, running.secret.display().to_string());
    let script = sh(&world, "n1.alpha", &["scontrol", "write", "batch_script", id, "-"])?.stdout;
    let described = sh(&world, "n1.alpha", &["scontrol", "--details", "show", "job", id])?.stdout;
    // Processes end meanwhile, so that these commands may fail.
    let here = world.sh("n1.alpha", LOOK, &["sh", "-c", PROCESSES])?.stdout;
    let there = world.sh(&node, LOOK, &["sh", "-c", PROCESSES])?.stdout;
    let other = |script: &str| {
        let words = ["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups", "sh", "-c", script];
        world.sh(&node, LOOK, &words)
    };
    let by_other = other(PROCESSES)?.stdout;
    for (what, text, has) in [
        ("the script", &script, path.as_str()),
        ("the job", &described, "isthmus-"),
        ("the login node's processes", &here, "isthmus"),
        ("the node's processes", &there, "ISTHMUS_PILOT_SECRET="),
        ("the node's processes as others see them", &by_other, "isthmus"),
    ] {
        ensure!(text.contains(has), "{has:?} is not in {what}: {text}");
        ensure!(!text.contains(TOKEN), "a token is in {what}: {text}");
    }
    let read = other(&format!("cat {path}"))?;
    ensure!(read.status != 0 && read.stdout.is_empty(), "{}", read.whole());
    ensure!(read.stderr.contains("Permission denied"), "{}", read.whole());
    running.end()?;
    logins.nothing_left(promised(GONE))
}

#[test]
fn a_stolen_token_admits_nobody() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let running = Running::start(&world, &logins)?;
    let (token, node) = (running.steal()?, running.node());
    let join = |name: &str| -> Result<Output> {
        let (binary, state) = (isthmus().display().to_string(), format!("/tmp/{name}"));
        let words = [&binary, "join", "--state", &state, "--name", name, "--via", VIA, "--token", &token];
        world.sh(&node, LOOK, &words)
    };
    let refused = |output: &Output, why: &str| -> Result<()> {
        ensure!(output.status == 1 && output.stderr.contains(why), "{why:?}: {}", output.whole());
        Ok(())
    };
    let many = "the join token is good for 1 node, and as many have joined by it";
    refused(&join("thief")?, many)?;
    running.end()?;
    logins.nothing_left(promised(GONE))?;
    refused(&join("late")?, "the pilot has ended that the join token is for")
}

/// Another owner's agent gets no pilots of this one, neither by asking nor by a token.
#[test]
fn another_owner_gets_no_pilots() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let berta = Agent::start(&world, "alpha", ("berta", "berta"), &["--nodes", "1"], "")?;
    let (binary, socket) = (isthmus().display().to_string(), berta.socket());
    let words = [&binary, "run", "--socket", &socket, "--pilots", "alpha=1", "--", "true"];
    let asked = world.sh("n1.alpha", LOOK, &words)?;
    let none = "no agent of yours submits batch jobs at alpha";
    ensure!(asked.status == 125 && asked.stderr.contains(none), "{}", asked.whole());
    let reason = scheduler(&world, &socket, "login.alpha")?;
    ensure!(reason.contains("works for user berta"), "{reason}");

    let running = Running::start(&world, &logins)?;
    let (token, state) = (running.steal()?, berta.state().display().to_string());
    let joined = world.sh("n1.alpha", LOOK, &[&binary, "up", "--state", &state, "--token", &token])?;
    let whose = "the token is for another member";
    ensure!(joined.status == 1 && joined.stderr.contains(whose), "{}", joined.whole());
    running.end()?;
    logins.nothing_left(promised(GONE))
}

/// Asks for the scheduler of a node's agent by the agent at a socket of n1.alpha, as no `isthmus run`
/// would. Returns why it isn't told.
fn scheduler(world: &World, socket: &str, name: &str) -> Result<String> {
    let status = world.status("n1.alpha")?;
    let nodes = status["nodes"].as_array().context("no nodes")?;
    let node = nodes.iter().find(|node| node["name"] == name).with_context(|| format!("no {name}"))?;
    let address: Ipv4Addr = node["virtual_address"].as_str().context("no address")?.parse()?;
    let request = SchedulerRequest { node: name.to_owned(), virtual_address: address.into(), estimate: None };
    let socket = inside(world, "n1.alpha", socket)?;
    runtime()?.block_on(async {
        let channel = grpc::channel_within(tokio::net::UnixStream::connect(socket).await?).await?;
        let mut agent = LocalClient::new(channel);
        match tokio::time::timeout(LOOK, agent.scheduler(request)).await? {
            Err(status) => Ok(grpc::reason(&status)),
            Ok(reply) => bail!("it is told: {:?}", reply.into_inner()),
        }
    })
}
