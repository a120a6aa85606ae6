//! Members of two owners in one grid: what the agents of one may not do to the other's.
//! The lab's own agents belong to the user who runs it; berta's are started here.

mod records;
mod texts;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Output, Shared, World, isthmus};
use isthmus_identity::Credentials;
use isthmus_rpc::grpc;
use isthmus_wire::proto;
use isthmus_wire::proto::local_client::LocalClient;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

static GRID: Shared = Shared::new("two-relays");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
const BROKER: &str = "/var/lib/isthmus/broker";
/// Path of the socket of berta's agent, on each of her nodes.
const SOCKET: &str = "/run/berta/agent.sock";
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn own(world: &World, machine: &str, script: &str) -> Result<Output> {
    let output = world.sh(machine, SOON, &["sh", "-c", script])?;
    ensure!(output.status == 0, "{script}: {}", output.whole());
    Ok(output)
}

/// Runs `isthmus WORDS` on a machine.
fn isthmus_on(world: &World, machine: &str, words: &[&str]) -> Result<Output> {
    let binary = isthmus().display().to_string();
    let mut all = vec![binary.as_str()];
    all.extend(words);
    world.sh(machine, SOON, &all)
}

/// A machine's path as this process sees it.
pub(crate) fn inside(world: &World, machine: &str, path: &str) -> Result<PathBuf> {
    Ok(format!("/proc/{}/root{path}", world.lab().machine(machine)?.init().pid).into())
}

fn read(world: &World, machine: &str, path: &str) -> Result<String> {
    std::fs::read_to_string(inside(world, machine, path)?).with_context(|| format!("{path} on {machine}"))
}

/// The address at which the agent of a machine reaches the gateway of its site.
fn gateway(world: &World, machine: &str) -> Result<String> {
    let machine = if machine.ends_with(".alpha") { "n1.alpha" } else { "n2.beta" };
    Ok(format!("{}:7710", world.lab().machine(machine)?.address()))
}

/// Makes a token for an agent of berta. Returns its file, which all machines see.
fn invite(world: &World, site: &str, options: &[&str]) -> Result<String> {
    let file = tempfile::NamedTempFile::new_in(world.directory.path())?.into_temp_path().keep()?;
    let file = file.display().to_string();
    let mut words = vec!["grid", "invite", "--role", "agent", "--site", site, "--owner", "berta"];
    words.extend(["--out", &file, "--state", BROKER]);
    words.extend(options);
    let invited = isthmus_on(world, "hub", &words)?;
    ensure!(invited.status == 0, "{}", invited.whole());
    Ok(file)
}

fn join(world: &World, machine: &str, token: &str, name: &str) -> Result<Output> {
    let (via, state) = (gateway(world, machine)?, state(name));
    let words = ["join", "--state", &state, "--name", name, "--via", &via, "--token", token];
    isthmus_on(world, machine, &words)
}

fn state(name: &str) -> String {
    format!("/var/lib/berta/{name}")
}

/// Joins with a node of berta, and starts its agent. `before` is put in front of the command.
fn agent(world: &World, machine: &str, name: &str, before: &str) -> Result<Job> {
    let site = machine.split_once('.').context("no site")?.1;
    let joined = join(world, machine, &invite(world, site, &[])?, name)?;
    ensure!(joined.status == 0, "{}", joined.whole());
    let (binary, state, at) =
        (isthmus().display().to_string(), state(name), world.lab().machine(machine)?.address());
    let settings = format!(
        "[agent]\\nlisten = \"{at}:7731\"\\nruntime_directory = \"/run/berta\"\\nslots = 1\\naudit_format = \"json\"\\n"
    );
    own(world, machine, &format!("printf '{settings}' > {state}/isthmus.toml"))?;
    let script = format!("exec {before} {binary} agent --state {state} 2> /tmp/{name}.log");
    Job::start(world.command(machine, SOON * 10, &["sh", "-c", &script])?)
}

fn status(world: &World, words: &[&str]) -> Result<Value> {
    let mut all = vec!["status", "--json"];
    all.extend(words);
    let output = isthmus_on(world, "hub", &all)?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(serde_json::from_str(&output.stdout)?)
}

/// A node's status as an administrator sees it.
fn node(world: &World, name: &str) -> Result<Value> {
    let status = status(world, &["--state", BROKER])?;
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    Ok(nodes.into_iter().find(|node| node["name"] == name).unwrap_or_default())
}

