//! A grid of two clusters in nine commands and two tokens, each as the one before has
//! printed it; and what goes wrong in the first hours.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Output, World, isthmus};

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(180);
/// The directory in which every machine of the tests keeps its own state.
const STATE: &str = "/var/lib/isthmus";

/// Runs `isthmus WORDS` on a machine.
pub(crate) fn isthmus_on(world: &World, machine: &str, words: &[&str]) -> Result<Output> {
    let program = isthmus().display().to_string();
    let mut all = vec![program.as_str()];
    all.extend(words);
    world.sh(machine, LONG, &all)
}

/// Runs `isthmus WORDS` on a machine. It must succeed and say `wants`.
pub(crate) fn good(world: &World, machine: &str, words: &[&str], wants: &[&str]) -> Result<Output> {
    let output = isthmus_on(world, machine, words)?;
    ensure!(output.status == 0, "{words:?}: {}", output.whole());
    let said = output.stdout.clone() + &output.stderr;
    for want in wants {
        ensure!(said.contains(want), "{words:?} doesn't say {want:?}: {}", output.whole());
    }
    Ok(output)
}

/// Runs `isthmus WORDS` on a machine. It must fail and say `want`, in few lines.
fn bad(world: &World, machine: &str, words: &[&str], want: &str) -> Result<()> {
    let output = isthmus_on(world, machine, words)?;
    ensure!(output.status != 0 && output.stderr.contains(want), "{words:?}: {}", output.whole());
    ensure!(output.stderr.lines().count() <= 8, "{}", output.whole());
    Ok(())
}

