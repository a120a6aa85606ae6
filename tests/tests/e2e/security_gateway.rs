//! What a member can't do by another site's gateway.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, World, isthmus};

/// Guards against hanging only.
const SOON: Duration = Duration::from_secs(90);

/// A machine of a site without an agent: it answers every connection, and prints what
/// it was sent first. It ends when nobody has connected for a while.
const STORE: &str = "
import socket
listener = socket.create_server(('0.0.0.0', 2222))
listener.settimeout(250)
print('listening', flush=True)
while True:
    try:
        client, _ = listener.accept()
    except TimeoutError:
        break
    listener.settimeout(5)
    client.settimeout(60)
    try:
        client.sendall(b'220 store')
        print('got', client.recv(100), flush=True)
    except OSError as error:
        print(error, flush=True)
    client.close()
";

/// An agent names a machine inside the other site as the address at which it is let in.
/// The gateway there dials it for its own node, and finds that it isn't that agent. So
/// no byte of the node gets there, and the connection is made by another way.
#[test]
fn a_gateway_passes_nothing_on_to_what_is_not_the_named_agent() -> Result<()> {
    let world = World::up("named")?;
    let binary = isthmus().display().to_string();
    let plan = || -> Result<String> {
        let output = world.sh("n1.alpha", SOON, &[&binary, "plan", "n1.alpha", "n1.beta"])?;
        Ok(output.stdout)
    };
    let first = |way: &str| {
        World::eventually(way, SOON, || {
            let plan = plan()?;
            Ok(plan.lines().any(|line| line.starts_with("  1.") && line.contains(way)))
        })
    };
    let connect = "import socket; socket.create_connection(('n1.beta', 5000), timeout=100)";
    let run = || {
        let words =
            [&binary, "run", "--quiet", "--nodes", "n1.alpha,n1.beta", "--", "python3", "-c", connect];
        world.sh("n1.alpha", SOON * 2, &words)
    };
    // The true address: the gateway dials it, and nothing listens at the program's port.
    first("port-range  gateway-out")?;
    let output = run()?;
    ensure!(output.stderr.contains("ConnectionRefusedError"), "{}", output.whole());
    ensure!(!plan()?.contains("failed before"), "{}", plan()?);

    let store = world.lab().machine("store.alpha")?.address().to_string();
    let words = ["python3", "-u", "-c", STORE];
    let mut listener = world.command("store.alpha", SOON * 6, &words)?;
    listener.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut listener = listener.spawn()?;
    let mut printed = BufReader::new(listener.stdout.take().context("no output")?).lines();
    ensure!(printed.next().context("no line")?? == "listening");
    let _lying = named(&world, &store)?;
    first("port-range  gateway-out")?;
    let output = run()?;
    ensure!(output.stderr.contains("ConnectionRefusedError"), "{}", output.whole());
    let why = format!("the agent of n1.beta does not show itself at {store}:2222");
    World::eventually(&why, SOON, || Ok(plan()?.contains(&why)))
        .with_context(|| plan().unwrap_or_default())?;
    let got: Vec<String> = printed.collect::<Result<_, _>>()?;
    listener.wait()?;
    ensure!(got.iter().any(|line| line.starts_with("got")), "the gateway did not dial: {got:?}");
    ensure!(got.iter().all(|line| !line.contains("MEET")), "{got:?}");
    world.expect_clean()
}

/// Starts the agent of n1.beta anew: it names another address as its own.
fn named(world: &World, address: &str) -> Result<Job> {
    world.stop("n1.beta", "agent")?;
    let change = format!(
        "sed 's/^outside_host.*/outside_host = \"{address}\"/; s/^port_range.*/port_range = \"2222\"/' \
         /run/isthmus-machine/agent.toml > /run/lying.toml && grep -q 2222 /run/lying.toml"
    );
    let changed = world.sh("n1.beta", SOON, &["sh", "-c", &change])?;
    ensure!(changed.status == 0, "{}", changed.whole());
    world.serve("n1.beta", "agent", &[], "/run/lying.toml")
}
