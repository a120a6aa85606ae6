//! Everything works over long ways: 1 s of round trip, and 1 % loss each way.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus};

const NODES: [&str; 2] = ["n1.alpha", "n1.beta"];
/// Deadline of a job, whose start takes some dozens of round trips. Like `SOON`, it guards against
/// hanging only.
const LONG: Duration = Duration::from_secs(400);
const SOON: Duration = Duration::from_secs(150);

#[test]
#[ignore = "test-all"]
fn jobs_of_both_mpis_run() -> Result<()> {
    let world = World::up("far")?;
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let job = world.begin_for(LONG, mpi, &NODES.join(","), &[], ("ring", &["20000", "10"]))?;
        let (status, printed) = job.end()?;
        ensure!(status == 0, "{mpi:?}: status {status}\n{printed}\n{}", world.logs()?);
        for text in ["is cut", "nothing is heard", "lost node"] {
            ensure!(!printed.contains(text), "{mpi:?}: {text:?} in\n{printed}");
        }
        world.expect_clean()?;
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn commands_get_their_answers() -> Result<()> {
    let world = World::up("far")?;
    let binary = isthmus().display().to_string();
    for words in [
        &["status"][..],
        &["plan", NODES[0], NODES[1]],
        &["trunks"],
        &["doctor", "site", "alpha"],
        &["doctor", "pair", "alpha", "beta"],
        &["run", "--nodes", "n1.alpha,n1.beta", "--each", "--", "hostname"],
    ] {
        let output = world.sh(NODES[0], SOON, &[&[binary.as_str()], words].concat())?;
        // A doctor may find something.
        ensure!(output.status == 0 || words[0] == "doctor", "{words:?}: {}", output.whole());
        ensure!(!output.whole().contains("no answer within"), "{words:?}: {}", output.whole());
    }
    Ok(())
}
