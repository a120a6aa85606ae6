//! What a member can't do by another site's gateway, a captured gateway to its sibling, and a
//! relay by a site's nodes.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_e2e::{Job, World, isthmus};
use isthmus_identity::Credentials;
use isthmus_rpc::grpc;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);

/// Program of a machine without an agent at a site. It answers every connection, and prints what it
/// was sent first. It ends when nobody has connected for a while.
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

/// An agent names a machine inside the other site as the address at which it is let in. That site's
/// gateway dials the machine for its own node, and finds that it isn't the agent. So no byte of the
/// node reaches that machine, and the connection is made by another way.
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
    let (mut listener, printed) = store_listens(&world)?;
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

/// Starts [`STORE`] on a machine. Returns it, and what it prints from then on.
fn store_listens(world: &World) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let words = ["python3", "-u", "-c", STORE];
    let mut listener = world.command("store.alpha", SOON * 6, &words)?;
    listener.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut listener = listener.spawn()?;
    let mut printed = BufReader::new(listener.stdout.take().context("no output")?).lines();
    ensure!(printed.next().context("no line")?? == "listening");
    Ok((listener, printed))
}

/// A captured relay names a machine inside a site as its own address. The site's nodes and gateways
/// connect to relays, and would show the relay what answers there.
#[test]
fn no_node_connects_to_a_machine_of_its_site_because_a_relay_names_it() -> Result<()> {
    let world = World::up("named")?;
    let binary = isthmus().display().to_string();
    let store = format!("{}:2222", world.lab().machine("store.alpha")?.address());
    let (mut listener, printed) = store_listens(&world)?;
    let look = || -> Result<String> {
        Ok(world.sh("n1.alpha", SOON, &[&binary, "doctor", "site", "alpha", "--json"])?.stdout)
    };
    // What the node meets from now on says nothing else of its site than before.
    World::eventually("the node knows that it has no way out", SOON, || {
        Ok(look()?.contains(r#""way_out": "no""#))
    })?;
    world.stop("hub", "relay")?;
    let config = World::config("relay");
    let change = format!("(cat {config} && echo 'address = \"{store}\"') > /run/captured.toml");
    let changed = world.sh("hub", SOON, &["sh", "-c", &change])?;
    ensure!(changed.status == 0, "{}", changed.whole());
    let _captured = world.serve("hub", "relay", &[], "/run/captured.toml")?;
    let why = format!("{store} is a private address");
    let mut found = String::new();
    World::eventually("the node has looked at the relay", SOON, || {
        found = look()?;
        Ok(found.contains(&why))
    })
    .with_context(|| found.clone())?;
    // The signal goes through to the listener, which holds the pipe.
    ensure!(Command::new("kill").arg(listener.id().to_string()).status()?.success());
    listener.wait()?;
    let got: Vec<String> = printed.collect::<Result<_, _>>()?;
    ensure!(got.is_empty(), "it was connected to: {got:?}");
    Ok(())
}

/// Starts the agent of n1.beta anew with another address, which it names as its own.
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

/// Attaches to the broker as a gateway of site alpha, and announces a node of its sibling in every
/// way that it can. It announces the node as it was told of it, with any number of the attachment,
/// and at its own address. It does so with and without what the node's agent has signed. Returns
/// the broker's refusals.
async fn take(broker: &str, credentials: &Credentials, node: &str) -> Result<Vec<String>> {
    let channel = grpc::connect(broker, "broker", credentials).await?;
    let (up_tx, up_rx) = mpsc::channel(8);
    let send = async |kind| up_tx.send(proto::AttachUp { kind: Some(kind) }).await;
    let inbound = proto::Inbound::Auto.into();
    let hello = proto::GatewayUp { site: "alpha".to_owned(), inbound, ..Default::default() };
    send(attach_up::Kind::GatewayUp(hello)).await?;
    let mut down = RegistryClient::new(channel).attach(ReceiverStream::new(up_rx)).await?.into_inner();
    let told = loop {
        if let attach_down::Kind::SiteNode(told) = next(&mut down).await?
            && let Some(contact) = told.contact.filter(|contact| contact.node == node)
        {
            break contact;
        }
    };
    let own = "192.168.1.66:7730".to_owned();
    let mut refusals = Vec::new();
    for up in [
        told.clone(),
        proto::NodeUp { attachment: 1 << 62, ..told.clone() },
        proto::NodeUp { address: own.clone(), ..told.clone() },
        proto::NodeUp { attachment: 1 << 62, signed: None, ..told.clone() },
        proto::NodeUp { attachment: 1 << 62, signed: None, address: own, ..told },
    ] {
        send(attach_up::Kind::NodeUp(up)).await?;
        refusals.push(loop {
            match next(&mut down).await? {
                attach_down::Kind::Refusal(refusal) => break refusal.reason,
                attach_down::Kind::Welcome(_) => bail!("the broker has taken it"),
                _ => {}
            }
        });
    }
    Ok(refusals)
}

async fn next<E: std::error::Error + Send + Sync + 'static>(
    down: &mut (impl Stream<Item = Result<proto::AttachDown, E>> + Unpin),
) -> Result<attach_down::Kind> {
    let message = timeout(SOON, down.next()).await?.transpose()?;
    message.and_then(|message| message.kind).context("the broker ended it")
}

/// The captured gateway's certificate is good, and the broker tells it of all nodes of the site.
#[test]
#[ignore = "test-all"]
fn a_captured_gateway_takes_no_node_of_its_sibling() -> Result<()> {
    let world = World::up("several")?;
    let at_front1 = || -> Result<bool> {
        let status = world.status("n1.gamma")?;
        let sites = status["sites"].as_array().context("no sites")?;
        let alpha = sites.iter().find(|site| site["name"] == "alpha").context("no alpha")?;
        let gateways = alpha["gateways"].as_array().context("no gateways")?;
        Ok(gateways.iter().any(|gateway| gateway["name"] == "front1" && gateway["nodes_up"] == 2))
    };
    let attached = |name: &str| world.attached("n1.gamma", name);
    ["n1.alpha", "n2.alpha"].into_iter().try_for_each(attached)?;
    world.stop("front2.alpha", "gateway")?;
    World::eventually("both nodes are at the other gateway", SOON, at_front1)?;

    let broker = format!("{}:7700", world.lab().machine("hub")?.address());
    let machine = world.lab().machine("front2.alpha")?;
    let state = format!("/proc/{}/root/var/lib/isthmus/gateway", machine.init().pid);
    let credentials = Credentials::load(Path::new(&state))?;
    let refusals = machine.in_network(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(take(&broker, &credentials, "n1"))
    })??;
    let signed = "what its agent has signed is refused: it is for gateway front1.alpha";
    let unsigned = "its agent hasn't signed where it is";
    for (refusal, want) in refusals.iter().zip([signed, signed, signed, unsigned, unsigned]) {
        ensure!(refusal.contains(want), "{want:?} is not in {refusals:#?}");
    }
    ensure!(refusals.len() == 5 && at_front1()?, "{refusals:#?}");
    world.all_to_all(&["n1.beta", "n1.alpha", "n2.alpha"])?;

    let log = world.sh("hub", SOON, &["cat", "/var/lib/isthmus/broker/audit.log"])?.stdout;
    for words in [
        &["attach done identity=\"gateway front2.alpha\"", "source=\""][..],
        &["node refused identity=\"gateway front2.alpha\"", "subject=\"n1\"", signed],
        &["node refused identity=\"gateway front2.alpha\"", "subject=\"n1\"", unsigned],
        &[
            "move done identity=\"agent n1.alpha\"",
            "from gateway front2 of site alpha to gateway front1 of site alpha",
        ],
    ] {
        let found = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        ensure!(found, "no line with {words:?} in\n{log}");
    }
    world.expect_clean()
}
