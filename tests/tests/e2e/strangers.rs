//! Jobs of one user and of several, side by side: none reaches another's ranks,
//! neither with an address nor with recorded bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, World, files, isthmus, root};
use isthmus_wire::preamble::{ANSWER_LEN, Answer, PREAMBLE_LEN, Preamble, Status};

static GRID: Shared = Shared::new("two-relays");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
const PORT: &str = "5999";

fn program(name: &str) -> String {
    root().join("tests/programs").join(name).display().to_string()
}

/// A command whose output is read line by line. It is ended when this value is dropped.
struct Talking(Child, BufReader<ChildStdout>);

impl Talking {
    fn start(world: &World, node: &str, words: &[&str]) -> Result<Self> {
        let mut command = world.command(node, SOON * 10, words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self(child, output))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line)?;
        ensure!(!line.is_empty(), "it has ended");
        Ok(line.trim().to_owned())
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = std::process::Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The virtual address of a node, from `isthmus status`.
fn address(world: &World, name: &str) -> Result<Ipv4Addr> {
    let status = world.status("n1.alpha")?;
    let nodes = status["nodes"].as_array().context("no nodes")?;
    let node = nodes.iter().find(|node| node["name"] == name).context("no such node")?;
    Ok(node["virtual_address"].as_str().context("no address")?.parse()?)
}

/// A job's head, n1.beta, listens. The job's own other node reaches it. Another job of the same
/// user, with the right address and port, does not.
#[test]
fn a_stolen_address_leads_nowhere() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    let (listener, client) = (program("listener.py"), program("client.py"));
    let run = [binary.as_str(), "run", "--quiet", "--nodes", "n1.beta,n1.alpha", "--"];
    // The client of the same job is started as a launcher would.
    let script = format!(
        "python3 {listener} {PORT} & \
         /run/isthmus/*/launch n1.alpha python3 {client} n1.beta {PORT} again | sed 's/^/own /'; wait"
    );
    let mut words = run.to_vec();
    words.extend(["sh", "-c", &script]);
    let mut job = Talking::start(&world, "n1.beta", &words)?;
    let mut printed = vec![job.line()?];
    while !printed.iter().any(|line| line.starts_with("own ")) {
        printed.push(job.line()?);
    }
    ensure!(printed.iter().any(|line| line == "own got b'secret'"), "{printed:?}");
    ensure!(printed.iter().any(|line| line.ends_with("b'hello'")), "{printed:?}");

    let stolen = address(&world, "n1.beta")?.to_string();
    let words = ["python3", &client, &stolen, PORT];
    let output = world.run("n1.alpha", &["--quiet", "--nodes", "n1.alpha,n1.beta"], &words)?;
    ensure!(!output.stdout.contains("secret"), "another job's rank answered: {}", output.whole());
    ensure!(output.stdout.contains("failed") || output.stdout.contains("got b''"), "{}", output.whole());
    // A job without that node can't even ask.
    let output = world.run("n1.alpha", &["--quiet", "--nodes", "n1.alpha"], &words)?;
    ensure!(output.stdout.contains("failed"), "{}", output.whole());
    // The listener got neither.
    world.kill("n1.beta", "-TERM", &world.service("n1.beta", "run")?)?;
    let mut rest = String::new();
    job.1.read_to_string(&mut rest)?;
    ensure!(!rest.contains("client"), "{rest}");
    drop(job);
    world.expect_clean()
}

