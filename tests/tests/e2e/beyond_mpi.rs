//! Programs that speak TCP without MPI, between two sites behind NATs, run as in
//! docs/beyond-mpi.md.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Output, Shared, World, isthmus, root};

static GRID: Shared = Shared::new("four-sites");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
const LONG: Duration = Duration::from_secs(240);

/// The option for two nodes at two sites behind NATs.
const NODES: [&str; 2] = ["--nodes", "n1.alpha,n1.beta"];

/// The beginning of a command that runs as an ordinary user. PostgreSQL and nginx want that, but
/// the grid's agents run as root.
const ORDINARY_USER: [&str; 4] = ["unshare", "--user", "--map-user=1000", "--map-group=1000"];

/// Runs a command that itself calls `isthmus` under `isthmus run`.
fn run(world: &World, options: &[&str], words: &[&str]) -> Result<Output> {
    let directory = isthmus().parent().map(|path| path.display().to_string()).unwrap_or_default();
    let path = format!("PATH={directory}:{}", std::env::var("PATH").unwrap_or_default());
    world.run("n1.alpha", &[&NODES[..], options].concat(), &[&["env", &path][..], words].concat())
}

#[test]
fn each_node_runs_the_command_and_knows_which_it_is() -> Result<()> {
    let world = GRID.take()?;
    let script = "echo $ISTHMUS_NODE_RANK of $ISTHMUS_NODES on $(hostname) led by $ISTHMUS_HEAD, $COLOUR";
    let options = [&NODES[..], &["--each", "--quiet", "--env", "COLOUR=blue"]].concat();
    let output = world.run("n1.alpha", &options, &["sh", "-c", script])?;
    let mut lines: Vec<_> = output.stdout.lines().collect();
    lines.sort_unstable();
    let want = [
        "n1.alpha: 0 of 2 on n1.alpha led by n1.alpha, blue",
        "n1.beta: 1 of 2 on n1.beta led by n1.alpha, blue",
    ];
    ensure!(output.status == 0 && lines == want, "{}", output.whole());

    let options = [&NODES[..], &["--each", "--no-prefix"]].concat();
    let output = world.run("n1.alpha", &options, &["printf", "%s\\n", "it's  so"])?;
    ensure!(output.status == 0 && output.stdout == "it's  so\nit's  so\n", "{}", output.whole());

    let profile = world.directory.path().join("job.toml");
    std::fs::write(&profile, "[[group]]\nname = 'head'\nranks = 1\n[[group]]\nname = 'rest'\nranks = 1\n")?;
    let profile = profile.display().to_string();
    let options = [&options[..], &["--profile", &profile]].concat();
    let script = "echo $ISTHMUS_GROUP_LIST: $ISTHMUS_GROUP $ISTHMUS_GROUP_RANK of $ISTHMUS_GROUP_RANKS on $ISTHMUS_NODE";
    let output = world.run("n1.alpha", &options, &["sh", "-c", script])?;
    let mut lines: Vec<_> = output.stdout.lines().collect();
    lines.sort_unstable();
    let want = ["head:1,rest:1: head 0 of 1 on n1.alpha", "head:1,rest:1: rest 0 of 1 on n1.beta"];
    ensure!(output.status == 0 && lines == want, "{}", output.whole());
    world.expect_clean()
}

#[test]
fn the_first_to_fail_ends_the_command_on_all_nodes() -> Result<()> {
    let world = GRID.take()?;
    // The sleep lasts longer than a test waits for a run.
    let script = "[ $ISTHMUS_NODE_RANK = 0 ] || exit 7; exec sleep 3600";
    let output = world.run("n1.alpha", &[&NODES[..], &["--each"]].concat(), &["sh", "-c", script])?;
    ensure!(output.status == 7, "{}", output.whole());
    let named = "the command on n1.beta ended with status 7\n";
    let whole = output.whole();
    ensure!(output.stderr.starts_with(&format!("isthmus: {named}")), "not first: {named}{whole}");
    ensure!(output.stderr.contains(&format!("\n  cause: {named}")), "not in the account: {named}{whole}");
    world.expect_clean()
}

#[test]
fn mistakes_with_each_end_the_run_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    for (options, command, want) in
        [(&["--each"][..], "mpirun.openmpi", "leave --each out"), (&["--env", "A=b"], "true", "--each")]
    {
        let output = world.run("n1.alpha", options, &[command])?;
        ensure!(output.status != 0 && output.stderr.contains(want), "{}", output.whole());
    }
    Ok(())
}

