//! Texts of members that a terminal would obey: refused, or escaped.

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, World, isthmus, write_program};
use isthmus_identity::Credentials;
use isthmus_rpc::grpc;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_up};
use isthmus_wire::text;
use tokio_stream::StreamExt as _;

use super::{GRID, SOON, agent, gateway, inside, invite, isthmus_on, join, node, read, runtime, state};

/// A text with what a terminal obeys or hides: colours, the title, a line feed, a bidi override.
const EVIL: &str = "x\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1m\n\u{202e}y";

/// Whether a terminal shows all of the text as it is.
fn harmless(text: &str) -> bool {
    !text.chars().any(|character| character != '\n' && text::is_unsafe(character))
}

/// Attaches berta's node to its gateway with the message `up`. Returns the answer.
fn attach(world: &World, machine: &str, name: &str, up: proto::NodeUp) -> Result<String> {
    let credentials = Credentials::load(&inside(world, machine, &state(name))?)?;
    let via = gateway(world, machine)?;
    world.lab().machine(machine)?.in_network(|| {
        runtime()?.block_on(async {
            let channel = grpc::connect(&via, "gateway.beta", &credentials).await?;
            let first = proto::AttachUp { kind: Some(attach_up::Kind::NodeUp(up)) };
            let stream = tokio_stream::once(first).chain(tokio_stream::pending());
            let mut down = RegistryClient::new(channel).attach(stream).await?.into_inner();
            let answer = tokio::time::timeout(SOON, down.message()).await??;
            anyhow::Ok(format!("{answer:?}"))
        })
    })?
}

#[test]
fn no_text_of_a_member_commands_a_terminal() -> Result<()> {
    let world = GRID.take()?;
    // A host name. The kernel allows any.
    let script = format!(
        "import os, socket, sys; socket.sethostname({EVIL:?}[:20]); os.execv(sys.argv[1], sys.argv[1:])"
    );
    let script = script
        .replace("\\u{1b}", "\\x1b")
        .replace("\\u{7}", "\\x07")
        .replace("\\u{9b}", "\\x9b")
        .replace("\\u{202e}", "\\u202e");
    std::fs::write(world.directory.path().join("rename.py"), script)?;
    let before = format!("unshare --uts python3 {}", world.directory.path().join("rename.py").display());
    let _agent = agent(&world, "n1.beta", "evil", &before)?;
    let refused = "a node's host name has the control character or invisible character U+001B";
    World::eventually("the agent is refused", SOON, || {
        Ok(read(&world, "n1.beta", "/tmp/evil.log").is_ok_and(|log| log.contains(refused)))
    })?;
    ensure!(node(&world, "evil.beta")?.is_null(), "it is in the registry");
    // A version, and names.
    let token = invite(&world, "beta", &[])?;
    let joined = join(&world, "n1.beta", &token, "texts")?;
    ensure!(joined.status == 0, "{}", joined.whole());
    let up = proto::NodeUp { node: "texts".to_owned(), version: EVIL.to_owned(), ..Default::default() };
    let answer = attach(&world, "n1.beta", "texts", up)?;
    ensure!(answer.contains("owner, version or machine has the control character"), "{answer}");
    let up = proto::NodeUp { node: EVIL.to_owned(), version: "0".to_owned(), ..Default::default() };
    let answer = attach(&world, "n1.beta", "texts", up);
    ensure!(!format!("{answer:?}").contains("Welcome"), "{answer:?}");
    let channel = format!("{}:7700", world.lab().machine("hub")?.address());
    let authority = Credentials::load(&inside(&world, "n1.beta", &state("texts"))?)?;
    let request = proto::JoinRequest { name: EVIL.to_owned(), token: EVIL.to_owned(), ..Default::default() };
    let joining = world.lab().machine("spare")?.in_network(|| -> Result<String> {
        runtime()?.block_on(async {
            let channel = grpc::connect(&channel, "broker", &authority).await?;
            let answer = EnrolmentClient::new(channel).join(request).await;
            Ok(answer.map_or_else(|status| grpc::reason(&status), |_| "joined".to_owned()))
        })
    })??;
    ensure!(joining != "joined" && harmless(&joining), "{joining}");
    let log = read(&world, "n1.beta", "/tmp/evil.log")?;
    ensure!(harmless(&log), "{log:?}");
    check_logs(&world)
}

#[test]
fn no_name_of_a_program_commands_a_terminal() -> Result<()> {
    let world = GRID.take()?;
    let program = format!("/tmp/{EVIL}");
    let file = inside(&world, "n1.alpha", &program)?;
    write_program(&file, b"#!/bin/sh\nsleep 3600\n", 0o755)?;
    let binary = isthmus().display().to_string();
    let job =
        world.command("n1.alpha", SOON * 10, &[&binary, "run", "--nodes", "n1.alpha", "--", &program])?;
    let job = Job::start(job)?;
    let escaped = text::one_line(EVIL);
    World::eventually("the job is in status", SOON, || {
        Ok(isthmus_on(&world, "n1.alpha", &["status"])?.stdout.contains(&escaped))
    })?;
    for options in [&["status"][..], &["status", "-v"], &["status", "--json"]] {
        let shown = isthmus_on(&world, "n1.alpha", options)?;
        ensure!(shown.status == 0 && harmless(&shown.stdout), "{options:?}: {:?}", shown.stdout);
    }
    drop(job);
    let log = read(&world, "n1.alpha", "/var/lib/isthmus/agent/audit.log")?;
    ensure!(harmless(&log) && log.contains("u{1b}"), "{log:?}");
    let options = ["--nodes", "n1.alpha,n1.beta"];
    let launcher = ["mpirun.openmpi", "-n", "2", "--map-by", "node", &program];
    let missing = world.run("n1.alpha", &options, &launcher)?;
    ensure!(missing.status == 125 && harmless(&missing.stderr), "{:?}", missing.stderr);
    ensure!(
        missing.stderr.contains(&format!("{escaped} is missing, or not executable")),
        "{}",
        missing.whole()
    );
    let inner = [binary.as_str(), "exec", EVIL, "--", "true"];
    let exec = world.run("n1.alpha", &["--quiet", "--nodes", "n1.alpha"], &inner)?;
    ensure!(exec.status == 255 && exec.stderr.contains("is not a node of this job"), "{}", exec.whole());
    ensure!(harmless(&exec.stderr), "{:?}", exec.stderr);
    let inner = [binary.as_str(), "exec", "n1.beta", "--", EVIL];
    let exec = world.run("n1.alpha", &["--quiet", "--nodes", "n1.alpha,n1.beta"], &inner)?;
    ensure!(exec.status != 0, "{}", exec.whole());
    check_logs(&world)
}

/// Checks that the logs of the lab's services are harmless.
fn check_logs(world: &World) -> Result<()> {
    let all = world.logs()?;
    ensure!(all.contains("==> broker at hub <=="), "{all}");
    let bad: Vec<_> = all.lines().filter(|line| !harmless(line)).collect();
    ensure!(bad.is_empty(), "{bad:?}");
    Ok(())
}