/// Bytes of an admitted connection were seen on the wire between two sites that trust each other.
/// Sent again, changed or not, they open nothing.
#[test]
fn a_replayed_preamble_is_denied() -> Result<()> {
    let world = World::up("trusted")?;
    let mut recorder = Talking::start(&world, "n1.beta", &["python3", &program("record.py")])?;
    ensure!(recorder.line()? == "recording");
    let job = world.endless(Mpi::OpenMpi, "n1.beta,n1.alpha", &[])?;
    let recorded = loop {
        let bytes = recorder.line()?;
        let bytes: Vec<u8> = (0..bytes.len() / 2)
            .map(|index| u8::from_str_radix(&bytes[2 * index..2 * index + 2], 16))
            .collect::<Result<_, _>>()?;
        let bytes: [u8; PREAMBLE_LEN] = bytes.try_into().ok().context("not a whole preamble")?;
        // Heartbeats begin with a preamble, too. This preamble is to be a program's.
        if Preamble::decode(&bytes)?.0.destination_port != 0 {
            break bytes;
        }
    };
    let to = world.lab().machine("n1.beta")?.address();
    let send = |bytes: &[u8; PREAMBLE_LEN]| -> Result<Status> {
        // From a node that is in the grid and not in the job.
        let answer = world.lab().machine("n1.gamma")?.in_network(|| -> Result<[u8; ANSWER_LEN]> {
            let mut stream = TcpStream::connect((to, 7730))?;
            stream.set_read_timeout(Some(SOON))?;
            stream.write_all(bytes)?;
            let mut answer = [0; ANSWER_LEN];
            stream.read_exact(&mut answer)?;
            ensure!(stream.read(&mut [0])? == 0, "the connection stays open");
            Ok(answer)
        })??;
        Ok(Answer::decode(&answer)?.0.status)
    };
    ensure!(send(&recorded)? == Status::Denied, "as it was recorded");
    let (preamble, mac) = Preamble::decode(&recorded)?;
    for (what, other) in [
        ("another nonce", Preamble { nonce: isthmus_rpc::connection::new_nonce(), ..preamble }),
        ("another port", Preamble { destination_port: 22, ..preamble }),
        ("as a heartbeat", Preamble { destination_port: 0, ..preamble }),
        ("another source", Preamble { source: preamble.destination, ..preamble }),
    ] {
        ensure!(send(&other.encode(&mac))? == Status::Denied, "{what}");
    }
    drop(job);
    World::eventually("the job is gone", SOON, || Ok(send(&recorded)? == Status::UnknownJob))
}

/// A second user, with another user id and agents of their own on the same nodes. They share
/// nothing with the first user but the machines.
struct Other;

const OTHER_ID: &str = "4711";

impl Other {
    /// The words of a command that the second user runs.
    fn words<'a>(words: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["setpriv", "--reuid", OTHER_ID, "--regid", OTHER_ID, "--clear-groups"];
        all.extend(["env", "HOME=/tmp/bob", "TMPDIR=/tmp/bob/tmp", "ISTHMUS_AGENT=/run/bob/agent.sock"]);
        all.extend(words);
        all
    }

    /// Has the second user's agent on a node join, and starts it.
    fn join(world: &World, node: &str, gateway: &str) -> Result<Talking> {
        let (name, site) = node.split_once('.').context("no site")?;
        let (binary, files) = (isthmus().display().to_string(), files().display().to_string());
        let file = world.directory.path().join(format!("token-{site}")).display().to_string();
        let mut invite = vec![binary.as_str(), "grid", "invite", "--role", "agent", "--site", site];
        invite.extend(["--owner", "bob", "--out", &file, "--state", "/var/lib/isthmus/broker"]);
        let invited = world.sh("hub", SOON, &invite)?;
        ensure!(invited.status == 0, "{}", invited.whole());
        let at = world.lab().machine(node)?.address();
        let via = world.lab().machine(gateway)?.address();
        let hello = Mpi::OpenMpi.program("hello");
        // Nothing below the repository need be open to other users.
        let script = format!(
            "set -e; mkdir -p /tmp/bin /run/bob /tmp/bob/tmp /tmp/bob/state; chmod 1777 /tmp; \
             cp {files}/isthmus {files}/libisthmus_*.so {hello} /tmp/bin; chmod -R a+rX /tmp/bin; \
             cp {file} /tmp/bob/token; \
             printf '[agent]\\nlisten = \"{at}:7731\"\\nruntime_directory = \"/run/bob\"\\nslots = 2\\n' > /tmp/bob/state/isthmus.toml; \
             chown -R {OTHER_ID}:{OTHER_ID} /tmp/bob /run/bob; chmod 700 /tmp/bob/state /run/bob"
        );
        let made = world.sh(node, SOON, &["sh", "-c", &script])?;
        ensure!(made.status == 0, "{}", made.whole());
        let (own, via) = (format!("bob-{name}"), format!("{via}:7710"));
        let join = |name: &str| {
            let mut words = vec!["/tmp/bin/isthmus", "join", "--state", "/tmp/bob/state", "--name", name];
            words.extend(["--via", &via, "--token", "/tmp/bob/token"]);
            world.sh(node, SOON, &Self::words(&words))
        };
        // The name of the first user's node stays with the first user, and the refused
        // join does not use up the token.
        let taken = join(name)?;
        ensure!(taken.status == 1 && taken.stderr.contains("isthmus grid remove"), "{}", taken.whole());
        let joined = join(&own)?;
        ensure!(joined.status == 0, "{}", joined.whole());
        Talking::start(world, node, &Self::words(&["/tmp/bin/isthmus", "agent", "--state", "/tmp/bob/state"]))
    }
}

