//! What other users of a node can't do: put a library where a job's was, take the place
//! of an agent or of its directory, or redirect what a command writes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Output, Shared, World, isthmus, root};

static GRID: Shared = Shared::new("two-relays");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// Id of another user of the node: nobody.
const OTHER: &str = "65534";

/// Runs a shell script in a node as another user.
fn other(world: &World, node: &str, script: &str) -> Result<Output> {
    let words = ["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups", "sh", "-c", script];
    world.sh(node, SOON, &words)
}

fn own(world: &World, node: &str, script: &str) -> Result<Output> {
    let output = world.sh(node, SOON, &["sh", "-c", script])?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(output)
}

/// A saved environment names a job's library for ever. Another user puts a library of their own at
/// its path.
#[test]
fn a_job_s_former_path_is_out_of_other_users_reach() -> Result<()> {
    let world = GRID.take()?;
    let words = ["sh", "-c", "echo $LD_PRELOAD"];
    let output = world.run("n1.alpha", &["--quiet", "--nodes", "n1.alpha"], &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    let saved = output.stdout.trim().split(':').next().unwrap_or_default().to_owned();
    let directory = saved.rsplit_once('/').context("no library")?.0;
    World::eventually("the job's directory is gone", SOON, || {
        Ok(world.sh("n1.alpha", SOON, &["test", "-e", directory])?.status != 0)
    })?;
    let evil = format!(
        "printf 'void __attribute__((constructor)) f(void) {{ extern int puts(const char*); puts(\"taken over\"); }}' > /tmp/evil.c; \
         cc -shared -fPIC -o /tmp/evil.so /tmp/evil.c && mkdir -p {directory} && cp /tmp/evil.so {saved}"
    );
    own(&world, "n1.alpha", "chmod 1777 /tmp")?;
    let made = other(&world, "n1.alpha", &evil)?;
    ensure!(made.status != 0 && made.stderr.contains("Permission denied"), "{}", made.whole());
    // A batch system starts a command with the saved environment.
    let later = own(&world, "n1.alpha", &format!("LD_PRELOAD={saved} /bin/echo later"))?;
    ensure!(later.stdout == "later\n" && later.stderr.contains("cannot be preloaded"), "{}", later.whole());
    Ok(())
}

/// An agent refuses a runtime directory whose content another user decides about.
#[test]
fn an_agent_refuses_another_user_s_directory() -> Result<()> {
    let world = GRID.take()?;
    own(&world, "n1.beta", "chmod 1777 /tmp; mkdir -p /tmp/open && chmod 777 /tmp/open")?;
    ensure!(other(&world, "n1.beta", "mkdir -p -m 700 /tmp/theirs")?.status == 0);
    let binary = isthmus().display().to_string();
    for (directory, wanted) in [
        ("/tmp/theirs", "/tmp/theirs belongs to user id 65534, not to user id 0"),
        ("/tmp/theirs/below", "/tmp/theirs belongs to user id 65534, not to user id 0"),
        ("/tmp/open", "/tmp/open (owner: user id 0, mode 0777) may be written by other users"),
        ("/tmp/open/below", "/tmp/open (owner: user id 0, mode 0777) may be written by other users"),
        ("/tmp", "/tmp (owner: user id 0, mode 1777) may be written by other users"),
    ] {
        let script = format!(
            "cat /run/isthmus-machine/agent.toml > /tmp/refused.toml && \
             echo 'runtime_directory = \"{directory}\"' >> /tmp/refused.toml && \
             exec timeout 60 {binary} agent --state /var/lib/isthmus/agent --config /tmp/refused.toml"
        );
        let output = world.sh("n1.beta", SOON, &["sh", "-c", &script])?;
        ensure!(
            output.status == 1
                && output.stderr.contains(wanted)
                && output.stderr.contains("[agent] runtime_directory"),
            "{directory}: {}",
            output.whole()
        );
    }
    Ok(())
}

/// A process that serves a socket in place of an agent.
struct Fake(Child, BufReader<std::process::ChildStdout>);

impl Fake {
    fn start(world: &World, path: &str, owner: &str) -> Result<Self> {
        let program = root().join("tests/programs/fake_agent.py").display().to_string();
        let words = ["python3", &program, path, owner, OTHER];
        let mut command = world.command("n1.alpha", SOON * 3, &words)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut fake = Self(child, output);
        ensure!(fake.line()? == "ready");
        Ok(fake)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Commands send nothing to a socket that another user has put in place of the agent's.
#[test]
fn commands_send_nothing_to_another_user_s_agent() -> Result<()> {
    let world = GRID.take()?;
    let (binary, theirs, own_path) =
        (isthmus().display().to_string(), "/tmp/false/agent.sock", "/run/false/agent.sock");
    own(
        &world,
        "n1.alpha",
        &format!(
            "chmod 1777 /tmp; mkdir -p -m 700 /run/false; mkdir -p /tmp/false; chown {OTHER} /tmp/false; \
             rm -f {theirs} {own_path}"
        ),
    )?;
    let run = |socket: &str| {
        world.sh("n1.alpha", SOON, &[&binary, "run", "--quiet", "--socket", socket, "--", "true"])
    };
    let mut fake = Fake::start(&world, theirs, OTHER)?;
    let output = run(theirs)?;
    let wanted = "/tmp/false belongs to user id 65534, not to user id 0";
    ensure!(output.status == 125 && output.stderr.contains(wanted), "{}", output.whole());
    // The refused command has not even connected: this is the first connection.
    let probe = format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{theirs}\"); s.send(b\"x\")'"
    );
    own(&world, "n1.alpha", &probe)?;
    ensure!(fake.line()? == "received 1");
    // The path is right, but the process is another user's.
    let mut fake = Fake::start(&world, own_path, "0")?;
    let output = run(own_path)?;
    let wanted = "the process that listens at /run/false/agent.sock runs as user id 65534, not as user id 0";
    ensure!(output.status == 125 && output.stderr.contains(wanted), "{}", output.whole());
    ensure!(fake.line()? == "received 0");
    Ok(())
}

/// Another user beforehand makes links of all names that a command may write to.
#[test]
fn a_token_is_not_written_through_another_user_s_link() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    own(&world, "hub", "rm -rf /tmp/all; mkdir /tmp/all && chmod 777 /tmp/all")?;
    let links = "import os\nos.setresuid(65534, 65534, 65534)\nopen('/tmp/all/stolen', 'w').close()\nos.chmod('/tmp/all/stolen', 0o666)\n\
                 os.symlink('stolen', '/tmp/all/token')\n\
                 for pid in range(40000): os.symlink('stolen', f'/tmp/all/token.new-{pid}')";
    let made = world.sh("hub", SOON, &["python3", "-c", links])?;
    ensure!(made.status == 0, "{}", made.whole());
    let invite = format!(
        "{binary} grid invite --role agent --site alpha --owner ada --out /tmp/all/token \
         --state /var/lib/isthmus/broker && stat -c '%F %a %u' /tmp/all/token && wc -c < /tmp/all/stolen"
    );
    let output = own(&world, "hub", &invite)?;
    ensure!(output.stdout.ends_with("regular file 600 0\n0\n"), "{}", output.whole());
    Ok(())
}

/// Starts the agent of a node anew, with another runtime directory.
fn moved(world: &World, node: &str, directory: &str) -> Result<Job> {
    world.stop(node, "agent")?;
    let settings = format!("runtime_directory = \"{directory}\"");
    own(world, node, &format!("(cat /run/isthmus-machine/agent.toml; echo '{settings}') > /run/moved.toml"))?;
    let binary = isthmus().display().to_string();
    let agent = world.serve(node, "agent", &[], "/run/moved.toml")?;
    let status = [binary.as_str(), "status", "--json"];
    World::eventually("it is attached", SOON, || {
        let status = world.sh("n1.alpha", SOON, &status)?;
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        Ok(nodes.iter().any(|found| found["name"] == node && found["up"] == true))
    })?;
    Ok(agent)
}

/// Launchers pass the head's LD_PRELOAD and the path of its launch script on to nodes whose job
/// directory is elsewhere.
#[test]
fn job_directories_may_differ_from_node_to_node() -> Result<()> {
    let world = World::up("two-relays")?;
    let _first = moved(&world, "n1.beta", "/var/lib/isthmus/elsewhere")?;
    let _second = moved(&world, "n2.beta", "/var/lib/isthmus/again/elsewhere")?;
    let binary = isthmus().display().to_string();
    let (two, three) = (["--nodes", "n1.alpha,n1.beta"], ["--nodes", "n1.alpha,n1.beta,n2.beta"]);
    let right = |output: Output| -> Result<()> {
        ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
        ensure!(!output.stderr.contains("cannot be preloaded"), "{}", output.whole());
        Ok(())
    };
    for mpi in [Mpi::OpenMpi, Mpi::Mpich4, Mpi::Mpich, Mpi::OpenMpi5] {
        let (launcher, hello) = (mpi.launcher(), mpi.program("hello"));
        let output = world.run("n1.alpha", &two, &[&launcher, "-n", "4", &hello])?;
        right(output).with_context(|| format!("{mpi:?}"))?;
    }
    let (launcher, hello) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("hello"));
    // The user passes the variable on.
    let words = [launcher.as_str(), "-x", "LD_PRELOAD", "-n", "6", &hello];
    right(world.run("n1.alpha", &three, &words)?)?;
    // Each daemon starts the next one, by the launch script.
    let words =
        [launcher.as_str(), "--mca", "routed", "radix", "--mca", "routed_radix", "1", "-n", "6", &hello];
    right(world.run("n1.alpha", &three, &words)?).context("a tree of daemons")?;
    // A head whose directory is elsewhere, and a command at each node.
    let run = |nodes: [&str; 2], words: &[&str]| -> Result<Output> {
        let socket = "/var/lib/isthmus/elsewhere/agent.sock";
        let mut all = vec![binary.as_str(), "run", "--socket", socket, nodes[0], nodes[1]];
        all.extend(words);
        world.sh("n1.beta", SOON, &all)
    };
    let (launcher, hello) = (Mpi::Mpich.launcher(), Mpi::Mpich.program("hello"));
    right(run(two, &["--", &launcher, "-n", "4", &hello])?)?;
    let output = run(three, &["--quiet", "--each", "--no-prefix", "--", "sh", "-c", "echo $LD_PRELOAD"])?;
    for directory in ["/run/isthmus/", "/var/lib/isthmus/elsewhere/", "/var/lib/isthmus/again/elsewhere/"] {
        let found = output.stdout.lines().any(|line| line.starts_with(directory));
        ensure!(found, "{directory}: {}", output.whole());
    }
    Ok(())
}
