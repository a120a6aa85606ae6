//! Files of a run over nodes of batch schedulers: programs and inputs go there, and results come back.

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, World, promised, write_program};

use super::logins::Logins;
use super::{has, written};
use crate::clusters::{GONE, GRID, SITES, sh};

/// A directory that the nodes lack: each machine of a lab has a /tmp of its own.
const WORK: &str = "/tmp/pilots-work";
const RESULTS: &str = "/tmp/pilots-results";

/// Removes both directories, and what was made of them, from all machines of the clusters.
fn clear(world: &World) -> Result<()> {
    let remove = "rm -rf /tmp/pilots-* /tmp/.pilots-*";
    for machine in ["n1.alpha", "n2.alpha", "n3.alpha", "n2.beta", "n3.beta"] {
        sh(world, machine, &["sh", "-c", remove])?;
    }
    Ok(())
}

#[test]
fn pilots_get_a_program_and_its_input_and_results_come_back() -> Result<()> {
    let world = GRID.take()?;
    clear(&world)?;
    let logins = Logins::start(&world)?;
    let script = format!(
        "#!/bin/sh\nset -e\nmkdir {RESULTS}\nsha256sum <{WORK}/input >{RESULTS}/sum\nexec {WORK}/ring\n"
    );
    let rank = world.directory.path().join("rank.sh");
    write_program(&rank, script.as_bytes(), 0o755)?;
    let make = format!(
        "mkdir {WORK} && cp {} {} {WORK} && yes in | head -c 9000000 >{WORK}/input",
        rank.display(),
        Mpi::OpenMpi.program("ring")
    );
    sh(&world, "n1.alpha", &["sh", "-c", &make])?;
    let rank = format!("{WORK}/rank.sh");
    let words = ["mpirun.openmpi", "-n", "2", "--map-by", "node", &rank];
    let options = ["--stage", WORK, "--fetch", RESULTS];
    let output = logins.run_with("alpha=1,beta=1", &options, &words)?.output()?;
    let text = written(&output);
    ensure!(output.status.success(), "{text}");
    has(&text, &["staged 3 files", " No Errors"])?;
    has(&text, &["pilots-results.alpha (1 file", "pilots-results.beta (1 file"])?;
    let want = sh(&world, "n1.alpha", &["sh", "-c", &format!("sha256sum <{WORK}/input")])?.stdout;
    for site in SITES {
        let sum = format!("{RESULTS}.{site}/sum");
        let got = sh(&world, "n1.alpha", &["cat", &sum])?.stdout;
        ensure!(got == want, "{sum} is {got:?}, not {want:?}");
    }
    logins.nothing_left(promised(GONE))?;
    clear(&world)
}