#[test]
#[ignore = "test-all"]
fn twenty_jobs_of_two_users_at_once() -> Result<()> {
    // So many jobs leave no processor to the tests beside them.
    let world = World::up_alone("two-relays")?;
    let _agents = [Other::join(&world, "n1.alpha", "n1.alpha")?, Other::join(&world, "n1.beta", "n2.beta")?];
    let binary = isthmus().display().to_string();
    World::eventually("bob's agents are attached", SOON, || {
        let status = world.sh("n1.alpha", SOON, &[&binary, "status", "-v"])?;
        Ok(status.stdout.contains("bob-n1.alpha") && status.stdout.contains("bob-n1.beta"))
    })?;
    let run = |bob: bool, sites: &str| -> Result<std::process::Command> {
        let mut words = vec![if bob { "/tmp/bin/isthmus" } else { &binary }, "run", "--nodes", sites, "--"];
        words.extend(["mpirun.openmpi", "-n", "2", "--map-by", "node", "/tmp/bin/hello"]);
        let words = if bob { Other::words(&words) } else { words };
        world.command("n1.alpha", SOON * 5, &words)
    };
    let mut jobs = Vec::new();
    for index in 0..20 {
        let bob = index % 2 == 1;
        let sites = if bob { "bob-n1.alpha,bob-n1.beta" } else { "n1.alpha,n1.beta" };
        let mut command = run(bob, sites)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        jobs.push((bob, command.spawn()?));
    }
    for (bob, job) in jobs {
        let output = job.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && printed.contains(" No Errors"), "bob: {bob}\n{printed}");
        let (own, other) =
            if bob { ("on bob-n1.beta", "on n1.beta") } else { ("on n1.beta", "on bob-n1.beta") };
        ensure!(printed.contains(own) && !printed.contains(other), "bob: {bob}\n{printed}");
    }
    // Neither user may use the other's nodes, agent or files.
    let output = run(true, "n1.beta")?.output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125) && printed.contains("its agent works for"), "{printed}");
    let intruder =
        Other::words(&["/tmp/bin/isthmus", "run", "--socket", "/run/isthmus/agent.sock", "--", "true"]);
    let output = world.sh("n1.alpha", SOON, &intruder)?;
    ensure!(output.status == 125 && output.stderr.contains("Permission denied"), "{}", output.whole());
    for node in ["n1.alpha", "n1.beta"] {
        World::eventually("nothing of the jobs is left", SOON, || {
            let left =
                world.sh(node, SOON, &["sh", "-c", "ls -d /run/isthmus/*/ /run/bob/*/ 2>/dev/null"])?;
            Ok(left.stdout.is_empty())
        })?;
    }
    Ok(())
}
