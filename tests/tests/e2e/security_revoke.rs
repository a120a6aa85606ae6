//! A member's key was stolen: an administrator revokes it. Within seconds every service
//! refuses it, and the job that runs on its node ends.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Output, World, isthmus, root};
use serde_json::Value;

/// Time within which a revocation is in effect everywhere. It takes a second or so. Like `SOON`, it
/// guards against hanging only.
const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(90);

const ADMIN: &str = "/var/lib/isthmus/broker/admin";
const AGENT: &str = "/var/lib/isthmus/agent";
/// Path of a copy of the agent's state, which a thief has.
const STOLEN: &str = "/var/lib/isthmus/stolen";

/// Runs a shell script on a machine, which must succeed.
fn sh(world: &World, machine: &str, script: &str) -> Result<Output> {
    let output = world.sh(machine, SOON, &["sh", "-c", script])?;
    ensure!(output.status == 0, "{script}: {}", output.whole());
    Ok(output)
}

/// Runs `isthmus grid …` as the administrator.
fn grid(world: &World, words: &str) -> Result<String> {
    let script = format!("{} grid {words} --state {ADMIN}", isthmus().display());
    Ok(sh(world, "hub", &script)?.stdout)
}

fn members(world: &World) -> Result<Vec<Value>> {
    let members: Value = serde_json::from_str(&grid(world, "list --json")?)?;
    Ok(members.as_array().context("no list")?.clone())
}

fn member(world: &World, name: &str) -> Result<Value> {
    let members = members(world)?;
    members.into_iter().find(|member| member["name"] == name).with_context(|| format!("no member {name}"))
}

fn is_up(world: &World, from: &str, name: &str) -> Result<bool> {
    let status = world.status(from)?;
    let nodes = status["nodes"].as_array().context("no nodes")?;
    let is_up = nodes.iter().any(|node| node["name"] == name && node["up"] == true);
    // A gateway would answer in place of a broker that is away.
    Ok(is_up && status["without_broker"].is_null())
}

/// The text of a service's log.
fn log(world: &World, service: &str) -> Result<String> {
    let logs = world.logs()?;
    let own = logs.split("==> ").find_map(|log| log.strip_prefix(&format!("{service} <==")));
    Ok(own.with_context(|| format!("no log of {service} in {logs}"))?.to_owned())
}

/// What a service answers to the certificate of a state directory.
fn shown(world: &World, state: &str, (from, to, port): (&str, &str, u16)) -> Result<String> {
    let program = root().join("tests/programs/handshake.py").display().to_string();
    let host = world.lab().machine(to)?.address().to_string();
    let output = world.sh(from, SOON, &["python3", &program, state, &host, &port.to_string()])?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(output.stdout.trim().to_owned())
}

/// Every service that n1.beta can reach, each with the machine that asks, its own machine and its
/// port.
const SERVICES: [(&str, &str, u16); 3] =
    [("n1.beta", "hub", 7700), ("n1.beta", "n2.beta", 7710), ("n1.beta", "n2.beta", 7730)];

