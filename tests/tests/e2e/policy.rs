//! What the grid's policy forbids two sites, and what they do instead.

use anyhow::{Result, ensure};
use isthmus_e2e::Shared;

static GRID: Shared = Shared::new("policy");

#[test]
fn both_gateways_dial_for_nodes_that_could_themselves() -> Result<()> {
    let world = GRID.take()?;
    world.joined_by("n1.beta", "n1.alpha", "direct, two-gateway")?;
    world.joined_by("n1.alpha", "n1.beta", "reverse, two-gateway")
}

#[test]
fn one_gateway_suffices_where_nodes_are_not_to_dial_each_other() -> Result<()> {
    let world = GRID.take()?;
    world.joined_by("n1.gamma", "n1.alpha", "direct, one-gateway")?;
    world.joined_by("n1.alpha", "n1.gamma", "reverse, gateway-out")
}

#[test]
fn sites_that_nothing_may_join_end_the_run_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.beta", &["--nodes", "n1.beta,n1.gamma"], &["touch", "/tmp/started"])?;
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("forbidden between sites beta and gamma"), "{}", output.whole());
    Ok(())
}
