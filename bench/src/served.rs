//! What a message takes of processors: of the programs at both ends, which hold the kernel's own
//! sockets, against the same programs over plain TCP. Beside it, with the services at their nodes.
//!
//! Ranks of MPIs poll while they wait, so that their processor time says nothing. These programs
//! sleep while they wait. Others who use the machine make a message later, and hardly dearer. Both
//! ends share a core: whether a message wakes another core would be a matter of chance.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::account::{descendants, exact_cpu_time};
use crate::connect::PLAIN_TCP;
use crate::grid::{Bench, Node};
use crate::line_client::LineClient;
use crate::report::{Comparison, Pair};
use crate::traffic::Latency;
use crate::tunnel::{self, JOB_PORT};
use crate::verdict::Bar;

/// The port of the server without isthmus.
const PLAIN_PORT: u16 = 7109;
/// Where the programs run.
const PLACE: &str = "--one-core";
/// Sizes of messages in bytes.
pub(crate) const SIZES: [u32; 2] = [1, 10_000_000];

/// Processor time of a message, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Of the programs at both ends.
    pub programs: f64,
    /// And of the services at their nodes, which also watch the job.
    pub all: f64,
}

/// What a message costs between two nodes in a job of isthmus.
///
/// # Errors
/// The job fails, or no time was counted.
pub(crate) fn in_a_job(
    bench: &Bench,
    ends: [&Node; 2],
    size: u32,
    duration: Duration,
) -> anyhow::Result<Cost> {
    let [near, far] = ends;
    let mut client = tunnel::placed_job(bench, near, far, "", PLACE)?;
    let target = format!("{}:{JOB_PORT}", far.name);
    // The first connection opens ways, and the first messages find windows small.
    let _warm: Latency = client.ask(&line(&target, size), duration / 4)?;
    let mut serving =
        bench.services_in(|machine| [&near.name, &far.name].iter().any(|end| *end == machine))?;
    serving.extend(client.id());
    let programs = programs_of(&serving)?;
    ensure!(programs.len() == 2, "{} programs at the two ends", programs.len());
    let cost = of_a_message(&mut client, [&programs, &serving], &target, size, duration)?;
    client.finish(&format!("stop {target}"))?;
    Ok(cost)
}

/// What a message costs between the same programs without isthmus.
///
/// # Errors
/// A program fails, or no time was counted.
pub(crate) fn plain(bench: &Bench, ends: [&Node; 2], size: u32, duration: Duration) -> anyhow::Result<Cost> {
    let [near, far] = ends;
    let mut serving = bench.lab().machine(&far.name)?.command(tunnel::itself()?);
    serving.args(["traffic", "serve", PLACE, "--listen", &format!("0.0.0.0:{PLAIN_PORT}")]);
    let server = tunnel::start(serving)?;
    tunnel::wait_for_listener(bench, near, far.address, PLAIN_PORT)?;
    let mut obeying = bench.lab().machine(&near.name)?.command(tunnel::itself()?);
    obeying.args(["traffic", "obey", PLACE]);
    let mut client = LineClient::start(obeying)?;
    let target = format!("{}:{PLAIN_PORT}", far.address);
    let _warm: Latency = client.ask(&line(&target, size), duration / 4)?;
    let programs: Vec<u32> = client.id().into_iter().chain([server.0.id()]).collect();
    let programs = programs_of(&programs)?;
    of_a_message(&mut client, [&programs, &programs], &target, size, duration)
}

fn line(target: &str, size: u32) -> String {
    format!("ping {target} --size {size}")
}

/// The programs of the traffic among processes and their descendants.
fn programs_of(pids: &[u32]) -> anyhow::Result<Vec<u32>> {
    let mut found = BTreeSet::new();
    for pid in pids {
        found.extend(descendants(*pid)?.into_iter().filter(|pid| is_program(*pid)));
    }
    Ok(found.into_iter().collect())
}

/// Whether a process is a program of the traffic, not what starts one.
fn is_program(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"traffic")
}

fn of_a_message(
    client: &mut LineClient,
    pids: [&[u32]; 2],
    target: &str,
    size: u32,
    duration: Duration,
) -> anyhow::Result<Cost> {
    let spent =
        || -> anyhow::Result<[Duration; 2]> { Ok([exact_cpu_time(pids[0])?, exact_cpu_time(pids[1])?]) };
    let before = spent()?;
    let found: Latency = client.ask(&line(target, size), duration)?;
    let after = spent()?;
    ensure!(found.messages > 0, "no messages");
    let of = |which: usize| -> anyhow::Result<f64> {
        let spent = after[which].checked_sub(before[which]).context("a program has ended")?;
        ensure!(spent > Duration::ZERO, "{} messages in no time at all", found.messages);
        Ok(spent.as_secs_f64() * 1e6 / found.messages as f64)
    };
    Ok(Cost { programs: of(0)?, all: of(1)? })
}

/// Rows of messages of a size, which `what` names: of the programs, and of the services with them.
pub(crate) fn rows(what: &str, bar: Bar) -> Vec<Comparison> {
    let row = |of: &str| Comparison::new(format!("{what}, processor time{of}"), "µs", PLAIN_TCP);
    vec![row("").bar(bar), row(" with services")]
}

/// The figures of [`rows`], of a job and of plain TCP.
pub(crate) fn figures([ours, plain]: [Cost; 2]) -> Vec<Pair> {
    vec![[ours.programs, plain.programs], [ours.all, plain.programs]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_compared_with_programs() {
        let bar = Bar::AtMost(1.02);
        let figures = figures([Cost { programs: 10.0, all: 12.0 }, Cost { programs: 9.0, all: 9.0 }]);
        let rows = rows("message of 1 B", bar);
        let found: Vec<_> =
            rows.iter().zip(figures).map(|(row, figures)| (row.what.as_str(), row.bar, figures)).collect();
        assert_eq!(
            found,
            [
                ("message of 1 B, processor time", Some(bar), [10.0, 9.0]),
                ("message of 1 B, processor time with services", None, [12.0, 9.0]),
            ]
        );
    }

    #[test]
    fn what_starts_a_program_is_none() {
        // The test's own program has another first argument.
        assert_eq!(programs_of(&[std::process::id()]).unwrap(), Vec::<u32>::new());
        assert!(programs_of(&[0x7fff_fff0]).is_err());
    }
}
