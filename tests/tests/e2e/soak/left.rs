//! What is left of a job after its end: nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use isthmus_e2e::World;

use super::running::{NODES, is_whole};

/// Within which everything of a job is gone, once the grid is whole.
const SECONDS: Duration = Duration::from_secs(10);
/// Services that were started again are attached within this.
const SOON: Duration = Duration::from_secs(60);

/// How many sockets listened on each node before a job.
#[derive(Debug, Default)]
pub(super) struct Left(BTreeMap<&'static str, usize>);

impl Left {
    /// As it is now, without a job.
    pub(super) fn before(world: &World) -> Result<Self> {
        let listening = |node: &'static str| Ok((node, count(&sockets(world, node)?, "LISTEN")));
        Ok(Self(NODES.into_iter().map(listening).collect::<Result<_>>()?))
    }

    /// No node has a process, a job's directory, an entry in `isthmus status`, a further
    /// listener, or a connection whose other end has closed it.
    pub(super) fn expect_nothing(&self, world: &World) -> Result<()> {
        World::eventually("the grid is whole", SOON, || Ok(is_whole(world)))?;
        let until = Instant::now() + SECONDS;
        world.expect_clean(SECONDS)?;
        loop {
            let left = self.found(world)?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("left behind after {SECONDS:?}:\n{}", left.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn found(&self, world: &World) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for node in NODES {
            let jobs = world.status(node)?["jobs"].as_array().cloned().unwrap_or_default();
            left.extend(jobs.iter().map(|job| format!("{node}: in `isthmus status`: {job}")));
            let sockets = sockets(world, node)?;
            let before = self.0.get(node).copied();
            if before.is_some_and(|before| count(&sockets, "LISTEN") > before) {
                left.push(format!("{node}: more than {before:?} listeners:\n{sockets}"));
            }
            if count(&sockets, "CLOSE-WAIT") > 0 {
                left.push(format!("{node}: dead connections:\n{sockets}"));
            }
        }
        Ok(left)
    }
}

/// A node's TCP sockets, a line each that begins with the state.
fn sockets(world: &World, node: &str) -> Result<String> {
    let listing = world.sh(node, SECONDS, &["ss", "-Htanp"])?;
    ensure!(listing.status == 0, "{}", listing.whole());
    Ok(listing.stdout)
}

fn count(sockets: &str, state: &str) -> usize {
    sockets.lines().filter(|line| line.split_whitespace().next() == Some(state)).count()
}

#[test]
fn sockets_are_counted_by_state() {
    let sockets = "LISTEN     0 128 127.0.0.1:7710 0.0.0.0:*\nESTAB 0 0 1.1.1.1:1 1.1.1.2:2\n\
                   CLOSE-WAIT 1 0 1.1.1.1:3 1.1.1.2:4\nLISTEN 0 4096 *:9 *:*\n";
    for (state, want) in [("LISTEN", 2), ("ESTAB", 1), ("CLOSE-WAIT", 1), ("TIME-WAIT", 0)] {
        assert_eq!(count(sockets, state), want, "{state}");
    }
}
