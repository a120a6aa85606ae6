//! Pools of workers over sites, in C and Python.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Printing, Shared, isthmus, root};

static GRID: Shared = Shared::new("four-sites");

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(240);
const HEAD: &str = "n1.alpha";

fn program() -> String {
    root().join("tests/programs/pool.py").display().to_string()
}

/// A program in C, over two sites behind NATs, with bosses.
#[test]
fn of_mpi_ranks_in_c() -> Result<()> {
    let world = GRID.take()?;
    let (source, binary) = (root().join("tests/programs/pool.c"), world.directory.path().join("pool"));
    let library = isthmus().with_file_name("libisthmus_pool.so");
    let mut compile = Command::new("mpicc.openmpi");
    compile.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&binary).arg(&source).arg(&library);
    compile.arg(format!("-Wl,-rpath,{}", library.parent().context("no directory")?.display()));
    let compiled = compile.output()?;
    ensure!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let launcher = Mpi::OpenMpi.launcher();
    let words = [launcher.as_str(), "-n", "10", "--map-by", "node", "--mca", "mpi_yield_when_idle", "1"];
    let binary = binary.display().to_string();
    let nodes = ["--nodes", "n1.alpha,n1.beta"];
    let output = world.run(HEAD, &nodes, &[&words[..], &[&binary]].concat())?;
    ensure!(output.stdout.contains("500 results of 9 workers\n No Errors"), "{}", output.whole());
    world.expect_clean()
}

/// A program in Python, whose ranks are at four sites.
#[test]
fn of_mpi_ranks_in_python() -> Result<()> {
    let world = GRID.take_for(Mpi::Mpich)?;
    let python = Mpi::Mpich.launcher().replace("mpiexec", "python");
    let nodes = "n1.alpha,n1.beta,n1.gamma,n1.delta";
    let launcher = Mpi::Mpich.launcher();
    let words = [launcher.as_str(), "-n", "4", "-ppn", "1", &python, &program(), "ranks"];
    let output = world.run(HEAD, &["--nodes", nodes], &words)?;
    let found =
        ["400 results of n1.beta n1.delta n1.gamma", "an error came back", "large results are the same"];
    for line in found.into_iter().chain(["the pool is over"]) {
        ensure!(output.stdout.contains(line), "{line}: {}", output.whole());
    }
    ensure!(output.status == 0, "{}", output.whole());
    world.expect_clean()
}

/// Without MPI. A worker ends in the middle of a task, which another one runs again. Others join.
#[test]
fn of_plain_processes_that_come_and_go() -> Result<()> {
    let world = GRID.take()?;
    let directory = tempfile::tempdir_in(world.directory.path())?;
    let key = "5eed".repeat(16);
    let binary = isthmus().display().to_string();
    // A worker that ends badly ends the run, unless its node's command does better.
    let command = format!("/usr/bin/python3 {} each {} || true", program(), directory.path().display());
    let started = |options: &[&str]| {
        let env = format!("ISTHMUS_POOL_KEY={key}");
        let run =
            [&[binary.as_str(), "run", "--each", "--env", &env], options, &["--", "sh", "-c", &command]];
        Printing::start(&world, HEAD, LONG, &run.concat())
    };
    let run = started(&["--nodes", "n1.alpha,n2.alpha,n1.beta,n2.beta"])?;
    run.prints("n1.alpha: 400 results of n1.beta n2.alpha n2.beta")?;
    run.prints("n1.alpha: an error came back")?;
    run.prints("n1.alpha: ran again")?;
    let jobs = world.status(HEAD)?;
    let job = jobs["jobs"][0]["id"].as_str().context("no job")?.to_owned();
    let joined = started(&["--join", &job, "--nodes", "n1.gamma,n1.delta"])?;
    // Of the first of three processes it isn't certain that the task has ended it.
    run.prints("n1.alpha: given up: the process that ran it ended, 2 times, last at n")?;
    run.prints("n1.alpha: lost 4 workers, 1 are left")?;
    run.prints("n1.alpha: the pool is over")?;
    for run in [run, joined] {
        let (status, printed) = run.ended()?;
        ensure!(status == 0, "{printed}");
    }
    world.expect_clean()
}

/// Results that are kept in a file outlive the program: only what has none is run again.
#[test]
fn results_outlive_the_program() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (state, runs) = (directory.path().join("state"), directory.path().join("runs"));
    let script = root().join("tests/programs/pool_state.py");
    let run = |words: &[&str]| {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(&script).args([&state, &runs]).args(words);
        command.env("ISTHMUS_POOL_LIBRARY", isthmus().with_file_name("libisthmus_pool.so")).output()
    };
    let ran = || std::fs::read_to_string(&runs).map(|text| text.lines().count());
    let killed = run(&[])?;
    ensure!(!killed.status.success(), "it wasn't killed");
    // Of those before the last, each of the first 20 has a result that is kept.
    ensure!(ran()? == 26, "{} tasks began", ran()?);
    let whole = run(&["goes-on"])?;
    ensure!(String::from_utf8_lossy(&whole.stdout).contains("50 results"), "{whole:?}");
    let all = ran()?;
    ensure!((51..=56).contains(&all), "{all} tasks began in all");
    let again = run(&["goes-on"])?;
    ensure!(again.status.success() && ran()? == all, "{again:?}");

    // The results run as code.
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    let open = run(&["goes-on"])?;
    ensure!(String::from_utf8_lossy(&open.stderr).contains("nobody else can write"), "{open:?}");
    Ok(())
}
