//! How much of the machine others use while something is measured: processor time of
//! processes that are not the benchmark's, and time that the hypervisor took.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use procfs::process::{Stat, StatFlags};
use procfs::{CurrentSI as _, KernelStats};

use crate::conditions::cores;
use crate::confine;

/// How long the load is watched before a round.
const LOOK: Duration = Duration::from_millis(300);
/// Longest wait for a quiet machine before a round.
const WAIT: Duration = Duration::from_secs(10);

/// The share of all cores that other processes may use during a measurement.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    share: f64,
    proc: PathBuf,
    own: i32,
}

/// What other processes used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Others {
    /// Share of all cores, from 0 to 1.
    pub share: f64,
}

impl Limit {
    /// A limit of `share`. The benchmark's own processes are its first process outside of its
    /// namespaces, and all descendants of that.
    pub(crate) fn new(share: f64) -> Self {
        let (proc, own) = confine::outside();
        Self { share, proc, own }
    }

    /// Waits until the machine is quiet. Returns what others use if that takes too long, otherwise
    /// `None`.
    ///
    /// # Errors
    /// /proc can't be read.
    pub(crate) fn quiet(&self) -> anyhow::Result<Option<Others>> {
        let start = Instant::now();
        loop {
            let (_, busy) = self.during(|| std::thread::sleep(LOOK))?;
            if busy.is_none() || start.elapsed() > WAIT {
                return Ok(busy);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Calls `what`. Also returns what others used meanwhile if it was above the limit, otherwise
    /// `None`.
    ///
    /// # Errors
    /// /proc can't be read.
    pub(crate) fn during<T>(&self, what: impl FnOnce() -> T) -> anyhow::Result<(T, Option<Others>)> {
        let (before, start) = (Snapshot::take(&self.proc)?, Instant::now());
        let value = what();
        let (seconds, after) = (start.elapsed().as_secs_f64(), Snapshot::take(&self.proc)?);
        let ticks = others(&before, &after, self.own) as f64;
        let share = (ticks / procfs::ticks_per_second() as f64 / seconds / cores() as f64).min(1.0);
        Ok((value, (share > self.share).then_some(Others { share })))
    }
}

/// A process, with its processor time in ticks.
#[derive(Debug, Clone, Copy)]
struct Process {
    parent: i32,
    /// When the process started, in ticks since boot. It distinguishes the process from a later
    /// process with the same id.
    start: u64,
    /// Processor time of the process, user and system, and of its children that have been waited
    /// for.
    ticks: u64,
}

/// The processor time of all processes at a moment. The kernel's own threads are left out, as they
/// work for others and for the benchmark.
#[derive(Debug, Default)]
struct Snapshot {
    processes: HashMap<i32, Process>,
    /// Processor time in ticks that the hypervisor gave to other machines.
    stolen: u64,
}

impl Snapshot {
    fn take(proc: &std::path::Path) -> anyhow::Result<Self> {
        let all = procfs::process::all_processes_with_root(proc)?;
        let stats = all.flatten().filter_map(|process| process.stat().ok());
        let users = stats.filter(|stat| stat.flags & StatFlags::PF_KTHREAD.bits() == 0);
        Ok(Self {
            processes: users.map(|stat| (stat.pid, Process::from(&stat))).collect(),
            stolen: KernelStats::current()?.total.steal.unwrap_or(0),
        })
    }

    /// Ids of the process `first` and its descendants.
    fn family(&self, first: i32) -> HashSet<i32> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, process) in &self.processes {
            children.entry(process.parent).or_default().push(*pid);
        }
        let (mut found, mut open) = (HashSet::new(), vec![first]);
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(children.remove(&next).unwrap_or_default());
            }
        }
        found
    }
}

impl From<&Stat> for Process {
    fn from(stat: &Stat) -> Self {
        // The first process waits for orphans of everyone.
        let children = if stat.pid == 1 { 0 } else { u64::try_from(stat.cutime + stat.cstime).unwrap_or(0) };
        Self { parent: stat.ppid, start: stat.starttime, ticks: stat.utime + stat.stime + children }
    }
}

/// Ticks between two snapshots that processes outside the family of `own` used or the hypervisor
/// gave away.
fn others(before: &Snapshot, after: &Snapshot, own: i32) -> u64 {
    let (family_before, family_after) = (before.family(own), after.family(own));
    let same = |pid: &i32, process: &Process| {
        after.processes.get(pid).filter(|later| later.start == process.start).is_some()
    };
    let now: u64 = after
        .processes
        .iter()
        .filter(|(pid, _)| !family_after.contains(pid))
        .map(|(_, process)| process.ticks)
        .sum();
    let then: u64 = before
        .processes
        .iter()
        .filter(|(pid, _)| !family_before.contains(pid))
        // A process that has ended counts with its nearest ancestor that still runs. It is left out
        // if there is no ancestor but process 1.
        .filter(|(pid, process)| {
            let (mut pid, mut process) = (**pid, **process);
            while !same(&pid, &process) {
                match before.processes.get(&process.parent) {
                    Some(parent) if process.parent > 1 => (pid, process) = (process.parent, *parent),
                    _ => return false,
                }
            }
            true
        })
        .map(|(_, process)| process.ticks)
        .sum();
    now.saturating_sub(then) + after.stolen.saturating_sub(before.stolen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(stolen: u64, processes: &[(i32, i32, u64)]) -> Snapshot {
        let processes = processes
            .iter()
            .map(|(pid, parent, ticks)| (*pid, Process { parent: *parent, start: 7, ticks: *ticks }));
        Snapshot { processes: processes.collect(), stolen }
    }

    #[test]
    fn only_others_count() {
        // id, parent, ticks; the benchmark is 10.
        let before = [(1, 0, 50), (10, 1, 5), (11, 10, 5), (30, 1, 19), (20, 30, 100), (21, 20, 30)];
        for (name, stolen, after, want) in [
            ("nothing", 0, &before[..], 0),
            ("ours", 0, &[(1, 0, 50), (10, 1, 95), (11, 10, 85), (20, 1, 100), (21, 20, 30)], 0),
            ("ours and new", 0, &[(1, 0, 50), (10, 1, 5), (12, 10, 80), (20, 1, 100), (21, 20, 30)], 0),
            ("others", 0, &[(1, 0, 51), (10, 1, 5), (11, 10, 5), (20, 1, 102), (21, 20, 33)], 6),
            ("others, new", 0, &[(1, 0, 50), (10, 1, 5), (20, 1, 100), (21, 20, 30), (22, 20, 9)], 9),
            ("others, ended and waited for", 0, &[(1, 0, 50), (10, 1, 5), (20, 1, 140)], 10),
            ("others, ended with their parent", 0, &[(1, 0, 50), (10, 1, 5)], 0),
            ("stolen", 4, &before, 4),
            ("a parent and its child, waited for", 0, &[(1, 0, 50), (10, 1, 5), (30, 1, 161)], 12),
        ] {
            assert_eq!(others(&snapshot(0, &before), &snapshot(stolen, after), 10), want, "{name}");
        }
    }

    #[test]
    fn this_process_is_not_another() {
        let limit = Limit::new(f64::INFINITY);
        let (value, busy) = limit.during(|| 5).unwrap();
        assert_eq!((value, busy), (5, None));
        let snapshot = Snapshot::take(&limit.proc).unwrap();
        assert!(snapshot.family(limit.own).contains(&limit.own));
        let (_, busy) = Limit { share: -1.0, ..limit }.during(|| ()).unwrap();
        assert!(busy.is_some_and(|others| others.share >= 0.0));
    }
}
