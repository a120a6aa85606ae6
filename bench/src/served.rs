//! What a message takes of processors: of the programs at both ends, which hold the kernel's own
//! sockets, against the same programs over plain TCP. Beside it, with the services at their nodes.
//!
//! Ranks of MPIs poll while they wait, so that their processor time says nothing. These programs
//! sleep while they wait. Others who use the machine make a message later, and hardly dearer. Both
//! ends share a core: whether a message wakes another core would be a matter of chance.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::ensure;

use crate::account::{CpuTimes, descendants, exact_cpu_time};
use crate::confine::Running;
use crate::connect::PLAIN_TCP;
use crate::grid::{Bench, Node};
use crate::line_client::LineClient;
use crate::report::{Comparison, Pair};
use crate::traffic::Latency;
use crate::tunnel::{self, JOB_PORT};
use crate::verdict::Bar;

/// The port of the server without isthmus.
const PLAIN_PORT: u16 = 7109;
/// How often each side sends in a round, and for how long.
const TURNS: usize = 4;
const TURN: Duration = Duration::from_millis(400);
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

/// The programs at both ends of a way, which stand.
struct Standing {
    client: LineClient,
    /// The line that has the client measure.
    line: String,
    programs: Vec<u32>,
    serving: Vec<u32>,
    spent: [Duration; 2],
    messages: u64,
    /// The server without isthmus, which ends with this value.
    _server: Option<Running>,
}

impl Standing {
    fn in_a_job(bench: &Bench, [near, far]: [&Node; 2], size: u32) -> anyhow::Result<Self> {
        let client = tunnel::placed_job(bench, near, far, "", PLACE)?;
        let mut serving =
            bench.services_in(|machine| [&near.name, &far.name].iter().any(|end| *end == machine))?;
        serving.extend(client.id());
        Self::new(client, serving, &format!("{}:{JOB_PORT}", far.name), size, None)
    }

    fn plain(bench: &Bench, [near, far]: [&Node; 2], size: u32) -> anyhow::Result<Self> {
        let mut serving = bench.lab().machine(&far.name)?.command(tunnel::itself()?);
        serving.args(["traffic", "serve", PLACE, "--listen", &format!("0.0.0.0:{PLAIN_PORT}")]);
        let server = tunnel::start(serving)?;
        tunnel::wait_for_listener(bench, near, far.address, PLAIN_PORT)?;
        let mut obeying = bench.lab().machine(&near.name)?.command(tunnel::itself()?);
        obeying.args(["traffic", "obey", PLACE]);
        let client = LineClient::start(obeying)?;
        let serving: Vec<u32> = client.id().into_iter().chain([server.0.id()]).collect();
        Self::new(client, serving, &format!("{}:{PLAIN_PORT}", far.address), size, Some(server))
    }

    fn new(
        mut client: LineClient,
        serving: Vec<u32>,
        target: &str,
        size: u32,
        server: Option<Running>,
    ) -> anyhow::Result<Self> {
        let line = format!("ping {target} --size {size}");
        // The first connection opens ways, and the first messages find windows small.
        let _warm: Latency = client.ask(&line, TURN)?;
        let programs = programs_of(&serving)?;
        ensure!(programs.len() == 2, "{} programs at the two ends", programs.len());
        let (spent, messages) = ([Duration::ZERO; 2], 0);
        Ok(Self { client, line, programs, serving, spent, messages, _server: server })
    }

    fn so_far(&self) -> anyhow::Result<[CpuTimes; 2]> {
        Ok([exact_cpu_time(&self.programs)?, exact_cpu_time(&self.serving)?])
    }

    /// Sends messages for a turn.
    fn turn(&mut self) -> anyhow::Result<()> {
        let before = self.so_far()?;
        let found: Latency = self.client.ask(&self.line, TURN)?;
        let after = self.so_far()?;
        for (spent, (after, before)) in self.spent.iter_mut().zip(after.iter().zip(&before)) {
            *spent += after.since(before)?;
        }
        self.messages += found.messages;
        Ok(())
    }

    fn cost(&self) -> anyhow::Result<Cost> {
        let [programs, all] = self.spent.map(|spent| spent.as_secs_f64() * 1e6 / self.messages as f64);
        ensure!(programs > 0.0 && self.messages > 0, "{} messages in no time at all", self.messages);
        Ok(Cost { programs, all })
    }
}

/// What a message costs in a job, over the way between `ends`, and over plain TCP between `plain`. Both
/// take short turns, so that what others do to caches and memory falls on both.
///
/// # Errors
/// A program fails, or no time was counted.
pub(crate) fn costs(
    bench: &Bench,
    ends: [&Node; 2],
    plain: [&Node; 2],
    size: u32,
    round: usize,
) -> anyhow::Result<[Cost; 2]> {
    let mut standing = [Standing::in_a_job(bench, ends, size)?, Standing::plain(bench, plain, size)?];
    for turn in 0..TURNS {
        let first = (round + turn) % 2;
        standing[first].turn()?;
        standing[1 - first].turn()?;
    }
    let costs = [standing[0].cost()?, standing[1].cost()?];
    let [ours, _] = standing;
    ours.client.finish(&format!("stop {}:{JOB_PORT}", ends[1].name))?;
    Ok(costs)
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

/// Rows of messages of a size, which `what` names: of the programs, and of the services with them.
pub(crate) fn rows(what: &str, size: u32, bar: Option<Bar>) -> Vec<Comparison> {
    let row = |of: &str| Comparison::new(format!("{what}, processor time{of}"), "µs", PLAIN_TCP);
    vec![row("").bar(bar.filter(|_| is_judged(size))), row(" with services")]
}

/// Whether messages of a size are judged by processor time. Large ones are copies, whose time is that
/// of the memory, which all who use the machine share: they are judged by time, on a quiet machine.
pub(crate) fn is_judged(size: u32) -> bool {
    size <= SIZES[0]
}

/// Loose bar of the time of messages that are judged by processor time: a detour costs programs nothing,
/// so that only a time shows it. A detour over another machine takes twice as long at least. What is
/// below is the machine's noise.
pub(crate) const NO_DETOUR: Bar = Bar::AtMost(1.25);

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
        assert_eq!(rows("message of 10 MB", 10_000_000, Some(bar))[0].bar, None);
        let rows = rows("message of 1 B", 1, Some(bar));
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
