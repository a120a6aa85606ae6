//! Who may connect, what is listened on, and what others see.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Shared, World, isthmus, root};
use isthmus_rpc::connection;
use isthmus_service::mac::Secret;
use isthmus_wire::preamble::{ANSWER_LEN, Answer, Preamble, Status};

static GRID: Shared = Shared::new("four-sites");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(120);

/// Path of a program of tests/programs.
fn program(name: &str) -> String {
    root().join("tests/programs").join(name).display().to_string()
}

#[test]
fn nobody_listening_is_connection_refused() -> Result<()> {
    let world = GRID.take()?;
    for peer in ["n1.beta", "n1.delta", "n2.alpha", "n1.alpha"] {
        for mode in ["blocking", "non-blocking"] {
            let probe = program("connect.py");
            let output = world.run("n1.alpha", &[], &["python3", &probe, mode, peer, "5999"])?;
            ensure!(output.stdout.trim() == "ECONNREFUSED", "{peer}, {mode}: {}", output.whole());
        }
    }
    Ok(())
}

#[test]
fn a_node_outside_the_job_is_out_of_reach() -> Result<()> {
    let world = GRID.take()?;
    let probe = program("connect.py");
    let words = ["python3", &probe, "blocking", "240.64.99.1", "5999"];
    let output = world.run("n1.alpha", &["--nodes", "alpha"], &words)?;
    ensure!(output.stdout.trim() == "EHOSTUNREACH", "{}", output.whole());
    Ok(())
}

/// Starts a job that lasts until it is dropped, so that its ports, tokens and sockets can be
/// probed.
fn lasting(world: &World) -> Result<Job> {
    // The job of another test may be about to end.
    world.expect_clean()?;
    let job = world.endless(Mpi::OpenMpi, "n1.alpha,n1.delta", &[])?;
    World::eventually("the far ranks run", SOON, || {
        let listing = world.sh("n1.delta", SOON, &["ps", "-eo", "args="])?;
        Ok(listing.stdout.lines().any(|line| line.contains("/die never")))
    })?;
    Ok(job)
}

#[test]
fn only_services_listen_on_the_network() -> Result<()> {
    let world = GRID.take()?;
    let _job = lasting(&world)?;
    for node in ["n1.alpha", "n1.delta"] {
        // While an agent finds out what its site lets in, it listens at further ports.
        let mut found = Vec::new();
        World::eventually("only services listen", SOON, || {
            found = listened_on(&world, node)?;
            Ok(found.is_empty())
        })
        .with_context(|| format!("{node} listens on {found:?}"))?;
    }
    Ok(())
}

/// Addresses of a node at which something listens that is neither a service nor on loopback.
fn listened_on(world: &World, node: &str) -> Result<Vec<String>> {
    let listing = world.sh(node, SOON, &["ss", "-Htln"])?;
    ensure!(listing.status == 0, "{}", listing.whole());
    let mut found = Vec::new();
    for line in listing.stdout.lines() {
        let local = line.split_whitespace().nth(3).context("no address")?;
        let (host, port) = local.rsplit_once(':').context("no port")?;
        // `ss` shows the interface a listener is kept on: 0.0.0.0%lo.
        let loopback = host.starts_with("127.") || host.contains("%lo") || host == "[::1]";
        if !loopback && !["7710", "7730"].contains(&port) {
            found.push(local.to_owned());
        }
    }
    Ok(found)
}

#[test]
fn no_secret_is_in_an_argument_list_or_the_environment() -> Result<()> {
    let world = GRID.take()?;
    let _job = lasting(&world)?;
    let script = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'";
    for node in ["n1.alpha", "n1.delta", "hub"] {
        let seen = world.sh(node, SOON, &["sh", "-c", script])?.stdout.to_lowercase();
        for word in ["begin private key", "begin ec private key", "token=", "secret="] {
            ensure!(!seen.contains(word), "{node}: {word}");
        }
    }
    let modes = "find /var/lib/isthmus /run/isthmus -name '*.sock' -o -name 'key.pem' -o -type d | xargs stat -c '%a %n'";
    let listing = world.sh("n1.alpha", SOON, &["sh", "-c", modes])?;
    for line in listing.stdout.lines().filter(|line| line.contains(".sock") || line.contains("key.pem")) {
        ensure!(line.starts_with("600 "), "{line}");
    }
    Ok(())
}

