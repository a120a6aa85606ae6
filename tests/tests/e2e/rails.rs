//! Sites with several links: a trunk uses all of them, and outlives each.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Shared, Stream, World};

static GRID: Shared = Shared::new("rails");

const NODES: [&str; 2] = ["n1.beta", "n1.alpha"];
/// Names of both links of the site alpha.
const LINKS: [&str; 2] = ["alpha", "alpha/far"];
/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(120);

/// Bytes that have crossed each of [`LINKS`] so far, in both directions.
fn carried(world: &World) -> Result<[u64; 2]> {
    let report = world.lab().emulation()?.context("no emulator")?;
    let of = |name: &str| {
        report
            .link(name)
            .map(|link| link.up.bytes + link.down.bytes)
            .with_context(|| format!("no link {name}"))
    };
    Ok([of(LINKS[0])?, of(LINKS[1])?])
}

/// Waits until the stream has carried data over all of these links.
fn flows_over(world: &World, stream: &Stream, links: &[usize]) -> Result<()> {
    let before = carried(world)?;
    World::eventually("data flows over the links", SOON, || {
        let now = carried(world)?;
        Ok(links.iter().all(|link| now[*link] > before[*link] + (1 << 20)))
    })
    .with_context(|| format!("before {before:?}, then {:?}", carried(world)))?;
    stream.flows()
}

/// Checks that the stream goes over both links, and over each while the other is cut.
fn goes_over_each(world: &World, stream: &Stream) -> Result<()> {
    flows_over(world, stream, &[0, 1]).context("over both")?;
    for (cut, other) in [(0, 1), (1, 0)] {
        world.lab().cut(LINKS[cut])?;
        let flows = flows_over(world, stream, &[other]);
        world.lab().heal(LINKS[cut])?;
        flows.with_context(|| format!("while {} is cut", LINKS[cut]))?;
        flows_over(world, stream, &[0, 1]).with_context(|| format!("{} is healed", LINKS[cut]))?;
    }
    Ok(())
}

fn uses_and_outlives_each_link(options: &[&str]) -> Result<()> {
    let world = GRID.take()?;
    let stream = Stream::start(&world, &NODES, options)?;
    let done = goes_over_each(&world, &stream);
    let ended = stream.end();
    done.with_context(|| world.logs().unwrap_or_default())?;
    ensure!(ended? > 0, "nothing was carried");
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn the_trunk_of_two_gateways_uses_and_outlives_each_link() -> Result<()> {
    uses_and_outlives_each_link(&[])
}

#[test]
#[ignore = "test-all"]
fn the_trunk_of_two_agents_uses_and_outlives_each_link() -> Result<()> {
    uses_and_outlives_each_link(&["--encrypt-to-nodes"])
}
