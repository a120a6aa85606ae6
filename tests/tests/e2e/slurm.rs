//! Jobs within batch jobs of a real Slurm, over the batch job's nodes and another site's.

mod beside;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_e2e::{Mpi, Output, World, isthmus, promised, write_program};

use crate::clusters::{self, GONE, GRID, LOOK, SITES, SOON, VIA};

/// A batch job's script, and where its output goes.
struct Batch<'a> {
    world: &'a World,
    /// Path of the token of alpha's nodes.
    token: String,
    /// What the script begins with: the isthmus binary, the site's token and its front-end as variables.
    head: String,
    script: PathBuf,
    output: PathBuf,
}

impl<'a> Batch<'a> {
    /// Prepares batch jobs of site alpha, with a token for its nodes that no other user can read.
    fn new(world: &'a World, name: &str) -> Result<Self> {
        let directory = world.directory.path();
        let token = directory.join("alpha.token").display().to_string();
        let binary = isthmus().display().to_string();
        if !directory.join("alpha.token").exists() {
            let invite = [&binary, "grid", "invite", "--state", "/var/lib/isthmus/broker", "--site", "alpha"];
            let more = ["--owner", "root", "--nodes", "8", "--out", &token];
            let invited = world.sh("hub", LOOK, &[&invite[..], &more[..]].concat())?;
            ensure!(invited.status == 0, "{}", invited.whole());
        }
        let head = format!(
            "#!/bin/sh\nexport ISTHMUS_TOKEN={token} ISTHMUS_VIA={VIA}\nisthmus() {{ {binary} \"$@\"; }}\n"
        );
        let (script, output) = (directory.join(format!("{name}.sh")), directory.join(format!("{name}.out")));
        Ok(Self { world, token, head, script, output })
    }

    /// Submits a script with these lines at alpha's login node, for `nodes` nodes with two ranks each.
    fn sbatch(&self, more: &[&str], nodes: u32, lines: &str) -> Result<Output> {
        write_program(&self.script, format!("{}{lines}\n", self.head).as_bytes(), 0o755)?;
        let _ = std::fs::remove_file(&self.output);
        let (script, output) =
            (self.script.display().to_string(), format!("--output={}", self.output.display()));
        let (nodes, chdir) =
            (format!("--nodes={nodes}"), format!("--chdir={}", self.world.directory.path().display()));
        let mut words = vec!["sbatch", "--parsable", &output, &nodes, &chdir, "--ntasks-per-node=2"];
        // Of an option that is given twice, the last counts.
        words.extend(more);
        words.push(&script);
        self.world.sh("n1.alpha", SOON, &words)
    }

    /// Runs a script as a batch job to its end. Returns what it wrote.
    fn run(&self, nodes: u32, lines: &str) -> Result<String> {
        let submitted = self.sbatch(&["--wait"], nodes, lines)?;
        let written = self.written();
        ensure!(submitted.status == 0, "{}\n-- the batch job wrote\n{written}", submitted.whole());
        Ok(written)
    }

    fn written(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

/// Ids and command lines of processes on the machines that are no services: those of batch jobs.
fn left(world: &World) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for site in SITES {
        for node in ["n1", "n2", "n3"] {
            let name = format!("{node}.{site}");
            let is_slurm = |line: &String| {
                ["/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd ", "slurmctld: "]
                    .iter()
                    .any(|known| line.contains(known))
            };
            all.extend(
                world
                    .leftovers(&name)?
                    .into_iter()
                    .filter(|line| !is_slurm(line))
                    .map(|line| format!("{name}: {line}")),
            );
        }
        for node in ["n2", "n3"] {
            let name = format!("{node}.{site}");
            let look =
                ["sh", "-c", "ls -d /run/isthmus/*/ /run/isthmus-job*/*/ 2>/dev/null; pgrep -a isthmus"];
            let agents = world.sh(&name, LOOK, &look)?;
            all.extend(agents.stdout.lines().map(|line| format!("{name}: {line}")));
        }
    }
    all.extend(clusters::queued(world)?);
    Ok(all)
}

/// Whether Slurm ends what a batch job leaves, as soon as its script has ended.
fn confines(world: &World) -> bool {
    world.lab().record().grid.sites.iter().any(|site| site.slurm_confines)
}

/// Waits until nothing of any batch job is left on any node, nor in Slurm's queues.
fn nothing_left(world: &World, deadline: Duration) -> Result<()> {
    clusters::nothing_left(deadline, || left(world))
}

fn over_two_sites(mpi: Mpi) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let batch = Batch::new(&world, "over")?;
    let (launcher, ring) = (mpi.launcher(), mpi.program("ring"));
    let written = batch.run(
        2,
        &format!(
            "isthmus run -- {launcher} -n 4 {ring}\n\
             isthmus run --with n1.beta -- {launcher} -n 5 {ring} 100000\n\
             isthmus run --with n1.beta -- {launcher} -n 5 hostname"
        ),
    )?;
    for words in [
        " No Errors",
        "n2-root-1.alpha, n3-root-1.alpha, 2 agents started",
        "ring: 4 ranks",
        "2 nodes at 1 site",
        "ring: 5 ranks",
        "3 nodes at 2 sites",
    ] {
        ensure!(written.contains(words), "{words:?} is not in\n{written}");
    }
    has_run_everywhere(&written)?;
    nothing_left(&world, GONE)
}

