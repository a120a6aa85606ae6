//! Another user of a node and the sockets on its loopback interface: ranks' listeners,
//! and the listeners of agents.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Shared, World, isthmus, root};

static GRID: Shared = Shared::new("two-relays");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
const NODE: &str = "n1.alpha";
const PORT: &str = "5998";
/// Path of a Python that each user may execute.
const PYTHON: &str = "/usr/bin/python3";
/// Beginning of a command of the second user, who is in no group and has no file and no agent.
const OTHER: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// The text of a program. The other user can't read its file below the repository.
fn text(name: &str) -> Result<String> {
    Ok(std::fs::read_to_string(program(name))?)
}

fn program(name: &str) -> String {
    root().join("tests/programs").join(name).display().to_string()
}

/// A rank listens on any address, so isthmus has moved its listener to loopback. There, the rank
/// accepts its own user's connections, also a connection that is closed already. It accepts none of
/// another user.
#[test]
fn a_rank_accepts_no_other_user_over_loopback() -> Result<()> {
    let world = GRID.take()?;
    let (binary, listener, client) =
        (isthmus().display().to_string(), program("loopback_listener.py"), text("loopback_client.py")?);
    let own = address(&world)?;
    let twin = own.replacen("240.", "127.", 1);
    let names = ["127.0.0.1", "::1", &own];
    let mut words =
        vec![binary.as_str(), "run", "--quiet", "--nodes", NODE, "--", "python3", &listener, PORT];
    words.extend(names);
    let mut command = world.command(NODE, SOON * 3, &words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut job = command.spawn()?;
    let mut printed = BufReader::new(job.stdout.take().context("no output")?).lines();
    let mut line = || printed.next().context("the rank has ended")?.context("no line");
    ensure!(line()? == "listening");
    let connect = |user: &[&str], address: &str, word: &str, how: &[&str]| -> Result<String> {
        let words = [user, &[PYTHON, "-c", &client, address, PORT, word], how].concat();
        let output = world.sh(NODE, SOON, &words)?;
        ensure!(output.status == 0, "{}", output.whole());
        Ok(output.stdout)
    };
    for address in ["127.0.0.1", "::1", &twin] {
        for how in [&[][..], &["--leave"], &["--reset"]] {
            let answer = connect(&OTHER, address, "other", how)?;
            ensure!(!answer.contains("secret"), "{address} {how:?}: {answer}");
        }
    }
    for address in ["127.0.0.1", "::1", &twin] {
        let answer = connect(&[], address, "own", &[])?;
        ensure!(answer == "answer secret\n", "{address}: {answer}");
    }
    connect(&[], "127.0.0.1", "end", &[])?;
    let mut received = Vec::new();
    while received.last().is_none_or(|last| last != "end") {
        received.push(line()?);
    }
    let mut expected: Vec<String> = names.iter().map(|name| format!("closed by {name}")).collect();
    expected.extend(["own", "own", "own", "end"].map(str::to_owned));
    ensure!(received == expected, "{received:?}");
    ensure!(job.wait()?.success());
    world.expect_clean()
}

/// Another user fills the queues of all that listens on the agents' loopback addresses. Encrypted
/// connections between the sites are made as before.
#[test]
#[ignore = "test-all"]
fn another_user_cannot_end_encrypted_connections() -> Result<()> {
    let world = GRID.take()?;
    let flood = text("loopback_flood.py")?;
    let mut floods = Vec::new();
    for node in [NODE, "n1.beta"] {
        let words = [&OTHER[..], &[PYTHON, "-c", &flood]].concat();
        let mut command = world.command(node, SOON * 3, &words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut flooding = command.spawn()?;
        let mut line = String::new();
        BufReader::new(flooding.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line.starts_with("flooded") && line != "flooded 0\n", "{node}: {line}");
        floods.push(flooding);
    }
    let (listener, client) = (program("listener.py"), program("client.py"));
    let script = format!(
        "\"${{LD_PRELOAD%%/libisthmus*}}\"/launch n1.beta python3 {listener} 5997 & \
         python3 {client} n1.beta 5997 again"
    );
    let output = world.run(NODE, &["--quiet", "--nodes", "n1.alpha,n1.beta"], &["sh", "-c", &script])?;
    for mut flooding in floods {
        drop(flooding.stdin.take());
        flooding.wait()?;
    }
    // The client's line may be in the middle of the listener's, which ends with the job.
    ensure!(output.stdout.contains("b'secret'"), "{}", output.whole());
    world.expect_clean()
}

/// The virtual address of the node [`NODE`].
fn address(world: &World) -> Result<String> {
    let status = world.status(NODE)?;
    let nodes = status["nodes"].as_array().context("no nodes")?;
    let node = nodes.iter().find(|node| node["name"] == NODE).context("no such node")?;
    Ok(node["virtual_address"].as_str().context("no address")?.to_owned())
}