#[test]
fn two_clusters_are_one_grid_in_nine_commands() -> Result<()> {
    let world = World::up("first-hours")?;
    let token = |site: &str| world.directory.path().join(format!("{site}.token")).display().to_string();
    let (alpha, beta) = (token("alpha"), token("beta"));
    let front_end = world.lab().machine("fe.alpha")?.address().to_string();

    bad(&world, "n1.alpha", &["up"], "belongs to no grid yet")?;
    good(&world, "hub", &["grid", "init", "--name", "lab", "--address", "198.51.100.10"], &["isthmus up"])?;
    good(&world, "hub", &["up"], &["The broker of grid lab, with a relay, runs", "isthmus grid invite"])?;
    let invite = |site: &str, nodes: &str, out: &str| {
        let words = ["grid", "invite", "--site", site, "--owner", "ada", "--nodes", nodes, "--gateways", "1"];
        let words = [&words[..], &["--out", out]].concat();
        good(&world, "hub", &words, &["of user ada, and for 1 gateway of it", "--via FRONT-END"])
    };
    invite("alpha", "2", &alpha)?;
    invite("beta", "1", &beta)?;
    bad(&world, "n1.alpha", &["up", "--token", &alpha, "--via", &front_end], &format!("{front_end}:7710"))?;
    good(&world, "fe.alpha", &["up", "--token", &alpha], &["gateway.alpha runs", "on each of its nodes"])?;
    for node in ["n1.alpha", "n2.alpha"] {
        good(&world, node, &["up", "--token", &alpha, "--via", &front_end], &["runs", "isthmus run"])?;
    }
    good(&world, "fe.beta", &["up", "--token", &beta, "--node"], &["gateway.beta runs", "isthmus run"])?;

    World::eventually("all nodes are up", LONG, || {
        let status = isthmus_on(&world, "n1.alpha", &["status", "--json"])?;
        let status: serde_json::Value =
            serde_json::from_str(&status.stdout).context(status.stdout.clone())?;
        let nodes = status["nodes"].as_array().context("no nodes")?;
        Ok(nodes.len() == 3 && nodes.iter().all(|node| node["up"] == true))
    })?;
    let ring = Mpi::OpenMpi.program("ring");
    let job = ["run", "--", "mpirun.openmpi", "-n", "3", "--map-by", "node", "--oversubscribe", &ring];
    let output = isthmus_on(&world, "n1.alpha", &job)?;
    ensure!(output.status == 0 && output.stderr.contains("3 nodes at 2 sites"), "{}", output.whole());

    World::eventually("the doctor finds all well", LONG, || {
        let verdict = isthmus_on(&world, "n1.alpha", &["doctor"])?;
        Ok(verdict.status == 0 && verdict.stdout.starts_with("All is well: 2 sites, 3 nodes up."))
    })?;

    // What goes wrong. Another user's token makes nodes only.
    let bob = token("bob");
    let words = ["grid", "invite", "--site", "alpha", "--owner", "bob", "--nodes", "16", "--out", &bob];
    good(&world, "hub", &words, &["of user bob, and for no gateway", "--via FRONT-END"])?;
    bad(&world, "n3.alpha", &["up", "--token", &bob], "makes no gateway")?;
    bad(&world, "n3.alpha", &["up", "--token", &alpha, "--via", &front_end], "good for 2 nodes")?;
    bad(&world, "n3.alpha", &["up", "--token", &alpha], "has a gateway that is attached, gateway.alpha")?;
    bad(&world, "n1.alpha", &["up", "--token", &beta], "belongs to agent a1.alpha")?;
    good(&world, "n1.alpha", &["up"], &["runs already"])?;
    let picture = world.directory.path().join("grid.svg").display().to_string();
    good(&world, "n1.alpha", &["status", "--svg", &picture], &[])?;
    ensure!(std::fs::read_to_string(&picture)?.contains("beta"), "beta is drawn");
    bad(&world, "n1.alpha", &["up", "--node"], "--node is for a site's front-end")?;
    bad(&world, "n3.alpha", &["up", "--token", "/nonexistent"], "/nonexistent")?;
    good(&world, "n3.alpha", &["down"], &["Nothing runs here"])?;

    // An agent that was killed is started again, with the identity that it had.
    world.kill("n2.alpha", "-KILL", &world.service("n2.alpha", "agent")?)?;
    good(&world, "n2.alpha", &["up"], &["agent a2.alpha runs;"])?;

    for (machine, said) in [
        ("n1.alpha", &["The agent stopped"][..]),
        ("n2.alpha", &["The agent stopped"]),
        ("fe.alpha", &["The gateway stopped"]),
        ("fe.beta", &["The agent stopped", "The gateway stopped"]),
        ("hub", &["The broker stopped"]),
    ] {
        good(&world, machine, &["down"], said)?;
        let left = world.sh(
            machine,
            LONG,
            &[
                "sh",
                "-c",
                &format!("ls {STATE}/*.pid {STATE}/node/*.pid; pgrep -fl 'isthmus (agent|gateway|broker)'"),
            ],
        )?;
        ensure!(left.stdout.is_empty(), "{}", left.whole());
    }
    Ok(())
}