/// Checks that `hostname` has run twice on each node of the batch job, as Slurm has it, and once on beta's.
fn has_run_everywhere(written: &str) -> Result<()> {
    for (node, ranks) in [("n2-root-1.alpha", 2), ("n3-root-1.alpha", 2), ("n1.beta", 1)] {
        ensure!(written.lines().filter(|line| *line == node).count() == ranks, "{node}:\n{written}");
    }
    Ok(())
}

#[test]
fn a_batch_job_runs_over_its_nodes_and_another_site_openmpi() -> Result<()> {
    over_two_sites(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn a_batch_job_runs_over_its_nodes_and_another_site_openmpi5() -> Result<()> {
    over_two_sites(Mpi::OpenMpi5)
}

#[test]
#[ignore = "test-all"]
fn a_batch_job_runs_over_its_nodes_and_another_site_mpich4() -> Result<()> {
    over_two_sites(Mpi::Mpich4)
}

#[test]
#[ignore = "test-all"]
fn a_batch_job_runs_over_its_nodes_and_another_site_mpich() -> Result<()> {
    over_two_sites(Mpi::Mpich)
}

#[test]
fn agents_of_a_batch_job_serve_several_runs() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "several")?;
    let hello = Mpi::OpenMpi.program("ring");
    // The names by which Slurm itself knows the nodes, and those in the grid, are the same but for
    // the end.
    let written = batch.run(
        2,
        &format!(
            "isthmus up --slurm --token $ISTHMUS_TOKEN --via $ISTHMUS_VIA\n\
             isthmus run -- mpirun.openmpi -n 4 {hello}\n\
             isthmus run -q --each --no-prefix -- sh -c 'echo ran on $ISTHMUS_NODE'\n\
             for host in $(scontrol show hostnames $SLURM_JOB_NODELIST); do echo slurm has $host-root-1.alpha; done\n\
             isthmus up --slurm"
        ),
    )?;
    ensure!(written.contains(" No Errors") && !written.contains("started\n"), "{written}");
    ensure!(written.contains("agents run on 2 nodes until it ends"), "{written}");
    ensure!(written.contains("agents run already on 2 nodes until it ends"), "{written}");
    let told = |begin: &str| {
        let mut lines: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix(begin)).collect();
        lines.sort_unstable();
        lines.join(" ")
    };
    ensure!(told("slurm has ") == "n2-root-1.alpha n3-root-1.alpha", "{written}");
    ensure!(told("ran on ") == told("slurm has "), "{written}");
    nothing_left(&world, GONE)
}

#[test]
fn a_cancelled_batch_job_ends_everywhere_and_says_why() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "cancelled")?;
    let program = Mpi::OpenMpi.program("die");
    let run = format!("isthmus run --with n1.beta -- mpirun.openmpi -n 5 {program} never 0 sleep");
    let submitted = batch.sbatch(&[], 2, &run)?;
    ensure!(submitted.status == 0, "{}", submitted.whole());
    let job = submitted.stdout.trim();
    let running = World::eventually("all ranks run", SOON, || {
        let ranks = [("n2.alpha", 2), ("n3.alpha", 2), ("n1.beta", 1)];
        for (node, count) in ranks {
            if world.processes(node, "/die")?.len() < count {
                return Ok(false);
            }
        }
        Ok(true)
    });
    running.with_context(|| batch.written())?;
    let cancelled = world.sh("n1.alpha", LOOK, &["scancel", job])?;
    ensure!(cancelled.status == 0, "{}", cancelled.whole());
    nothing_left(&world, promised(GONE))?;
    let written = batch.written();
    // The shell ends first, and its end may be that of `isthmus run` as well. Slurm says why itself.
    let want = match confines(&world) {
        true => format!("JOB {job} ON n2 CANCELLED"),
        false => format!("batch job {job} of Slurm was cancelled"),
    };
    ensure!(written.contains(&want), "{want:?} is not in\n{written}");
    Ok(())
}