/// Whoever presses ctrl-C in a terminal reaches only `isthmus run`, which passes the signal on.
#[test]
fn an_interrupt_reaches_the_command_on_all_nodes() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    let here = world.directory.path().display().to_string();
    // The shell waits in a builtin, so that its trap runs at once.
    let script = r#"trap 'touch "$0/$ISTHMUS_NODE.ended"; exit 3' INT; touch "$0/$ISTHMUS_NODE.started"; sleep 3600 & wait"#;
    let words =
        [&[binary.as_str(), "run"][..], &NODES, &["--each", "--", "sh", "-c", script, &here]].concat();
    let mut child = world
        .command("n1.alpha", LONG, &words)?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let all = |what: &str| {
        let there = |node: &str| world.directory.path().join(format!("{node}.{what}")).exists();
        Ok(there("n1.alpha") && there("n1.beta"))
    };
    World::eventually("both have started", SOON, || all("started"))?;
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    ensure!(killed.success());
    let status = child.wait()?;
    ensure!(status.code() == Some(3), "{status:?}");
    ensure!(all("ended")?, "not both were interrupted");
    world.expect_clean()
}

#[test]
fn exec_runs_a_command_on_another_node_of_the_job() -> Result<()> {
    let world = GRID.take()?;
    let script = "echo input | isthmus exec n1.beta -- sh -c 'cat; hostname; echo trouble >&2; exit 5'";
    let output = run(&world, &["--quiet"], &["sh", "-c", script])?;
    ensure!(output.status == 5 && output.stdout == "input\nn1.beta\n", "{}", output.whole());
    ensure!(output.stderr == "trouble\n", "{}", output.whole());
    let output = run(&world, &["--quiet"], &["isthmus", "exec", "n1.gamma", "--", "true"])?;
    ensure!(output.status == 255 && output.stderr.contains("not a node of this job"), "{}", output.whole());
    let binary = isthmus().display().to_string();
    let output = world.sh("n1.alpha", SOON, &[&binary, "exec", "n1.beta", "--", "true"])?;
    ensure!(output.status == 255 && output.stderr.contains("isthmus run"), "{}", output.whole());
    world.expect_clean()
}

/// The ways to an own address that docs/beyond-mpi.md lists: the first column of its table.
fn ways() -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root().join("docs/beyond-mpi.md"))?;
    let (_, section) = page.split_once("## The own address").context("no such section")?;
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let first = |row: &str| Some(row.strip_prefix("| ")?.split_once(" |")?.0.to_owned());
    Ok(rows.map_while(first).collect())
}

#[test]
fn every_way_to_learn_the_own_address_gives_the_one_at_which_others_reach_it() -> Result<()> {
    let world = GRID.take()?;
    let listed = world.status("n1.alpha")?;
    let address = |name: &str| -> Result<String> {
        let nodes = listed["nodes"].as_array().context("no nodes")?;
        let node = nodes.iter().find(|node| node["name"] == name).context("no such node")?;
        Ok(node["virtual_address"].as_str().context("no address")?.to_owned())
    };
    let program = root().join("tests/programs/own_address.py").display().to_string();
    let ways = ways()?;
    ensure!(ways.len() > 5, "{ways:?}");
    // The other node is at another site, then at the same site.
    for other in ["n1.beta", "n2.alpha"] {
        let nodes = format!("n1.alpha,{other}");
        let output =
            world.run("n1.alpha", &["--nodes", &nodes, "--each"], &["/usr/bin/python3", &program])?;
        ensure!(output.status == 0, "{}", output.whole());
        for node in ["n1.alpha", other] {
            let own = address(node)?;
            for way in ways.iter().filter(|way| *way != "peer") {
                let found: Vec<&str> = output
                    .stdout
                    .lines()
                    .filter_map(|line| line.strip_prefix(&format!("{node}: {way}: ")))
                    .flat_map(str::split_whitespace)
                    .collect();
                let one = !found.is_empty() && found.iter().all(|ip| *ip == own);
                ensure!(one, "{way} on {node} gives {found:?}, not {own}: {}", output.whole());
            }
        }
        let (own, theirs) = (address("n1.alpha")?, address(other)?);
        for line in [format!("n1.alpha: peer: {theirs}"), format!("{other}: reached: here at {own}")] {
            let times = output.stdout.lines().filter(|printed| **printed == line).count();
            ensure!(times == 2, "{line:?} is there {times} times: {}", output.whole());
        }
    }
    world.expect_clean()
}

/// The losses that the training prints.
pub(crate) fn losses(output: &Output) -> Vec<f64> {
    let loss = |line: &str| line.rsplit_once(" loss ")?.1.parse().ok();
    output.stdout.lines().filter_map(loss).collect()
}

