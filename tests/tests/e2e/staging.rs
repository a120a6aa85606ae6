//! `isthmus run --stage` and `--fetch`, on nodes that share no file system: each machine of a lab has
//! a /tmp of its own.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, Mpi, Output, Shared, World, isthmus};

static GRID: Shared = Shared::new("four-sites");

const SOON: Duration = Duration::from_secs(60);
const NODES: [&str; 4] = ["n1.alpha", "n2.alpha", "n1.beta", "n2.beta"];

fn sh(world: &World, node: &str, script: &str) -> Result<Output> {
    let output = world.sh(node, SOON, &["sh", "-c", script])?;
    ensure!(output.status == 0, "{node}: {script}: {}", output.whole());
    Ok(output)
}

/// Removes what an earlier test has left at a path in /tmp on the nodes, with its half files.
fn clear(world: &World, path: &str) -> Result<()> {
    let name = path.trim_start_matches("/tmp/");
    NODES.iter().try_for_each(|node| sh(world, node, &format!("rm -rf {path}* /tmp/.{name}*")).map(drop))
}

fn run(world: &World, options: &[&str], words: &[&str]) -> Result<Output> {
    let nodes = NODES.join(",");
    world.run("n1.alpha", &[&["--nodes", &nodes], options].concat(), words)
}

/// A program, its input and a link cross to nodes that have none of them, and only what has changed
/// crosses again.
fn programs_and_inputs_are_brought(mpi: Mpi) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let path = "/tmp/staged-program";
    clear(&world, path)?;
    let make = format!(
        "mkdir -p {path}/in && cp {} {path}/hello && yes in | head -c 9000000 > {path}/in/data && ln -s in/data {path}/link",
        mpi.program("hello")
    );
    sh(&world, "n1.alpha", &make)?;
    let (launcher, program) = (mpi.launcher(), format!("{path}/hello"));
    let words = [launcher.as_str(), "-n", "8", &program];
    let refused = run(&world, &[], &words)?;
    ensure!(refused.status == 125 && refused.stderr.contains("with --stage"), "{}", refused.whole());

    let staged = run(&world, &["--stage", path], &words)?;
    ensure!(staged.status == 0, "{}", staged.whole());
    ensure!(staged.stderr.contains("staged 2 files"), "{}", staged.whole());
    for node in &NODES[1..] {
        let sum = |node: &str| sh(&world, node, &format!("cd {path} && cat link hello | sha256sum"));
        ensure!(sum(node)?.stdout == sum("n1.alpha")?.stdout, "{node} has something else");
        ensure!(staged.stderr.contains(node), "{}", staged.whole());
    }
    let again = run(&world, &["--stage", path], &words)?;
    ensure!(again.status == 0 && again.stderr.contains("have the 2 files"), "{}", again.whole());

    sh(&world, "n1.alpha", &format!("echo new > {path}/in/new"))?;
    sh(&world, "n2.beta", &format!("echo theirs > {path}/in/theirs"))?;
    let more = run(&world, &["--stage", path], &words)?;
    ensure!(more.status == 0 && more.stderr.contains("12 B sent"), "{}", more.whole());
    sh(&world, "n2.beta", &format!("grep -q new {path}/in/new && grep -q theirs {path}/in/theirs"))?;
    world.expect_clean()
}

#[test]
fn openmpi_programs_and_inputs_are_brought() -> Result<()> {
    programs_and_inputs_are_brought(Mpi::OpenMpi)
}

#[test]
fn mpich_programs_and_inputs_are_brought() -> Result<()> {
    programs_and_inputs_are_brought(Mpi::Mpich)
}

/// What an ended run has written of a file isn't sent again.
#[test]
fn half_a_file_is_completed() -> Result<()> {
    let world = GRID.take()?;
    let path = "/tmp/staged-half";
    clear(&world, path)?;
    sh(&world, "n1.alpha", &format!("yes half | head -c 9000000 > {path}"))?;
    // More than one block of 4 MiB, and less than two.
    sh(&world, "n1.beta", "umask 077; yes half | head -c 5000000 > /tmp/.staged-half.isthmus-part")?;
    let words = ["sh", "-c", &format!("cat {path} | sha256sum")];
    let options = ["--nodes", "n1.alpha,n1.beta", "--each", "--no-prefix", "--stage", path];
    let output = world.run("n1.alpha", &options, &words)?;
    let sums: Vec<_> = output.stdout.lines().collect();
    ensure!(output.status == 0 && sums.len() == 2 && sums[0] == sums[1], "{}", output.whole());
    // 9,000,000 B less 4 MiB.
    ensure!(output.stderr.contains("4.8 MB sent"), "{}", output.whole());
    let left = sh(&world, "n1.beta", "ls -A /tmp | grep -c 'staged-half.*isthmus-part' || true")?;
    ensure!(left.stdout.trim() == "0", "{}", left.whole());
    world.expect_clean()
}