fn is_up(world: &World, name: &str) -> Result<()> {
    World::eventually(&format!("{name} is attached"), SOON, || Ok(node(world, name)?["up"] == true))
}

#[test]
fn a_name_stays_with_its_owner() -> Result<()> {
    let world = GRID.take()?;
    let before = node(&world, "n1.beta")?;
    let owner = before["owner"].as_str().context("no owner")?;
    let whose = format!(
        "agent n1.beta is a member of the grid and belongs to user {owner}, and the join token is for user berta"
    );
    let (any, fixed) = (invite(&world, "beta", &[])?, invite(&world, "beta", &["--name", "n1"])?);
    for (what, token) in [("without a name", &any), ("for the name", &fixed)] {
        let taken = join(&world, "n2.beta", token, "n1")?;
        ensure!(taken.status == 1 && taken.stderr.contains(&whose), "a token {what}: {}", taken.whole());
        ensure!(taken.stderr.contains("isthmus grid remove"), "{}", taken.whole());
    }
    let made = world.sh("n2.beta", SOON, &["test", "-e", &format!("{}/key.pem", state("n1"))])?;
    ensure!(made.status != 0, "a refused join leaves a key");
    // The refused join has not used the token up.
    let joined = join(&world, "n2.beta", &any, "free")?;
    ensure!(joined.status == 0, "{}", joined.whole());
    ensure!(before == node(&world, "n1.beta")? && before["up"] == true, "{before}");
    let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta", "--each"], &["true"])?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(())
}

/// Asks the agent of a machine to start a job on these nodes, as no `isthmus run` would.
fn start(world: &World, machine: &str, nodes: &[Value]) -> Result<String> {
    let socket = inside(world, machine, "/run/isthmus/agent.sock")?;
    let node = |node: &Value| -> Result<proto::JobNode> {
        let name = node["name"].as_str().context("no name")?.to_owned();
        let address: std::net::Ipv4Addr = node["virtual_address"].as_str().context("no address")?.parse()?;
        Ok(proto::JobNode { name, virtual_address: address.into(), slots: 1 })
    };
    let request = proto::StartRequest {
        program: "stolen".to_owned(),
        nodes: nodes.iter().map(node).collect::<Result<_>>()?,
        job: isthmus_service::mac::new_job().to_string(),
        ..proto::StartRequest::default()
    };
    runtime()?.block_on(async {
        let channel = grpc::channel_within(tokio::net::UnixStream::connect(socket).await?).await?;
        let mut news = LocalClient::new(channel).start(request).await?.into_inner();
        match tokio::time::timeout(SOON, news.message()).await? {
            Err(status) => Ok(grpc::reasons(&status)),
            // The reasons of nodes that can't take part come before the error.
            Ok(Some(proto::JobNews { kind: Some(proto::job_news::Kind::Unready(unready)) })) => {
                let text = |unfit: &proto::Unfit| format!("{}: {}", unfit.nodes.join(", "), unfit.reason);
                Ok(unready.unfit.iter().map(text).collect::<Vec<_>>().join("; "))
            }
            Ok(message) => anyhow::bail!("it was started: {message:?}"),
        }
    })
}

#[test]
fn a_job_stays_on_nodes_of_its_owner() -> Result<()> {
    let world = GRID.take()?;
    let _agent = agent(&world, "n1.beta", "jobs", "")?;
    is_up(&world, "jobs.beta")?;
    let (head, theirs) = (node(&world, "n1.alpha")?, node(&world, "jobs.beta")?);
    let owner = head["owner"].as_str().context("no owner")?;
    let refused = world.run("n1.alpha", &["--nodes", "n1.alpha,jobs.beta"], &["true"])?;
    let wanted =
        format!("jobs.beta cannot take part: its agent works for \"berta\", this node's for {owner:?}");
    ensure!(refused.status == 125 && refused.stderr.contains(&wanted), "{}", refused.whole());
    // All nodes of a site, and all of the grid, are those of the owner.
    for nodes in [&["--nodes", "beta"][..], &[]] {
        let mut options = vec!["--quiet", "--each"];
        options.extend(nodes);
        let output = world.run("n1.alpha", &options, &["sh", "-c", "echo on $ISTHMUS_NODE"])?;
        ensure!(output.status == 0 && !output.stdout.contains("jobs.beta"), "{}", output.whole());
    }
    // A client, or a gateway, that names the node in spite of that.
    let reason = start(&world, "n1.alpha", &[head, theirs])?;
    ensure!(reason.contains("jobs.beta: ") && reason.contains("berta"), "{reason}");
    // Berta's agent was never asked, so it has no token.
    let audit = read(&world, "n1.beta", "/var/lib/berta/jobs/audit.log")?;
    ensure!(audit.is_empty(), "{audit}");
    Ok(())
}