#[test]
#[ignore = "test-all"]
fn pytorch_trains_over_two_sites_as_on_one_node() -> Result<()> {
    let world = GRID.take()?;
    let program = root().join("examples/torch/train.py").display().to_string();
    // Like `torchrun`. Debian 12's `torchrun` is older than its Python, and needs options for the
    // workers' output. Without a given port, it looks for a free port. That port may be taken by
    // the time its workers want it.
    let torchrun = "/usr/bin/python3 -m torch.distributed.run -r 1 -t 1 --master_port 29500";
    let alone = format!("{torchrun} --nnodes 1 --nproc_per_node 2 --master_addr localhost {program}");
    let alone = world.sh("n1.alpha", LONG, &["sh", "-c", &alone])?;
    ensure!(alone.status == 0, "{}", alone.whole());
    let nodes = "--nnodes $ISTHMUS_NODES --node_rank $ISTHMUS_NODE_RANK --master_addr $ISTHMUS_HEAD";
    let words = ["sh", "-c", &format!("{torchrun} {nodes} {program}")];
    let over_sites = world.run("n1.alpha", &[&NODES[..], &["--each"]].concat(), &words)?;
    ensure!(over_sites.status == 0, "{}", over_sites.whole());
    let (want, got) = (losses(&alone), losses(&over_sites));
    ensure!(want.len() == 20 && got.len() == 20, "{}\n{}", alone.whole(), over_sites.whole());
    ensure!(got[19] < 0.8 * got[0], "it has learnt nothing: {got:?}");
    for (want, got) in want.iter().zip(&got) {
        // The order of additions is all that may differ.
        ensure!((want - got).abs() <= 1e-5 * want.abs(), "{want} became {got}");
    }
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn a_database_serves_another_site() -> Result<()> {
    let world = GRID.take()?;
    let script = root().join("examples/postgres/bench.sh").display().to_string();
    let output = run(&world, &[], &[&ORDINARY_USER[..], &[&script, "n1.beta"]].concat())?;
    ensure!(output.status == 0, "{}", output.whole());
    ensure!(output.stdout.contains("400/400"), "{}", output.whole());
    let last = output.stdout.lines().last().unwrap_or_default();
    // The server sees the client's address in the grid.
    ensure!(last.starts_with("client 240.") && last.ends_with("400 transactions, balances agree"), "{last}");
    world.expect_clean()
}

/// Has the other site fetch a file of 20 kB from nginx over so many connections at once. Returns
/// the command that serves the file.
fn fetch(world: &World, as_user: &[&str], connections: u32) -> Result<Vec<String>> {
    let files = world.directory.path().display().to_string();
    let content: Vec<u8> =
        (0..5_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(world.directory.path().join("file"), content)?;
    let sum = Command::new("sha256sum").arg(world.directory.path().join("file")).output()?.stdout;
    let sum = String::from_utf8_lossy(&sum).split(' ').next().unwrap_or_default().to_owned();
    let script = root().join("examples/http/serve.sh").display().to_string();
    let serve = [as_user, &[&script, &files, "n1.beta"]].concat();

    let fetch = root().join("tests/programs/fetch.py").display().to_string();
    let count = connections.to_string();
    let client = ["/usr/bin/python3", &fetch, "n1.alpha", "8080", "/file", &count, &sum];
    let output = run(world, &[], &[&serve[..], &client].concat())?;
    let right = output.stdout.contains(&format!("{connections} connections at once, all right"));
    ensure!(output.status == 0 && right, "{}", output.whole());
    Ok(serve.into_iter().map(str::to_owned).collect())
}

#[test]
#[ignore = "test-all"]
fn a_web_server_that_root_starts_serves_another_site() -> Result<()> {
    let world = GRID.take()?;
    fetch(&world, &[], 50)?;
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn a_web_server_serves_1000_connections_at_once() -> Result<()> {
    let world = GRID.take()?;
    let serve = fetch(&world, &ORDINARY_USER, 1000)?;
    let serve: Vec<_> = serve.iter().map(String::as_str).collect();

    let client = ["ab", "-q", "-k", "-n", "5000", "-c", "1000", "http://n1.alpha:8080/file"];
    let output = run(&world, &[], &[&serve[..], &client].concat())?;
    ensure!(output.status == 0, "{}", output.whole());
    let line = |name: &str| {
        let line = output.stdout.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    ensure!(line("Complete requests:") == "5000", "{}", output.whole());
    ensure!(line("Failed requests:") == "0", "{}", output.whole());
    world.expect_clean()
}
