//! What a message takes of processors: of the programs at both ends, and of the services at their
//! nodes, which serve them. Beside it, the same programs over plain TCP.
//!
//! Ranks of MPIs poll while they wait, so that their processor time says nothing. These programs
//! sleep while they wait. Others who use the machine make a message later, and hardly dearer.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::account::exact_cpu_time;
use crate::grid::{Bench, Node};
use crate::line_client::LineClient;
use crate::traffic::Latency;
use crate::tunnel::{self, JOB_PORT};

/// The port of the server without isthmus.
const PLAIN_PORT: u16 = 7109;
/// Sizes of messages in bytes.
pub(crate) const SIZES: [u32; 2] = [1, 10_000_000];

/// Processor time of a message in microseconds, between two nodes in a job of isthmus.
///
/// # Errors
/// The job fails, or no time was counted.
pub(crate) fn in_a_job(
    bench: &Bench,
    ends: [&Node; 2],
    size: u32,
    duration: Duration,
) -> anyhow::Result<f64> {
    let [near, far] = ends;
    let mut client = tunnel::job(bench, near, far, "")?;
    let target = format!("{}:{JOB_PORT}", far.name);
    let mut serving =
        bench.services_in(|machine| [&near.name, &far.name].iter().any(|end| *end == machine))?;
    serving.extend(client.id());
    let cost = of_a_message(&mut client, &serving, &target, size, duration)?;
    client.finish(&format!("stop {target}"))?;
    Ok(cost)
}

/// Processor time of a message in microseconds, between the same programs without isthmus.
///
/// # Errors
/// A program fails, or no time was counted.
pub(crate) fn plain(bench: &Bench, ends: [&Node; 2], size: u32, duration: Duration) -> anyhow::Result<f64> {
    let [near, far] = ends;
    let mut serving = bench.lab().machine(&far.name)?.command(tunnel::itself()?);
    serving.args(["traffic", "serve", "--listen", &format!("0.0.0.0:{PLAIN_PORT}")]);
    let server = tunnel::start(serving)?;
    tunnel::wait_for_listener(bench, near, far.address, PLAIN_PORT)?;
    let mut client = tunnel::client(bench, near)?;
    let programs: Vec<u32> = client.id().into_iter().chain([server.0.id()]).collect();
    let target = format!("{}:{PLAIN_PORT}", far.address);
    of_a_message(&mut client, &programs, &target, size, duration)
}

fn of_a_message(
    client: &mut LineClient,
    pids: &[u32],
    target: &str,
    size: u32,
    duration: Duration,
) -> anyhow::Result<f64> {
    let line = format!("ping {target} --size {size}");
    // The first connection opens ways, and the first messages find windows small.
    let _warm: Latency = client.ask(&line, duration / 4)?;
    let before = exact_cpu_time(pids)?;
    let found: Latency = client.ask(&line, duration)?;
    let spent = exact_cpu_time(pids)?.checked_sub(before).context("a program has ended")?;
    ensure!(spent > Duration::ZERO && found.messages > 0, "{} messages in {spent:?}", found.messages);
    Ok(spent.as_secs_f64() * 1e6 / found.messages as f64)
}
