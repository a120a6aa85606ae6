//! Checks before a job starts, and warnings after it: each fault is made on a node,
//! and found there.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, Output, Shared, World, root};

static GRID: Shared = Shared::new("four-sites");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);

fn run(world: &World, options: &[&str], program: &str) -> Result<Output> {
    let mut all = vec!["--nodes", "n1.alpha,n1.beta,n2.beta"];
    all.extend(options);
    world.run("n1.alpha", &all, &["mpirun.openmpi", "-n", "4", program])
}

fn ensure_refused(output: &Output, node: &str, what: &str) -> Result<()> {
    // The run has ended by itself: a run that hangs is ended with another status.
    ensure!(output.status == 125, "{}", output.whole());
    let lines: Vec<_> = output.stderr.lines().filter(|line| line.contains(&format!("  {node}: "))).collect();
    ensure!(lines.len() == 1 && lines[0].contains(what), "{}", output.whole());
    ensure!(output.stderr.contains("--no-check"), "{}", output.whole());
    Ok(())
}

/// The program needs a library that a node lacks.
#[test]
fn a_missing_library_is_found_where_it_is_missing() -> Result<()> {
    let world = GRID.take()?;
    let make = "cd /tmp && mkdir -p lib && echo 'int f(void){return 0;}' > f.c && echo 'int f(void); int main(void){return f();}' > m.c \
                && cc -shared -fPIC -o lib/libonlyhere.so f.c && cc -o needs m.c -Llib -lonlyhere -Wl,-rpath,/tmp/lib";
    for node in ["n1.alpha", "n1.beta", "n2.beta"] {
        let made = world.sh(node, SOON, &["sh", "-c", make])?;
        ensure!(made.status == 0, "{}", made.whole());
    }
    let output = run(&world, &[], "/tmp/needs")?;
    ensure!(output.status == 0, "{}", output.whole());
    world.sh("n2.beta", SOON, &["rm", "/tmp/lib/libonlyhere.so"])?;
    let output = run(&world, &[], "/tmp/needs")?;
    ensure_refused(&output, "n2.beta", "/tmp/needs needs libonlyhere.so")?;
    ensure!(!output.stderr.contains("  n1.beta: "), "{}", output.whole());
    // `--no-check` starts the program at the user's own risk.
    let output = run(&world, &["--no-check"], "/tmp/needs")?;
    ensure!(!output.stderr.contains("not started"), "{}", output.whole());
    world.expect_clean()
}

/// Under the same path, nodes have launchers of different MPIs.
#[test]
fn another_mpi_on_one_node_is_found() -> Result<()> {
    let world = GRID.take()?;
    for (node, launcher) in
        [("n1.alpha", "mpirun.openmpi"), ("n1.beta", "mpirun.mpich"), ("n2.beta", "mpirun.openmpi")]
    {
        let link = format!("ln -sf $(command -v {launcher}) /tmp/mpirun");
        let made = world.sh(node, SOON, &["sh", "-c", &link])?;
        ensure!(made.status == 0, "{}", made.whole());
    }
    let hello = Mpi::OpenMpi.program("hello");
    let words = ["/tmp/mpirun", "-n", "4", &hello];
    let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta,n2.beta"], &words)?;
    ensure_refused(&output, "n1.beta", "is of MPICH")?;
    world.expect_clean()
}

#[test]
fn too_little_memory_is_found() -> Result<()> {
    let world = GRID.take()?;
    let output = run(&world, &["--min-memory", "900 GiB"], &Mpi::OpenMpi.program("hello"))?;
    ensure_refused(&output, "n1.beta", "--min-memory wants")?;
    ensure_refused(&output, "n2.beta", "--min-memory wants")?;
    let output = run(&world, &["--min-memory", "many"], "true")?;
    ensure!(output.status == 2, "{}", output.whole());
    world.expect_clean()
}