/// Neither the name nor the port of the second user's node is free.
#[test]
#[ignore = "test-all"]
fn a_second_user_s_node_runs_beside_the_first() -> Result<()> {
    const OTHER: &str = "/run/bob-state";
    let world = World::up("first-hours")?;
    let front_end = world.lab().machine("fe.alpha")?.address().to_string();
    good(&world, "hub", &["grid", "init", "--name", "lab", "--address", "198.51.100.10"], &[])?;
    good(&world, "hub", &["up"], &[])?;
    let token = |owner: &str| -> Result<String> {
        let out = world.directory.path().join(format!("{owner}.token")).display().to_string();
        let to = ["grid", "invite", "--site", "alpha", "--owner", owner, "--out", &out];
        good(&world, "hub", &[&to[..], &["--gateways", "1", "--nodes", "2"]].concat(), &[])?;
        Ok(out)
    };
    let (ada, bob) = (token("ada")?, token("bob")?);
    good(&world, "fe.alpha", &["up", "--token", &ada], &["gateway.alpha runs"])?;
    for node in ["n1.alpha", "n2.alpha"] {
        good(&world, node, &["up", "--token", &ada, "--via", &front_end], &["runs;"])?;
        let place = format!(
            "mkdir -m 700 -p {OTHER} /run/bob && printf '[agent]\nruntime_directory = \"/run/bob\"\n' > {OTHER}/isthmus.toml"
        );
        let made = world.sh(node, LONG, &["sh", "-c", &place])?;
        ensure!(made.status == 0, "{}", made.whole());
        let host = if node == "n1.alpha" { "a1" } else { "a2" };
        let says = [format!("{host} is the node of another user"), format!("agent {host}-bob.alpha runs;")];
        let up = ["up", "--state", OTHER, "--token", &bob, "--via", &front_end];
        good(&world, node, &up, &says.each_ref().map(String::as_str))?;
    }
    let words = ["run", "--socket", "/run/bob/agent.sock", "--each", "--", "hostname"];
    let output = isthmus_on(&world, "n1.alpha", &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    for host in ["a1-bob.alpha", "a2-bob.alpha"] {
        ensure!(output.stdout.contains(&format!("{host}: {host}")), "{}", output.whole());
    }
    Ok(())
}

/// The node has joined by the first front-end alone, and no configuration names the second.
#[test]
#[ignore = "test-all"]
fn a_second_front_end_serves_nodes_that_were_there_before_it() -> Result<()> {
    let world = World::up("first-hours")?;
    let path = |name: &str| world.directory.path().join(name).display().to_string();
    let (alpha, second) = (path("alpha.token"), path("second.token"));
    let address = |machine: &str| Ok::<_, anyhow::Error>(world.lab().machine(machine)?.address());
    let (first_at, second_at) = (address("fe.alpha")?, address("n2.alpha")?);
    let via = first_at.to_string();
    good(&world, "hub", &["grid", "init", "--name", "lab", "--address", "198.51.100.10"], &[])?;
    good(&world, "hub", &["up"], &[])?;
    let invite =
        |words: &[&str]| good(&world, "hub", &[&["grid", "invite", "--site", "alpha"], words].concat(), &[]);
    invite(&["--role", "gateway", "--name", "first", "--out", &path("first.token")])?;
    invite(&["--role", "gateway", "--name", "second", "--out", &second])?;
    invite(&["--owner", "ada", "--nodes", "2", "--out", &alpha])?;
    good(&world, "fe.alpha", &["up", "--token", &path("first.token")], &["first.alpha runs"])?;
    good(&world, "n1.alpha", &["up", "--token", &alpha, "--via", &via], &["agent a1.alpha runs;"])?;
    good(&world, "n2.alpha", &["up", "--token", &second], &["second.alpha runs"])?;
    World::eventually("the node has heard of it", LONG, || {
        let heard = world.sh("n1.alpha", LONG, &["cat", &format!("{STATE}/gateways-of-alpha")])?;
        Ok(heard.stdout.contains(&format!("{second_at}:7710")))
    })?;

    good(&world, "fe.alpha", &["down"], &["The gateway stopped"])?;
    World::eventually("the node is at the second one", LONG, || {
        let output = isthmus_on(&world, "n1.alpha", &["status", "--json"])?;
        let Ok(status) = serde_json::from_str::<serde_json::Value>(&output.stdout) else { return Ok(false) };
        let gateways = status["sites"][0]["gateways"].as_array().context("no gateways")?;
        Ok(gateways.iter().any(|gateway| gateway["name"] == "second" && gateway["nodes_up"] == 1))
    })?;
    // The agent also comes up after a restart.
    good(&world, "n1.alpha", &["down"], &["The agent stopped"])?;
    good(&world, "n1.alpha", &["up"], &["agent a1.alpha runs;"])?;
    Ok(())
}

/// A machine was set up and isn't as it should be.
#[test]
#[ignore = "test-all"]
fn up_says_what_is_so_and_what_to_do() -> Result<()> {
    let world = World::up("first-hours")?;
    let path = |name: &str| world.directory.path().join(name).display().to_string();
    let (alpha, again) = (path("alpha.token"), path("again.token"));
    let front_end = world.lab().machine("fe.alpha")?.address().to_string();
    let shell = |machine: &str, script: &str| -> Result<()> {
        let output = world.sh(machine, LONG, &["sh", "-c", script])?;
        ensure!(output.status == 0, "{script}: {}", output.whole());
        Ok(())
    };
    good(&world, "hub", &["grid", "init", "--name", "lab", "--address", "198.51.100.10"], &[])?;
    // Another program has the relay's port.
    let program = "import socket, time; s = socket.create_server(('0.0.0.0', 7720)); time.sleep(600)";
    let mut taking = world.command("hub", LONG * 4, &["python3", "-c", program])?.spawn()?;
    World::eventually("the port is taken", LONG, || {
        Ok(world.sh("hub", LONG, &["sh", "-c", "ss -ltn | grep -q :7720"])?.status == 0)
    })?;
    let without = ["The broker of grid lab (without a relay) runs", "cannot listen on", "[relay] listen"];
    good(&world, "hub", &["up"], &without)?;
    good(&world, "hub", &["down"], &["The broker stopped"])?;
    for process in world.processes("hub", "python3")? {
        world.kill("hub", "-TERM", &process)?;
    }
    taking.wait()?;
    World::eventually("the port is free", LONG, || {
        Ok(world.sh("hub", LONG, &["sh", "-c", "! ss -ltn | grep -q :7720"])?.status == 0)
    })?;
    good(&world, "hub", &["up"], &["The broker of grid lab, with a relay, runs"])?;
    for out in [&alpha, &again] {
        let words =
            ["grid", "invite", "--site", "alpha", "--owner", "ada", "--nodes", "2", "--gateways", "1"];
        good(&world, "hub", &[&words[..], &["--out", out]].concat(), &[])?;
    }
    good(&world, "fe.alpha", &["up", "--token", &alpha], &["gateway.alpha runs"])?;

    // A path that sockets can't have, before the token is spent.
    let long = format!("/run/{}", "x".repeat(100));
    shell("n1.alpha", &format!("mkdir -p -m 700 {STATE}"))?;
    shell("n1.alpha", &format!("printf '[agent]\nruntime_directory = \"{long}\"\n' > {STATE}/isthmus.toml"))?;
    let node = ["up", "--token", &alpha, "--via", &front_end];
    bad(&world, "n1.alpha", &node, "longer than the 107")?;
    shell("n1.alpha", &format!("[ ! -e {STATE}/identity.pem ] && rm {STATE}/isthmus.toml"))?;
    good(&world, "n1.alpha", &node, &["agent a1.alpha runs;"])?;

    // Revoked: with the token that it has it can't come back, under no name.
    let admin = format!("{STATE}/admin");
    good(&world, "hub", &["grid", "revoke", "--state", &admin, "a1.alpha"], &["admits nobody any more"])?;
    World::eventually("it knows that it is revoked", LONG, || {
        let output = isthmus_on(&world, "n1.alpha", &["up"])?;
        Ok(output.status != 0 && output.stderr.contains("agent a1.alpha is revoked"))
    })?;
    bad(&world, "n1.alpha", &node, "has closed the join token")?;
    bad(&world, "n2.alpha", &["up", "--token", &alpha, "--via", &front_end], "has closed the join token")?;
    // An agent that doesn't run is told as well.
    good(&world, "n1.alpha", &["down"], &[])?;
    bad(&world, "n1.alpha", &["up"], "agent a1.alpha is revoked")?;
    good(&world, "n1.alpha", &["up", "--token", &again], &["agent a1.alpha runs;"])?;

    // The gateway is gone, then the broker.
    good(&world, "fe.alpha", &["down"], &["The gateway stopped"])?;
    World::eventually("it is said", LONG, || {
        let output = isthmus_on(&world, "n1.alpha", &["up"])?;
        let said =
            format!("agent a1.alpha runs, but is not attached to its gateway at {front_end}:7710 for ");
        Ok(output.status != 0 && output.stderr.contains(&said))
    })?;
    good(&world, "hub", &["down"], &[])?;
    bad(
        &world,
        "fe.alpha",
        &["up"],
        "gateway.alpha runs, but is not attached to the broker at 198.51.100.10:7700",
    )?;
    Ok(())
}