/// Slurm gives the signal to all processes of a job step, or to the batch job's script.
#[test]
#[ignore = "test-all"]
fn a_signal_of_slurm_reaches_the_program_and_ends_no_agent() -> Result<()> {
    let world = GRID.take()?;
    let program = "trap \"echo saves; exit 0\" USR1; while :; do sleep 0.1; done";
    for (name, signal, launcher) in
        [("step", "USR1@60", "--each --"), ("script", "B:USR1@60", "-- mpirun.openmpi -n 2 --map-by node")]
    {
        let batch = Batch::new(&world, name)?;
        let run = format!("exec {} run {launcher} sh -c '{program}'", isthmus().display());
        let submitted = batch.sbatch(&["--wait", "--time=2", &format!("--signal={signal}")], 2, &run)?;
        let written = batch.written();
        ensure!(submitted.status == 0, "{}\n{written}", submitted.whole());
        ensure!(written.lines().filter(|line| line.ends_with("saves")).count() == 2, "{name}:\n{written}");
        nothing_left(&world, GONE)?;
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_batch_job_that_reaches_its_time_limit_says_so() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "limit")?;
    // The shortest limit that Slurm knows is a minute.
    let submitted = batch.sbatch(&["--wait", "--time=1"], 1, "isthmus run -- sleep 600")?;
    ensure!(submitted.status != 0, "{}", submitted.whole());
    nothing_left(&world, GONE)?;
    let written = batch.written();
    let want = if confines(&world) { "DUE TO TIME LIMIT" } else { "of Slurm has reached its time limit" };
    ensure!(written.contains(want), "{want:?} is not in\n{written}");
    ensure!(written.contains(" s, by its time limit"), "{written}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_shell_of_salloc_beside_its_nodes_runs_on_them() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "salloc")?;
    let program = isthmus().display().to_string();
    let words = ["salloc", "--nodes=2", "--ntasks-per-node=2", &program, "run", "--"];
    let mut command = world.command(
        "n1.alpha",
        SOON,
        &[&words[..], &["mpirun.openmpi", "-n", "4", "hostname"]].concat(),
    )?;
    let output = command.env("ISTHMUS_TOKEN", &batch.token).env("ISTHMUS_VIA", VIA).output()?;
    let written = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{written}");
    for node in ["n2-root-1.alpha", "n3-root-1.alpha"] {
        ensure!(written.lines().filter(|line| *line == node).count() == 2, "{node}:\n{written}");
    }
    nothing_left(&world, GONE)
}

#[test]
#[ignore = "test-all"]
fn two_batch_jobs_on_one_node_have_an_agent_each() -> Result<()> {
    let world = GRID.take()?;
    let batches = [Batch::new(&world, "first")?, Batch::new(&world, "second")?];
    let directory = world.directory.path().display().to_string();
    // Each waits for the other to run.
    let both =
        format!("until [ -e {directory}/first.runs ] && [ -e {directory}/second.runs ]; do sleep 0.2; done");
    for (batch, name) in batches.iter().zip(["first", "second"]) {
        let run = format!(
            "isthmus run -- sh -c 'touch {directory}/{name}.runs; {both}; mpirun.openmpi -n 1 hostname'"
        );
        let submitted = batch.sbatch(&["--nodelist=n2", "--ntasks-per-node=1"], 1, &run)?;
        ensure!(submitted.status == 0, "{}", submitted.whole());
    }
    let mut found = Vec::new();
    let ran = World::eventually("both have run", SOON, || {
        found = batches.iter().map(Batch::written).collect();
        Ok(found.iter().all(|written| written.contains("ended with status")))
    });
    ran.with_context(|| found.join("\n"))?;
    let has = |written: &String, node| written.lines().any(|line| line == node);
    for node in ["n2-root-1.alpha", "n2-root-2.alpha"] {
        ensure!(
            found.iter().filter(|written| has(written, node)).count() == 1,
            "{node}:\n{}",
            found.join("\n")
        );
    }
    nothing_left(&world, GONE)
}

#[test]
fn a_batch_job_without_a_token_says_what_to_do() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "without")?;
    // A state directory in which no node is a member yet.
    let state = world.directory.path().join("none");
    let lines = format!(
        "unset ISTHMUS_TOKEN ISTHMUS_VIA\nexport ISTHMUS_STATE={}\nisthmus run -- hostname; echo status $?",
        state.display()
    );
    let written = batch.run(1, &lines)?;
    for words in
        ["no agent on n2", "is no member of the grid yet", "--token FILE and --via FRONT-END", "status 125"]
    {
        ensure!(written.contains(words), "{words:?} is not in\n{written}");
    }
    if written.contains("panicked") {
        bail!("{written}");
    }
    nothing_left(&world, GONE)
}

/// With `slurm_confines` nothing of a batch job outlives it. Otherwise this Slurm loses sight of a
/// process that has left its parents.
#[test]
#[ignore = "test-all"]
fn what_a_batch_job_leaves_depends_on_its_slurm() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "leaves")?;
    let submitted = batch.sbatch(&["--wait", "--nodelist=n2"], 1, "setsid --fork sleep 86399")?;
    ensure!(submitted.status == 0, "{}", submitted.whole());
    let left = world.processes("n2.alpha", "sleep")?;
    ensure!(left.is_empty() == confines(&world), "{left:?}");
    for process in left {
        world.kill("n2.alpha", "-KILL", &process)?;
    }
    nothing_left(&world, GONE)
}