/// A peer speaks to the agent of n1.delta, which every site can reach. It has the job's id but not
/// its token.
#[test]
fn a_wrong_token_reaches_no_rank() -> Result<()> {
    let world = GRID.take()?;
    let _job = lasting(&world)?;
    let directory = world.sh("n1.delta", SOON, &["sh", "-c", "ls -d /run/isthmus/*/"])?.stdout;
    let job = directory.trim().rsplit('/').nth(1).context("no job")?.parse()?;
    let status = world.status("n1.alpha")?;
    let address = |name: &str| -> Result<std::net::Ipv4Addr> {
        let nodes = status["nodes"].as_array().context("no nodes")?;
        let node = nodes.iter().find(|node| node["name"] == name).context("no such node")?;
        Ok(node["virtual_address"].as_str().context("no address")?.parse()?)
    };
    let preamble = Preamble {
        job,
        nonce: connection::new_nonce(),
        source: address("n1.alpha")?,
        source_port: 1,
        destination: address("n1.delta")?,
        destination_port: 22,
    };
    let target = world.lab().machine("n1.delta")?.address();
    let answer = world.lab().machine("n2.alpha")?.in_network(|| -> Result<[u8; ANSWER_LEN]> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect((target, 7730))?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(&Secret::random().seal_preamble(&preamble))?;
        let mut answer = [0; ANSWER_LEN];
        stream.read_exact(&mut answer)?;
        ensure!(stream.read(&mut [0])? == 0, "the connection stays open");
        Ok(answer)
    })??;
    let (answer, _) = Answer::decode(&answer)?;
    ensure!(answer.status == Status::Denied, "{answer:?}");
    Ok(())
}

#[test]
fn a_forged_join_token_gets_no_certificate() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    let script = format!(
        "set -e; {binary} grid invite --role relay --name evil --out /tmp/token >/dev/null; \
         sed 's/.$/A/;s/^\\(.\\{{60\\}}\\)./\\1X/' /tmp/token > /tmp/forged; cmp -s /tmp/token /tmp/forged && exit 99; \
         {binary} join --state /tmp/evil --token /tmp/forged"
    );
    let output = world.sh("hub", SOON, &["sh", "-c", &script])?;
    ensure!(output.status != 0 && output.status != 99 && output.status != 124, "{}", output.whole());
    let key = world.sh("hub", SOON, &["ls", "/tmp/evil/identity.pem"])?;
    ensure!(key.status != 0, "a certificate was issued: {}", output.whole());
    Ok(())
}

#[test]
fn the_relay_sees_ciphertext_only() -> Result<()> {
    let world = GRID.take()?;
    relay_sees_nothing_of(&world, "n1.alpha", "n1.beta")
}

/// Checks that the relay on `hub` sees nothing of what two nodes say to each other over it.
pub(crate) fn relay_sees_nothing_of(world: &World, from: &str, to: &str) -> Result<()> {
    let sniffer = program("sniff.py");
    let mut sniffing = world
        .command("hub", SOON * 2, &["python3", &sniffer, "isthmus-plain-marker"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(sniffing.stdout.take().context("no output")?));
    ensure!(lines.next().context("no line")?? == "listening");
    let talk = program("talk.py");
    let output = world.run(
        from,
        &["--nodes", &format!("{from},{to}")],
        &[&Mpi::OpenMpi.launcher(), "-n", "2", "--map-by", "node", "python3", &talk, "isthmus-plain-marker"],
    )?;
    ensure!(output.status == 0 && output.stdout.contains("received 1000000 bytes"), "{}", output.whole());
    drop(sniffing.stdin.take());
    let seen = lines.next().context("no line")??;
    sniffing.wait()?;
    let numbers: Vec<u64> = seen.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [packets, bytes, marked] = numbers[..] else { anyhow::bail!("{seen}") };
    ensure!(bytes >= 1_000_000 && packets > 10, "the sniffer saw too little: {seen}");
    ensure!(marked == 0, "the marker crossed the relay in the clear: {seen}");
    Ok(())
}

#[test]
fn status_shows_how_nodes_are_joined() -> Result<()> {
    let world = GRID.take()?;
    let _job = lasting(&world)?;
    let binary = isthmus().display().to_string();
    World::eventually("status shows the job and its connections", SOON, || {
        let status = world.status("n1.beta")?;
        ensure!(status["sites"].as_array().map(Vec::len) == Some(4), "{status:#}");
        ensure!(status["nodes"].as_array().map(Vec::len) == Some(6), "{status:#}");
        ensure!(status["relays"].as_array().map(Vec::len) == Some(1), "{status:#}");
        let jobs = status["jobs"].as_array().cloned().unwrap_or_default();
        Ok(jobs.len() == 1 && jobs[0]["joined"].as_array().is_some_and(|joined| !joined.is_empty()))
    })?;
    let output = world.sh("n1.beta", SOON, &[&binary, "status"])?;
    for word in ["alpha", "n2.beta", "hub", "mpirun"] {
        ensure!(output.stdout.contains(word), "{word}\n{}", output.whole());
    }
    Ok(())
}
