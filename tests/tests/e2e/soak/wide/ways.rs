//! The ways that trunks take: once all is mended, those with which the plans begin.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{World, isthmus};
use serde_json::Value;

use super::hits::{NODES, site};

/// The dial with which all plans of the grid begin.
const WAY: &str = "punch";
/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(60);

/// Waits until it is known that all plans between sites begin with [`WAY`].
pub(super) fn expect_plans(world: &World, within: Duration) -> Result<()> {
    World::eventually("all plans between sites begin with punch", within, || {
        let pairs = NODES.iter().flat_map(|from| NODES.map(|to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| site(from) != site(to)) {
            if world.plan(from, to)?["steps"][0]["dial"] != WAY {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Waits until each trunk that a node has made goes by the first step of its plan, and no plan has
/// changed for good.
pub(super) fn expect_planned(world: &World, within: Duration) -> Result<()> {
    let mut others = Vec::new();
    World::eventually("all trunks go by the first steps of their plans", within, || {
        others.clear();
        for node in NODES {
            others.extend(other_ways(world, node)?);
        }
        Ok(others.is_empty())
    })
    .with_context(|| others.join("\n"))
}

/// Texts about a node's trunks that are cut or go by another way than [`WAY`], or whose plans begin
/// with another way.
fn other_ways(world: &World, node: &str) -> Result<Vec<String>> {
    let binary = isthmus().display().to_string();
    let output = world.sh(node, SOON, &[&binary, "trunks", "--json"])?;
    ensure!(output.status == 0, "{}", output.whole());
    let shown: Value = serde_json::from_str(&output.stdout)?;
    let mut others = Vec::new();
    for trunk in made_here(&shown)? {
        let peer = trunk["peer"].as_str().context("no peer")?;
        if site(peer) == site(node) {
            continue;
        }
        let plan = world.plan(node, peer)?;
        let planned = plan["steps"][0]["dial"].as_str().unwrap_or("nothing");
        let dial = trunk["dial"].as_str().unwrap_or("nothing");
        if !trunk["cut_seconds"].is_null() || planned != WAY || dial != WAY {
            others.push(format!("{node}: the plan begins with {planned}, and there is {trunk}"));
        }
    }
    Ok(others)
}

fn made_here(shown: &Value) -> Result<Vec<&Value>> {
    let trunks = shown["trunks"].as_array().context("no list of trunks")?;
    Ok(trunks.iter().filter(|trunk| trunk["made_here"] == true).collect())
}
