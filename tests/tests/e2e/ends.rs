//! Connections end for programs as they end on one network: what was written
//! arrives, an end is an end, and a reset is one only where one was meant.

use anyhow::{Result, ensure};
use isthmus_e2e::{Shared, root};

static GRID: Shared = Shared::new("four-sites");

/// Runs tests/programs/ends.py between two nodes, and checks whether their connections are
/// encrypted.
fn check(nodes: [&str; 2], encrypted: bool) -> Result<()> {
    const COUNT: &str = "15";
    let world = GRID.take()?;
    let program = root().join("tests/programs/ends.py").display().to_string();
    let [first, second] = nodes;
    let pair = nodes.join(",");
    let words = ["mpirun.openmpi", "-n", "2", "--map-by", "node", "python3", &program, COUNT, first, second];
    let (output, account) = world.run_reported(first, &["--nodes", &pair], &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    for rank in 0..2 {
        ensure!(output.stdout.contains(&format!("rank {rank}: 0 of ")), "{}", output.whole());
    }
    if encrypted {
        let pairs = account["pairs"].as_array().cloned().unwrap_or_default();
        ensure!(!pairs.is_empty() && pairs.iter().all(|pair| pair["encrypted"] == true), "{account:#}");
    } else {
        ensure!(account["connections_within_sites"].as_u64() > Some(100), "{account:#}");
    }
    Ok(())
}

#[test]
fn of_encrypted_relayed_connections() -> Result<()> {
    check(["n1.alpha", "n1.beta"], true)
}

#[test]
#[ignore = "test-all"]
fn of_encrypted_connections_to_an_open_site() -> Result<()> {
    check(["n1.alpha", "n1.delta"], true)
}

#[test]
fn of_raw_connections() -> Result<()> {
    check(["n1.alpha", "n2.alpha"], false)
}