/// Two sites both reach the head's site, but not each other.
#[test]
#[ignore = "test-all"]
fn sites_that_cannot_reach_each_other_are_found() -> Result<()> {
    let world = GRID.take()?;
    let delta = world.lab().machine("n1.delta")?.address();
    // gamma may not send to delta's nodes, from whatever port to whatever port
    // (one allowed is enough to punch), and delta may not use the relay.
    let rules = |node: &str, rule: &str| -> Result<()> {
        let script = format!(
            "nft add table inet shut && nft add chain inet shut out '{{ type filter hook output priority 0; }}' && nft add rule inet shut out {rule}"
        );
        let done = world.sh(node, SOON, &["sh", "-c", &script])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(())
    };
    rules("n1.gamma", &format!("ip daddr {delta} meta l4proto tcp reject with tcp reset"))?;
    rules("n1.delta", "tcp dport 7720 reject with tcp reset")?;
    let hello = Mpi::OpenMpi.program("hello");
    let words = ["mpirun.openmpi", "-n", "3", &hello];
    // delta is reached by the head directly.
    let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.gamma,n1.delta"], &words)?;
    for node in ["n1.gamma", "n1.delta"] {
        let undone = world.sh(node, SOON, &["nft", "delete", "table", "inet", "shut"])?;
        ensure!(undone.status == 0, "{}", undone.whole());
    }
    ensure_refused(&output, "n1.gamma", "cannot reach n1.delta: ")?;
    world.expect_clean()
}

/// Connections between two other sites than the head's are tried, too, and their times are printed.
#[test]
fn ways_between_sites_are_timed() -> Result<()> {
    let world = GRID.take()?;
    let hello = Mpi::OpenMpi.program("hello");
    let output = world.run(
        "n1.alpha",
        &["--verbose", "--nodes", "n1.alpha,n1.beta,n1.delta"],
        &["mpirun.openmpi", "-n", "3", &hello],
    )?;
    ensure!(output.status == 0, "{}", output.whole());
    for way in ["beta reached alpha", "beta reached delta", "delta reached alpha", "delta reached beta"] {
        ensure!(output.stderr.contains(&format!("  {way} in ")), "{way}: {}", output.whole());
    }
    Ok(())
}

/// The program connects to another node by that node's real address.
#[test]
#[ignore = "test-all"]
fn a_connection_past_isthmus_is_warned_of() -> Result<()> {
    let world = GRID.take()?;
    let past = root().join("tests/programs/past.py").display().to_string();
    let there = world.lab().machine("n2.alpha")?.address().to_string();
    let nodes = ["--nodes", "n1.alpha,n2.alpha"];
    let words = ["mpirun.openmpi", "-n", "2", "--map-by", "node", "python3", &past, &there, "5998"];
    let (output, account) = world.run_reported("n1.alpha", &nodes, &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    let warning = "warning: n1.alpha and n2.alpha were joined past isthmus by TCP: ";
    ensure!(output.stderr.contains(warning) && output.stderr.contains(":5998"), "{}", output.whole());
    ensure!(account["bypasses"][0]["nodes"] == serde_json::json!(["n1.alpha", "n2.alpha"]), "{account:#}");
    // Connections that isthmus made itself are no bypasses.
    let ring = Mpi::OpenMpi.program("die");
    let words = ["timeout", "12", "mpirun.openmpi", "-n", "4", &ring, "never", "0", "sleep"];
    let (_, account) = world.run_reported("n1.alpha", &nodes, &words)?;
    ensure!(account["connections_within_sites"].as_u64() > Some(0), "{account:#}");
    ensure!(account["bypasses"] == serde_json::json!([]), "{account:#}");
    world.expect_clean()
}

#[test]
fn a_missing_program_on_one_node_starts_nothing() -> Result<()> {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let world = GRID.take()?;
        let hello = mpi.program("hello");
        // /tmp is each node's own.
        let copied = world.sh("n1.alpha", SOON, &["cp", &hello, "/tmp/only-here"])?;
        ensure!(copied.status == 0, "{}", copied.whole());
        let launcher = mpi.launcher();
        let words = [launcher.as_str(), "-n", "4", "/tmp/only-here"];
        let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &words)?;
        ensure!(output.status != 0 && output.status != 124, "{}", output.whole());
        ensure!(!output.stdout.contains("No Errors"), "{}", output.whole());
        ensure!((output.stdout.clone() + &output.stderr).contains("only-here"), "{}", output.whole());
        world.expect_clean()?;
    }
    let output = run(&*GRID.take()?, &[], &Mpi::OpenMpi.program("hello"))?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    Ok(())
}

#[test]
fn a_missing_launcher_ends_the_run_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.alpha", &[], &["mpirun.nowhere", "-n", "2", "true"])?;
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("mpirun.nowhere: command not found"), "{}", output.whole());
    let output = world.run("n1.alpha", &["--nodes", "n1.alpha"], &["/no/such/program"])?;
    ensure!(output.status == 127, "{}", output.whole());
    world.expect_clean()
}

