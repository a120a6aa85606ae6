//! Every kind of site against every other kind: a job and 100 connections at
//! once succeed, by the way that docs/connectivity.md says.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, World, isthmus, root};

static GRID: Shared = Shared::new("ways");

/// Within which agents find out how they are seen from outside.
const SOON: Duration = Duration::from_secs(20);

/// A site of a kind, as the grid has it; `b` is another one of the same kind.
fn node(kind: &str, side: char) -> Result<String> {
    let name = match kind {
        "open" => "open",
        "port-range" => "port",
        "firewall" => "fire",
        "stateless-firewall" => "less",
        "nat" => "nat",
        "carrier-nat" => "cgn",
        "symmetric-nat" => "sym",
        other => anyhow::bail!("no site is {other}"),
    };
    Ok(format!("n1.{name}-{side}"))
}

/// What the table says of two kinds.
fn expected(from: &str, to: &str) -> Result<String> {
    let page = std::fs::read_to_string(root().join("docs/connectivity.md"))?;
    let (_, table) = page.split_once("<!-- matrix -->\n").context("no table")?;
    let (table, _) = table.split_once("<!-- end -->").context("no end of the table")?;
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = table.lines().map(cells);
    let column =
        lines.next().and_then(|head| head.iter().position(|kind| kind == to)).context("no column")?;
    let row = lines.find(|row| row.first().is_some_and(|kind| kind == from)).context("no row")?;
    row.get(column).cloned().context("no cell")
}

/// Waits until both are known to be seen from outside.
fn known(world: &World, from: &str, to: &str) -> Result<()> {
    let binary = isthmus().display().to_string();
    World::eventually("both nodes know how they are seen", SOON, || {
        let output = world.sh(from, SOON, &[&binary, "plan", from, to, "--json"])?;
        ensure!(output.status == 0, "{}", output.whole());
        let plan: serde_json::Value = serde_json::from_str(&output.stdout)?;
        Ok(["from", "to"].iter().all(|end| plan[end]["mapping"] != "unknown"))
    })
}

fn cell(from: &str, to: &str) -> Result<()> {
    let world = GRID.take()?;
    let want = expected(from, to)?;
    let (from, to) = (node(from, 'a')?, node(to, 'b')?);
    known(&world, &from, &to)?;
    let nodes = format!("{from},{to}");
    let program = root().join("tests/programs/hundred.py").display().to_string();
    let (output, report) =
        world.run_reported(&from, &["--nodes", &nodes, "--each"], &["python3", &program])?;
    ensure!(output.status == 0, "{}", output.whole());
    let pairs = report["node_pairs"].as_array().context("no pairs")?;
    let mut ways: BTreeMap<&str, u64> = BTreeMap::new();
    for pair in pairs {
        let dial = pair["dial"].as_str().context("no dial")?;
        *ways.entry(dial).or_default() += pair["connections"].as_u64().context("no number")?;
    }
    ensure!(
        ways == BTreeMap::from([(want.as_str(), 100)]),
        "{ways:?}, not 100 by {want}\n{}",
        output.whole()
    );
    let (launcher, alltoall) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("alltoall"));
    let output = world.run(&from, &["--nodes", &nodes], &[&launcher, "-n", "2", &alltoall])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    Ok(())
}

/// One test per cell, `FROM::to_TO`; all but a few wait for `make test-matrix`.
macro_rules! cells {
    ($($from:ident $kind:literal: $open:meta, $port:meta, $firewall:meta, $stateless:meta, $nat:meta, $carrier:meta, $symmetric:meta;)*) => {
        $(mod $from {
            use super::{Result, cell};
            cells!(@ $kind $open to_open "open");
            cells!(@ $kind $port to_port_range "port-range");
            cells!(@ $kind $firewall to_firewall "firewall");
            cells!(@ $kind $stateless to_stateless_firewall "stateless-firewall");
            cells!(@ $kind $nat to_nat "nat");
            cells!(@ $kind $carrier to_carrier_nat "carrier-nat");
            cells!(@ $kind $symmetric to_symmetric_nat "symmetric-nat");
        })*
    };
    (@ $from:literal $always:meta $name:ident $to:literal) => {
        #[test]
        #[cfg_attr(not($always), ignore = "make test-matrix runs all cells")]
        fn $name() -> Result<()> {
            cell($from, $to)
        }
    };
}

cells! {
    open "open": all(), any(), any(), any(), all(), any(), any();
    port_range "port-range": any(), any(), any(), any(), all(), any(), any();
    firewall "firewall": any(), any(), all(), any(), all(), any(), any();
    stateless_firewall "stateless-firewall": any(), any(), any(), all(), any(), any(), any();
    nat "nat": any(), all(), any(), all(), all(), any(), all();
    carrier_nat "carrier-nat": any(), any(), any(), any(), any(), all(), any();
    symmetric_nat "symmetric-nat": all(), any(), any(), any(), any(), any(), any();
}
