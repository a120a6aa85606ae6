//! Nodes that `isthmus alloc` keeps for the groups of a profile.

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, isthmus, promised};

use super::logins::Logins;
use super::{PROFILE, has};
use crate::clusters::{GONE, GRID, SOON};

#[test]
fn a_profiles_nodes_are_kept_for_several_runs() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let path = world.directory.path().join("kept.toml");
    std::fs::write(&path, PROFILE)?;
    let (path, binary) = (path.display().to_string(), isthmus().display().to_string());
    let alloc = |options: &[&str], script: &str| {
        let words = [&[&binary, "alloc", "--profile", &path, "--pilots", "alpha,beta"], options].concat();
        world.sh("n1.alpha", SOON, &[&words[..], &["--", "sh", "-c", script]].concat())
    };
    let asked = alloc(&["--start-estimate"], "exit 9")?;
    ensure!(asked.status == 0, "{}", asked.whole());
    has(&asked.stdout, &["masters: 2 ranks on 1 node ", "workers: 4 ranks on 2 nodes "])?;
    let ring = Mpi::OpenMpi.program("ring");
    let script = format!(
        "{binary} run --profile {path} -- mpirun.openmpi {ring} && {binary} run --each --no-prefix -- \
         sh -c 'echo on $ISTHMUS_NODE' && exit 7"
    );
    let output = alloc(&[], &script)?;
    let text = output.whole();
    ensure!(output.status == 7, "{text}");
    has(
        &text,
        &[" No Errors", "masters: 2 ranks at ", "workers: 4 ranks at ", "6 ranks on 3 nodes at 2 sites"],
    )?;
    let on: Vec<&str> = output.stdout.lines().filter_map(|line| line.strip_prefix("on ")).collect();
    ensure!(on.len() == 3 && on.iter().all(|node| node.contains("-root-p")), "{text}");
    logins.nothing_left(promised(GONE))
}