/// A program that is looked for in the working directory is missing together with it.
#[test]
fn a_missing_directory_or_program_is_named_as_what_it_is() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus_e2e::isthmus().display().to_string();
    for node in ["n1.alpha", "n1.beta", "n2.beta"] {
        let make = "mkdir -p /tmp/only/run && ln -sf /bin/true /tmp/only/run/heat";
        let made = world.sh(node, SOON, &["sh", "-c", make])?;
        ensure!(made.status == 0, "{}", made.whole());
    }
    world.sh("n2.beta", SOON, &["rm", "-r", "/tmp/only"])?;
    let run = |program: &str| {
        let line = format!(
            "cd /tmp/only/run && exec {binary} run --nodes n1.alpha,n1.beta,n2.beta -- \
             mpirun.openmpi -n 4 {program}"
        );
        world.sh("n1.alpha", SOON, &["sh", "-c", &line])
    };
    let output = run("./heat")?;
    ensure_refused(&output, "n2.beta", "the directory /tmp/only/run is missing, so ./heat is, too")?;
    ensure!(!output.stderr.contains("  n1.beta: "), "{}", output.whole());
    // The launcher would find out once all daemons run.
    world.sh("n2.beta", SOON, &["mkdir", "-p", "/tmp/only/run"])?;
    let output = run("/tmp/only/haet")?;
    ensure!(output.status == 125, "{}", output.whole());
    let named = "  /tmp/only/haet is missing, or not executable, on every node";
    ensure!(output.stderr.contains(named), "{}", output.whole());
    ensure!(!output.stderr.contains("wired up"), "{}", output.whole());
    world.expect_clean()
}

/// Daemons that are started by ssh would meet no server.
#[test]
fn an_option_that_starts_ranks_past_the_agents_is_named() -> Result<()> {
    let world = GRID.take()?;
    for (mpi, option) in [
        (Mpi::OpenMpi, ["--mca", "plm_rsh_agent", "ssh"]),
        (Mpi::OpenMpi5, ["--prtemca", "plm_ssh_agent", "ssh"]),
        (Mpi::Mpich, ["-launcher-exec", "ssh", "-verbose"]),
    ] {
        let (launcher, hello) = (mpi.launcher(), mpi.program("hello"));
        let words = [&[launcher.as_str()], &option[..], &["-n", "4", &hello]].concat();
        let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &words)?;
        ensure!(output.status == 125, "{}", output.whole());
        let named = format!("{} ssh has ", option[..2].join(" ").trim_end_matches(" ssh"));
        ensure!(output.stderr.contains(&named), "no {named:?} in {}", output.whole());
        ensure!(output.stderr.contains("start ranks past isthmus"), "{}", output.whole());
        ensure!(!output.stderr.contains("port 22"), "{}", output.whole());
        world.expect_clean()?;
    }
    Ok(())
}

/// Open MPI would find too few slots.
#[test]
fn names_that_the_launcher_does_not_know_are_told() -> Result<()> {
    let world = GRID.take()?;
    let nodes = ["--nodes", "n1.beta,n2.beta"];
    let hello = Mpi::OpenMpi.program("hello");
    let words = ["mpirun.openmpi", "--host", "n1,n2", "-n", "2", &hello];
    let output = world.run("n1.beta", &nodes, &words)?;
    ensure!(output.status == 125, "{}", output.whole());
    let named = "in --host n1,n2, n1 is n1.beta, n2 is n2.beta to Open MPI 4";
    ensure!(output.stderr.contains(named), "no {named:?} in {}", output.whole());
    let words = ["mpirun.openmpi", "--host", "n2.beta", "-n", "1", &hello];
    let output = world.run("n1.beta", &nodes, &words)?;
    ensure!(output.status == 0 && !output.stderr.contains("--map-by"), "{}", output.whole());
    // MPICH's launches by that name are passed on.
    let (launcher, hello) = (Mpi::Mpich.launcher(), Mpi::Mpich.program("hello"));
    let output = world.run("n1.beta", &nodes, &[&launcher, "-hosts", "n1,n2", "-n", "2", &hello])?;
    ensure!(output.status == 0, "{}", output.whole());
    world.expect_clean()
}

#[test]
fn an_unknown_node_ends_the_run_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.alpha", &["--nodes", "n9.beta"], &["true"])?;
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("\"n9.beta\" is neither a node nor a site"), "{}", output.whole());
    Ok(())
}
