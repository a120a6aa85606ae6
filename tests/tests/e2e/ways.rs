//! Every kind of site against every other kind: a job and 100 connections at
//! once succeed, by the way in docs/connectivity.md.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Shared, World, root};

static GRID: Shared = Shared::new("ways");

/// Time within which agents find out how they are seen from outside. It guards against hanging
/// only.
const SOON: Duration = Duration::from_secs(90);

/// The node of a site of this kind in the grid. There are two sites of each kind, `a` and `b`.
fn node(kind: &str, side: char) -> Result<String> {
    let name = match kind {
        "open" => "open",
        "port-range" => "port",
        "firewall" => "fire",
        "stateless-firewall" => "less",
        "nat" => "nat",
        "carrier-nat" => "cgn",
        "symmetric-nat" => "sym",
        "enclosed" => "enc",
        "enclosed, front-end let in" => "front",
        other => anyhow::bail!("no site is {other}"),
    };
    Ok(format!("n1.{name}-{side}"))
}

/// The entry of docs/connectivity.md's table for two kinds of sites.
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

/// Waits until both nodes know how they are seen from outside, or that they don't reach it.
fn known(world: &World, from: &str, to: &str) -> Result<()> {
    World::eventually("both nodes know how they are seen", SOON, || {
        let plan = world.plan(from, to)?;
        let known = |end: &str| plan[end]["mapping"] != "unknown" || plan[end]["way_out"] == false;
        Ok(known("from") && known("to"))
    })
}

fn cell(from: &str, to: &str) -> Result<()> {
    let world = GRID.take()?;
    let want = expected(from, to)?;
    let (from, to) = (node(from, 'a')?, node(to, 'b')?);
    known(&world, &from, &to)?;
    let ways = world.hundred(&from, &to)?;
    ensure!(ways == BTreeMap::from([(want.clone(), 100)]), "{ways:?}, not 100 by {want}");
    world.all_to_all(&[&from, &to])?;
    Ok(())
}

/// Defines a test per cell of the table, `FROM::to_TO`. All but a few are for `make test-all`.
macro_rules! cells {
    ($($from:ident $kind:literal: $open:meta, $port:meta, $firewall:meta, $stateless:meta, $nat:meta, $carrier:meta, $symmetric:meta, $enclosed:meta, $front:meta;)*) => {
        $(mod $from {
            use super::{Result, cell};
            cells!(@ $kind $open to_open "open");
            cells!(@ $kind $port to_port_range "port-range");
            cells!(@ $kind $firewall to_firewall "firewall");
            cells!(@ $kind $stateless to_stateless_firewall "stateless-firewall");
            cells!(@ $kind $nat to_nat "nat");
            cells!(@ $kind $carrier to_carrier_nat "carrier-nat");
            cells!(@ $kind $symmetric to_symmetric_nat "symmetric-nat");
            cells!(@ $kind $enclosed to_enclosed "enclosed");
            cells!(@ $kind $front to_front_end "enclosed, front-end let in");
        })*
    };
    (@ $from:literal $always:meta $name:ident $to:literal) => {
        #[test]
        #[cfg_attr(not($always), ignore = "test-all")]
        fn $name() -> Result<()> {
            cell($from, $to)
        }
    };
}

cells! {
    open "open": all(), any(), any(), any(), all(), any(), any(), all(), any();
    port_range "port-range": any(), any(), any(), any(), all(), any(), any(), any(), any();
    firewall "firewall": any(), any(), all(), any(), all(), any(), any(), any(), any();
    stateless_firewall "stateless-firewall": any(), any(), any(), all(), any(), any(), any(), any(), any();
    nat "nat": any(), all(), any(), all(), all(), any(), all(), all(), all();
    carrier_nat "carrier-nat": any(), any(), any(), any(), any(), all(), any(), any(), any();
    symmetric_nat "symmetric-nat": all(), any(), any(), any(), any(), any(), any(), any(), any();
    enclosed "enclosed": all(), any(), any(), any(), any(), any(), any(), all(), any();
    front_end "enclosed, front-end let in": any(), any(), any(), any(), all(), any(), any(), any(), all();
}