/// Waits until every service refuses a stolen certificate, and every node has the list.
fn refused_everywhere(world: &World, since: Instant) -> Result<()> {
    for service in SERVICES {
        let mut answer = String::new();
        let refused = World::eventually("the service refuses it", MINUTE, || {
            answer = shown(world, STOLEN, service)?;
            Ok(answer.to_lowercase().contains("certificate revoked"))
        });
        refused.with_context(|| format!("{service:?}: {answer}"))?;
        eprintln!("{}:{} refuses after {:.1} s", service.1, service.2, since.elapsed().as_secs_f64());
    }
    for (node, role) in [("n1.alpha", "gateway"), ("n1.alpha", "agent"), ("n2.beta", "agent")] {
        World::eventually("the list has reached it", MINUTE, || {
            let list = world.sh(node, SOON, &["cat", &format!("/var/lib/isthmus/{role}/revoked.json")])?;
            Ok(list.stdout.contains("isthmus:///agent/beta/n1/"))
        })?;
        eprintln!("{role} at {node} refuses after {:.1} s", since.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Ends a service, and starts it again.
fn restart(world: &World, machine: &str, role: &str) -> Result<Job> {
    world.stop(machine, role)?;
    world.serve(machine, role, &[], &World::config(role))
}

/// Starts a job, and waits until its ranks run on both nodes.
fn endless(world: &World) -> Result<Job> {
    let job = world.endless(Mpi::OpenMpi, "n1.alpha,n1.beta", &[])?;
    for node in ["n1.alpha", "n1.beta"] {
        World::eventually("all ranks run", SOON, || Ok(world.processes(node, "/die")?.len() == 2))?;
    }
    Ok(job)
}

/// Revokes n1.beta while a job runs on it. Checks that the job ends, and returns when the
/// revocation began.
fn revoke_during_a_job(world: &World) -> Result<Instant> {
    let job = endless(world)?;
    let since = Instant::now();
    grid(world, "revoke n1.beta")?;
    let took = world.gone(&["n1.alpha", "n1.beta"], since, MINUTE);
    let (status, printed) = job.end()?;
    let took = took.with_context(|| printed.clone())?;
    eprintln!("the job is gone after {:.1} s", took.as_secs_f64());
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    let reason = "lost node n1.beta: the certificates of agent n1.beta issued until ";
    ensure!(printed.contains(reason), "no {reason:?} in\n{printed}");
    Ok(since)
}

fn run(world: &World, nodes: &str, try_for: &str) -> Result<(Output, Option<Value>)> {
    let hello = Mpi::OpenMpi.program("hello");
    let report = world.directory.path().join("report.json");
    let _ = std::fs::remove_file(&report);
    let options = ["--try-for", try_for, "--nodes", nodes, "--report", &report.display().to_string()];
    let output = world.run("n1.alpha", &options, &["mpirun.openmpi", "-n", "4", &hello])?;
    let report = std::fs::read_to_string(&report).ok();
    Ok((output, report.map(|text| serde_json::from_str(&text)).transpose()?))
}

fn refused(world: &World, nodes: &str) -> Result<()> {
    let (output, _) = run(world, nodes, "0")?;
    ensure!(output.status == 125 && output.stderr.contains("n1.beta"), "{}", output.whole());
    Ok(())
}

fn works(world: &World, nodes: &str) -> Result<Option<Value>> {
    let (output, report) = run(world, nodes, "30s")?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    Ok(report)
}

/// Makes a token for n1.beta. Returns its file.
fn invite(world: &World, owner: &str) -> Result<String> {
    let file = world.directory.path().join(format!("{owner}.token")).display().to_string();
    let script = format!(
        "{} grid invite --role agent --site beta --name n1 --owner {owner} --out {file} \
         --state /var/lib/isthmus/broker",
        isthmus().display()
    );
    sh(world, "hub", &script)?;
    Ok(file)
}

fn join(world: &World, token: &str, state: &str) -> Result<Output> {
    let (binary, via) = (isthmus().display().to_string(), world.lab().machine("n2.beta")?.address());
    let via = format!("{via}:7710");
    let words = [&binary, "join", "--force", "--state", state, "--via", &via, "--token", token];
    world.sh("n1.beta", SOON, &words)
}

/// Waits until the broker's audit log has a line with all of these parts.
fn audited(world: &World, parts: &[&str]) -> Result<()> {
    let mut log = String::new();
    World::eventually("the audit log has the line", SOON, || {
        log = sh(world, "hub", "cat /var/lib/isthmus/broker/audit.log")?.stdout;
        Ok(log.lines().any(|line| parts.iter().all(|part| line.contains(part))))
    })
    .with_context(|| format!("no line with {parts:?} in\n{log}"))
}

#[test]
#[ignore = "test-all"]
fn a_stolen_key_is_revoked_and_the_node_joins_anew() -> Result<()> {
    let world = World::up("two-relays")?;
    let text = grid(&world, "list")?;
    ensure!(text.lines().any(|line| line.starts_with("  n1.beta  ") && line.contains(" member ")), "{text}");
    let names: Vec<_> = members(&world)?.iter().map(|member| member["name"].to_string()).collect();
    let all = ["admin", "gateway.alpha", "gateway.beta", "hub.relay", "n1.alpha", "n1.beta", "n2.beta"];
    ensure!(all.iter().all(|name| names.contains(&format!("{name:?}"))), "{names:?}");
    let owner = member(&world, "n1.beta")?["owner"].as_str().context("no owner")?.to_owned();
    sh(&world, "n1.beta", &format!("cp -a {AGENT} {STOLEN}"))?;
    for service in SERVICES {
        let answer = shown(&world, STOLEN, service)?;
        ensure!(answer == "accepted", "{service:?}: {answer}");
    }

    let since = revoke_during_a_job(&world)?;
    refused_everywhere(&world, since)?;
    ensure!(member(&world, "n1.beta")?["revoked"].is_u64());
    ensure!(!is_up(&world, "n1.alpha", "n1.beta")?, "it is up");
    refused(&world, "n1.alpha,n1.beta")?;
    said_to_the_node_s_user(&world)?;

    // What was started since has read the list.
    let _again = [
        restart(&world, "hub", "broker")?,
        restart(&world, "n1.alpha", "gateway")?,
        restart(&world, "n2.beta", "gateway")?,
    ];
    World::eventually("the grid is back", SOON, || is_up(&world, "n1.alpha", "n2.beta"))?;
    refused_everywhere(&world, Instant::now()).context("after the restart")?;
    refused(&world, "n1.alpha,n1.beta").context("after the restart")?;
    works(&world, "n1.alpha,n2.beta")?;

    // A new token makes it a member again, and the stolen key stays refused.
    let joined = join(&world, &invite(&world, &owner)?, AGENT)?;
    ensure!(joined.status == 0, "{}", joined.whole());
    let _agent = restart(&world, "n1.beta", "agent")?;
    World::eventually("it is up", SOON, || is_up(&world, "n1.alpha", "n1.beta"))?;
    works(&world, "n1.alpha,n1.beta")?;
    refused_everywhere(&world, Instant::now()).context("after it has joined anew")?;

    another_owner(&world, &owner)?;
    let admin = ["identity=\"admin\"", "source=\"198.51.100.10:"];
    let subject = format!("subject=\"isthmus:///agent/beta/n1/{owner}\"");
    for event in ["revoke done", "remove done"] {
        audited(&world, &[&[event, subject.as_str()], &admin[..]].concat())?;
    }
    audited(&world, &["join done identity=\"agent n1.beta\"", "owner=\"bob\"", "source="])?;
    let asked = format!("role agent site beta name n1 owner {owner} under the name");
    audited(&world, &["join refused identity=\"gateway", "source=", &asked, "isthmus grid remove"])?;
    audited(&world, &["connection refused identity=\"agent n1.beta\"", "source=", "are revoked"])?;
    audited(&world, &["revoke refused", "subject=\"n9.beta\""])
}

/// Checks that the node's agent says what to do, in its log and to commands that ask it.
fn said_to_the_node_s_user(world: &World) -> Result<()> {
    let wanted = "revoked the certificate of this service";
    World::eventually("the agent's log says it", SOON, || {
        Ok(log(world, "agent at n1.beta")?.contains(wanted))
    })?;
    let binary = isthmus().display().to_string();
    for command in ["status", "run --nodes n1.beta -- true"] {
        let output = world.sh("n1.beta", SOON, &["sh", "-c", &format!("{binary} {command}")])?;
        ensure!(output.status != 0 && output.stderr.contains(wanted), "{command}: {}", output.whole());
    }
    Ok(())
}

/// Removes the name of the node, and has another owner take it.
fn another_owner(world: &World, owner: &str) -> Result<()> {
    let (old, bob) = (invite(world, owner)?, invite(world, "bob")?);
    let taken = join(world, &bob, "/var/lib/isthmus/bob")?;
    ensure!(taken.status != 0 && taken.stderr.contains("isthmus grid remove"), "{}", taken.whole());
    grid(world, "remove n1.beta")?;
    ensure!(member(world, "n1.beta").is_err(), "it is a member still");
    let joined = join(world, &bob, "/var/lib/isthmus/bob")?;
    ensure!(joined.status == 0, "{}", joined.whole());
    ensure!(member(world, "n1.beta")?["owner"] == "bob");
    let taken = join(world, &old, "/var/lib/isthmus/again")?;
    ensure!(taken.status != 0 && taken.stderr.contains("belongs to user bob"), "{}", taken.whole());
    let unknown = world.sh(
        "hub",
        SOON,
        &[&isthmus().display().to_string(), "grid", "revoke", "n9.beta", "--state", ADMIN],
    )?;
    ensure!(unknown.status != 0 && unknown.stderr.contains("no member has the name"), "{}", unknown.whole());
    Ok(())
}

/// Names of the relays that are up.
fn relays(world: &World) -> Result<Vec<String>> {
    let status = world.status("n1.alpha")?;
    let relays = status["relays"].as_array().context("no relays")?;
    let up = relays.iter().filter(|relay| relay["up"] == true);
    Ok(up.filter_map(|relay| relay["name"].as_str().map(str::to_owned)).collect())
}

#[test]
fn a_revoked_relay_is_not_used() -> Result<()> {
    let world = World::up("two-relays")?;
    World::eventually("both relays are there", SOON, || Ok(relays(&world)?.len() == 2))?;
    let since = Instant::now();
    grid(&world, "revoke hub.relay")?;
    World::eventually("it is gone", MINUTE, || Ok(relays(&world)? == ["spare"]))?;
    eprintln!("the relay is gone after {:.1} s", since.elapsed().as_secs_f64());
    let before = spliced(&world)?;
    works(&world, "n1.alpha,n1.beta,n2.beta")?;
    World::eventually("the other relay has carried the job", SOON, || Ok(spliced(&world)? > before))?;
    let wanted = "revoked the certificate of this service";
    World::eventually("its log says it", SOON, || Ok(log(&world, "relay at hub")?.contains(wanted)))?;
    let file = world.directory.path().join("relay.token").display().to_string();
    let binary = isthmus().display().to_string();
    sh(
        &world,
        "hub",
        &format!(
            "{binary} grid invite --role relay --name hub --out {file} --state /var/lib/isthmus/broker && \
             {binary} join --force --state /var/lib/isthmus/relay --token {file}"
        ),
    )?;
    let _relay = restart(&world, "hub", "relay")?;
    World::eventually("both relays are there again", SOON, || Ok(relays(&world)?.len() == 2))
}

/// How many connections the relay at spare has spliced.
fn spliced(world: &World) -> Result<u64> {
    let status = world.status("n1.alpha")?;
    let relays = status["relays"].as_array().context("no relays")?;
    let spare = relays.iter().find(|relay| relay["name"] == "spare").context("no spare")?;
    spare["connections"].as_u64().with_context(|| format!("{spare}"))
}

/// Where sites trust each other, ranks hold raw sockets, which no agent can close. They are closed
/// as the job ends.
#[test]
fn a_job_over_raw_sockets_ends_with_its_revoked_node() -> Result<()> {
    let world = World::up("trusted")?;
    revoke_during_a_job(&world)?;
    refused(&world, "n1.alpha,n1.beta")?;
    works(&world, "n1.alpha,n1.gamma").map(drop)
}
