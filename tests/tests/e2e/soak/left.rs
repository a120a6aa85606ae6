//! What is left of a job after its end: nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use isthmus_e2e::{World, promised};

use super::running::expect_whole;

/// Time within which everything of a job is gone, once the grid is whole.
const SECONDS: Duration = Duration::from_secs(10);
/// Time within which services that were started again are attached. It guards against hanging only.
const SOON: Duration = Duration::from_secs(120);

/// Some nodes, each with the number of sockets that listened on it before a job. `None` before
/// [`note`](Self::note).
#[derive(Debug, Default)]
pub(super) struct Left(BTreeMap<&'static str, Option<usize>>);

impl Left {
    /// Takes the nodes before the first job. Services may keep what they open for that job.
    pub(super) fn new(nodes: &[&'static str]) -> Self {
        Self(nodes.iter().map(|node| (*node, None)).collect())
    }

    /// Notes the present number of listening sockets. To be called while no job runs.
    pub(super) fn note(&mut self, world: &World) -> Result<()> {
        for (node, listening) in &mut self.0 {
            *listening = Some(count(&sockets(world, node)?, "LISTEN"));
        }
        Ok(())
    }

    /// Checks that no node has anything of a job left. That would be a process, a directory, an
    /// entry in `isthmus status`, a further listener, or a connection that its other end has
    /// closed. After each fault, agents probe what their site lets in, at ports of their own, also
    /// without a job. Those ports are gone later.
    pub(super) fn expect_nothing(&self, world: &World) -> Result<()> {
        expect_whole(world, &self.0.keys().copied().collect::<Vec<_>>())?;
        let seconds = promised(SECONDS);
        let until = Instant::now() + seconds;
        world.expect_clean_within(seconds)?;
        loop {
            let (left, without_probes) = self.found(world)?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until && !without_probes.is_empty() {
                bail!("left behind after {seconds:?}:\n{}", without_probes.join("\n"));
            }
            if Instant::now() > until + SOON {
                bail!("left behind after {:?}:\n{}", seconds + SOON, left.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What nodes have that wasn't there before, and what remains of that without the ports of
    /// probes.
    fn found(&self, world: &World) -> Result<(Vec<String>, Vec<String>)> {
        let (mut left, mut without_probes) = (Vec::new(), Vec::new());
        for (node, before) in &self.0 {
            let jobs = world.status(node)?["jobs"].as_array().cloned().unwrap_or_default();
            let sockets = sockets(world, node)?;
            let others = without(&sockets, &probed(&sockets));
            for (found, sockets) in [(&mut left, sockets), (&mut without_probes, others)] {
                found.extend(jobs.iter().map(|job| format!("{node}: in `isthmus status`: {job}")));
                if before.is_some_and(|before| count(&sockets, "LISTEN") > before) {
                    found.push(format!("{node}: more than {before:?} listeners:\n{sockets}"));
                }
                if count(&sockets, "CLOSE-WAIT") > 0 {
                    found.push(format!("{node}: dead connections:\n{sockets}"));
                }
            }
        }
        Ok((left, without_probes))
    }
}

/// The TCP sockets of a node, in lines that each begin with the state.
fn sockets(world: &World, node: &str) -> Result<String> {
    let listing = world.sh(node, SOON, &["ss", "-Htanp"])?;
    ensure!(listing.status == 0, "{}", listing.whole());
    Ok(listing.stdout)
}

/// The ports on which an agent listens for probes and punched connections. Their listeners have a
/// short backlog.
fn probed(sockets: &str) -> Vec<String> {
    let port = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_probe = words.first() == Some(&"LISTEN") && words.get(2) == Some(&"8");
        words.get(3).filter(|_| is_probe)?.rsplit(':').next().map(str::to_owned)
    };
    sockets.lines().filter_map(port).collect()
}

/// The lines of sockets at other ports than these.
fn without(sockets: &str, ports: &[String]) -> String {
    let is_other = |line: &&str| {
        let port = line.split_whitespace().nth(3).and_then(|local| local.rsplit(':').next());
        !port.is_some_and(|port| ports.iter().any(|probed| probed == port))
    };
    sockets.lines().filter(is_other).collect::<Vec<_>>().join("\n")
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

#[test]
fn ports_of_probes_are_told_from_others() {
    let sockets = "LISTEN 0 8 10.0.0.1:99 0.0.0.0:*\nCLOSE-WAIT 1 0 10.0.0.1:99 1.1.1.2:4\n\
                   LISTEN 0 4096 10.0.0.1:7730 0.0.0.0:*\nCLOSE-WAIT 1 0 10.0.0.1:3 1.1.1.2:99\n";
    let others = without(sockets, &probed(sockets));
    assert_eq!(others, "LISTEN 0 4096 10.0.0.1:7730 0.0.0.0:*\nCLOSE-WAIT 1 0 10.0.0.1:3 1.1.1.2:99");
}
