//! Programs and libraries in wide use, as they are, between two sites behind NATs.
//! The programs of tests/programs check what they get.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Shared, World, isthmus, root, target};

static GRID: Shared = Shared::new("four-sites");

/// Runs a program on two nodes at two sites. On the first it prints `want` if all was right.
fn between_sites(interpreter: &[&str], program: &str, want: &str) -> Result<()> {
    run(&*GRID.take()?, interpreter, program, want)
}

fn run(world: &World, interpreter: &[&str], program: &str, want: &str) -> Result<()> {
    let program = root().join("tests/programs").join(program).display().to_string();
    let isthmus = isthmus().display().to_string();
    let run = [&isthmus, "run", "--nodes", "n1.alpha,n1.beta", "--each", "--"];
    let words = [&run, interpreter, &[program.as_str()]].concat();
    // Longer than the programs wait for anything themselves: Ray and Spark are many
    // processes on two busy cores.
    let output = world.sh("n1.alpha", Duration::from_secs(400), &words)?;
    let line = format!("n1.alpha: {want}");
    let right = output.stdout.lines().any(|printed| printed.starts_with(&line));
    ensure!(output.status == 0 && right, "{}", output.whole());
    world.expect_clean()
}

macro_rules! programs {
    ($($name:ident: $interpreter:expr, $program:literal prints $want:literal;)*) => {
        $(#[test]
        #[ignore = "test-all"]
        fn $name() -> Result<()> {
            between_sites(&$interpreter, $program, $want)
        })*
    };
}

/// Debian's own Python, which Debian's packages are for.
const PYTHON: &str = "/usr/bin/python3";

/// The program measures time, so it has the machine alone.
#[test]
fn small_writes() -> Result<()> {
    run(&*GRID.take_alone()?, &[PYTHON], "small_writes.py", "pieces don't wait for each other")
}

/// Path of the Python of this name, which `scripts/setup` makes for what Debian has no package of.
fn python_with(name: &str) -> String {
    target().join(name).join("bin/python").display().to_string()
}

programs! {
    iperf3: [PYTHON], "iperf3.py" prints "3 measurements over 8 connections; UDP: unable to";
    node: ["node"], "node.js" prints "100 echoes and 100 pages are right";
    java: ["java"], "Selectors.java" prints "100 selectors, 10004950 bytes are right";
    zeromq: [PYTHON], "zeromq.py" prints "250 answers, 1000 news are right";
    grpc: [PYTHON], "grpc_calls.py" prints "500 calls, 500 digests, 200 pieces are right, as ipv4:240.";
    redis: [], "redis.sh" prints "20001 keys are the same at both sites";
    dask: [PYTHON], "dask_cluster.py" prints "40 digests of the other worker's data are right";
    ray: [python_with("ray").as_str()], "ray_cluster.py" prints "10 objects of the other node and 100 calls of an actor are right";
    spark: [python_with("spark").as_str()], "spark_cluster.py" prints "400 records of 2 executors are right";
}