#[test]
fn outputs_come_back_with_their_sites_names() -> Result<()> {
    let world = GRID.take()?;
    let path = "/tmp/fetched";
    clear(&world, path)?;
    // The nodes of beta have the same, as if they shared a file system; those of alpha differ.
    let script = format!(
        "case $ISTHMUS_NODE in *.beta) who=beta;; *) who=$ISTHMUS_NODE;; esac; mkdir -p {path}/sub && echo $who > {path}/sub/who"
    );
    let each = ["--each", "--fetch", path];
    let output = run(&world, &each, &["sh", "-c", &script])?;
    ensure!(output.status == 0, "{}", output.whole());
    for (there, want) in [("", "n1.alpha"), (".alpha", "n2.alpha"), (".beta", "beta")] {
        let found = sh(&world, "n1.alpha", &format!("cat {path}{there}/sub/who"))?;
        ensure!(found.stdout.trim() == want, "{there}: {}", found.whole());
    }
    let all = sh(&world, "n1.alpha", &format!("ls -d {path}* | wc -l"))?;
    ensure!(all.stdout.trim() == "3", "{}", output.whole());
    ensure!(output.stderr.contains("fetched.beta (1 file"), "{}", output.whole());
    // The same again stays, and a pipe at one node keeps no other's back.
    let again = run(&world, &each, &["sh", "-c", &script])?;
    ensure!(again.status == 0 && again.stderr.contains("fetched.beta (1 file"), "{}", again.whole());
    let pipe = format!("test $ISTHMUS_NODE != n2.alpha || mkfifo {path}/pipe");
    let partly = run(&world, &each, &["sh", "-c", &pipe])?;
    let told = partly.stderr.contains("n2.alpha: ") && partly.stderr.contains("/pipe is neither a file");
    ensure!(partly.status == 125 && told && partly.stderr.contains("fetched.beta"), "{}", partly.whole());
    sh(&world, "n2.alpha", &format!("rm {path}/pipe"))?;
    ensure!(sh(&world, "n1.alpha", &format!("ls -d {path}* | wc -l"))?.stdout.trim() == "3", "moved aside");
    // A run that fails has its outputs fetched, too, and its own status.
    // The first one that fails ends the others, which by then have written theirs.
    let failing = format!("echo late > {path}/sub/late; sleep 5; test $ISTHMUS_NODE_RANK = 0 || exit 7");
    let output = run(&world, &each, &["sh", "-c", &failing])?;
    ensure!(output.status == 7 && output.stderr.contains("fetched.beta (2 files"), "{}", output.whole());
    let none = run(&world, &["--each", "--fetch", "/tmp/fetched-none"], &["true"])?;
    ensure!(none.status == 0 && none.stderr.contains("nothing fetched"), "{}", none.whole());
    world.expect_clean()
}

#[test]
fn what_can_t_be_staged_is_said_before_the_command_starts() -> Result<()> {
    let world = GRID.take()?;
    let path = "/tmp/staged-not";
    clear(&world, path)?;
    sh(&world, "n1.alpha", &format!("mkdir {path} && echo a > {path}/a && mkfifo {path}-pipe"))?;
    sh(&world, "n1.beta", &format!("mkdir -p {path}/a"))?;
    sh(&world, "n2.beta", &format!("mkdir {path} && ln -s /etc {path}/sub"))?;
    for (options, want) in [
        (&["--stage", "/tmp/staged-not-there"][..], "cannot stage /tmp/staged-not-there: No such file"),
        (&["--stage", "/"], "the root of the file system"),
        (&["--fetch", "../x"], "without `..`"),
        (&["--stage", path, "--stage", "/tmp/staged-not/a"], "/tmp/staged-not/a is within /tmp/staged-not"),
        (&["--stage", "/tmp/staged-not-pipe"], "neither a file nor a directory"),
        (&["--stage", path, "--nodes", "n1.alpha,n1.beta"], "n1.beta: /tmp/staged-not/a is a directory"),
    ] {
        let mut all = vec!["--each"];
        all.extend(options);
        if !options.contains(&"--nodes") {
            all.extend(["--nodes", "n1.alpha,n1.beta"]);
        }
        let output = world.run("n1.alpha", &all, &["echo", "it", "runs"])?;
        ensure!(
            output.status == 125 && output.stderr.contains(want) && !output.stdout.contains("runs"),
            "{want:?} is not in\n{}",
            output.whole()
        );
    }
    // A link of the other site leads nowhere else.
    sh(&world, "n1.alpha", &format!("rm -r {path} && mkdir -p {path}/sub && echo evil > {path}/sub/evil"))?;
    let options = ["--each", "--nodes", "n1.alpha,n2.beta", "--stage", path];
    let output = world.run("n1.alpha", &options, &["true"])?;
    ensure!(output.status == 125 && output.stderr.contains("no directory"), "{}", output.whole());
    sh(&world, "n2.beta", "test ! -e /etc/evil")?;
    world.expect_clean()
}

/// An interrupt ends the helpers, and the next run goes on where this one was.
#[test]
fn an_interrupt_leaves_nothing_running() -> Result<()> {
    let world = GRID.take()?;
    let path = "/tmp/staged-long";
    clear(&world, path)?;
    sh(&world, "n1.alpha", &format!("yes long | head -c 1000000000 > {path}"))?;
    let program = isthmus().display().to_string();
    let words =
        [&program, "run", "--nodes", "n1.alpha,n1.beta", "--each", "--stage", path, "--", "echo", "it runs"];
    let job = Job::start(world.command("n1.alpha", Duration::from_secs(300), &words)?)?;
    World::eventually("beta has a part of the file", Duration::from_secs(120), || {
        let look = world.sh("n1.beta", SOON, &["sh", "-c", "ls -A /tmp | grep -q staged-long"])?;
        Ok(look.status == 0)
    })?;
    // `timeout` passes it on.
    sh(&world, "n1.alpha", &format!("pkill -INT -f '[i]sthmus run.*--stage {path}'"))?;
    let (status, text) = job.end()?;
    ensure!(!text.contains("it runs"), "{text}");
    ensure!(status == 130 && text.contains("interrupted by SIGINT"), "{status}: {text}");
    world.expect_clean()?;
    clear(&world, path)
}