#[test]
fn jobs_and_nodes_of_others_are_neither_seen_nor_ordered() -> Result<()> {
    let world = GRID.take()?;
    let _agents = [agent(&world, "n1.alpha", "see1", "")?, agent(&world, "n1.beta", "see2", "")?];
    is_up(&world, "see1.alpha")?;
    is_up(&world, "see2.beta")?;
    let binary = isthmus().display().to_string();
    let words =
        [&binary, "run", "--socket", SOCKET, "--nodes", "see1.alpha,see2.beta", "--each", "--", "sleep"];
    // The command is ended at the end of the test.
    let mut command = world.command("n1.alpha", SOON * 10, &words)?;
    command.arg("3600");
    let _job = Job::start(command)?;
    let jobs = |machine: &str, environment: &str, options: &str| -> Result<(u64, String)> {
        let script = format!(
            "{environment} {binary} status {options} --json; {environment} {binary} status {options} -v"
        );
        let text = own(&world, machine, &script)?.stdout;
        let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let status = documents.next().context("no JSON")??;
        Ok((status["jobs"].as_array().context("no jobs")?.len() as u64, text))
    };
    World::eventually("berta sees her job", SOON, || {
        Ok(jobs("n1.beta", &format!("ISTHMUS_AGENT={SOCKET}"), "")?.0 == 1)
    })?;
    ensure!(jobs("hub", "", &format!("--state {BROKER}"))?.0 == 1, "an administrator sees it");
    for machine in ["n1.alpha", "n1.beta", "n2.beta"] {
        let (count, text) = jobs(machine, "", "")?;
        ensure!(count == 0 && !text.contains("sleep of berta"), "{machine}: {text}");
    }
    // Her nodes measure nothing for others, and their jobs are not ended or entered.
    let pair = isthmus_on(&world, "n1.alpha", &["doctor", "pair", "see1.alpha", "see2.beta"])?;
    ensure!(pair.status == 1, "{}", pair.whole());
    let said = pair.stdout.clone() + &pair.stderr;
    ensure!(said.contains("may have their own nodes measure"), "{}", pair.whole());
    ensure!(!said.contains("ms, "), "nothing was measured: {}", pair.whole());
    let id = own(&world, "n1.alpha", "ls /run/berta | grep -v sock")?.stdout.trim().to_owned();
    ensure!(id.len() == 32, "{id}");
    let exec = isthmus_on(&world, "n1.alpha", &["exec", "--job", &id, "see2.beta", "--", "id"])?;
    ensure!(
        exec.status == 255 && exec.stderr.contains("has ended") && exec.stdout.is_empty(),
        "{}",
        exec.whole()
    );
    Ok(())
}

/// A transfer takes bandwidth from jobs, so agents serve only those that the broker orders.
#[test]
fn a_measurement_that_the_broker_has_not_ordered_is_not_served() -> Result<()> {
    let world = GRID.take()?;
    let joined = join(&world, "n2.beta", &invite(&world, "beta", &[])?, "measures")?;
    ensure!(joined.status == 0, "{}", joined.whole());
    let credentials = Credentials::load(&inside(&world, "n2.beta", &state("measures"))?)?;
    let tls = credentials.client_config(&[b"isthmus-measure/1"])?;
    let to = (world.lab().machine("n1.beta")?.address(), 7730);
    let answer = world.lab().machine("n2.beta")?.in_network(|| -> Result<Vec<u8>> {
        runtime()?.block_on(async {
            let tcp = tokio::net::TcpStream::connect(to).await?;
            let mut stream = tls.connect("n1.beta".try_into()?, tcp).await?;
            stream.write_all(b"PBD").await?;
            let mut answer = Vec::new();
            // The connection may end by a reset, too.
            let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await?;
            Ok(answer)
        })
    })??;
    ensure!(answer.is_empty(), "{} bytes were sent", answer.len());
    Ok(())
}
