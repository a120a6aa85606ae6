//! How much of the machine is used while something is measured: by processes that are not the
//! benchmark's, together with time that the hypervisor took, and by all but ranks that poll while
//! they wait. The machine is the processors that the benchmark may run on: with `taskset -c 0` the
//! others are free for other work meanwhile.

mod polled;
mod shares;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isthmus_lab::grid::Slow;
use procfs::process::{Stat, StatFlags};
use procfs::{CpuTime, CurrentSI as _, KernelStats};

use crate::conditions::cores;
use crate::confine;
use polled::Polled;

pub(crate) use shares::{Objection, Shares, Used};

/// How long the load is watched before a round.
const LOOK: Duration = Duration::from_millis(300);
/// How often programs that poll are looked for meanwhile: seldom, as all processes are looked at. What one
/// uses after the last look counts as use.
const LOOK_AT_POLLED: Duration = Duration::from_secs(1);
/// Longest wait for a quiet machine before a round.
const WAIT: Duration = Duration::from_secs(10);

/// Watches what is used of the machine.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    shares: Shares,
    proc: PathBuf,
    own: i32,
    processors: Processors,
}

impl Watch {
    /// The benchmark's own processes are its first process outside of its namespaces, and all
    /// descendants of that.
    pub(crate) fn new(shares: Shares) -> Self {
        let (proc, own) = confine::outside();
        Self { shares, proc, own, processors: Processors::own() }
    }

    /// Waits until the machine is quiet enough. Returns why not if that takes too long, otherwise
    /// `None`. What programs named `polling` use counts for nothing: other grids may have some.
    ///
    /// # Errors
    /// /proc can't be read.
    pub(crate) fn quiet(&self, slow: Slow, polling: &[&str]) -> anyhow::Result<Option<Objection>> {
        let start = Instant::now();
        loop {
            let (_, objection) = self.during(slow, polling, || std::thread::sleep(LOOK))?;
            if objection.is_none() || start.elapsed() > WAIT {
                return Ok(objection);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Calls `what`. Also returns why that doesn't count as a measurement, `None` if it does. What
    /// programs named `polling` use counts for nothing.
    ///
    /// # Errors
    /// /proc can't be read.
    pub(crate) fn during<T>(
        &self,
        slow: Slow,
        polling: &[&str],
        what: impl FnOnce() -> T,
    ) -> anyhow::Result<(T, Option<Objection>)> {
        let take = || Snapshot::take(&self.proc, &self.processors);
        let (before, start) = (take()?, Instant::now());
        let (value, polled) =
            if slow.is_none() || polling.is_empty() { (what(), 0) } else { self.polled(polling, what) };
        let (seconds, after) = (start.elapsed().as_secs_f64(), take()?);
        let share = |ticks: u64| {
            (ticks as f64 / procfs::ticks_per_second() as f64 / seconds / cores() as f64).min(1.0)
        };
        let all = share(after.busy.saturating_sub(before.busy).saturating_sub(polled));
        // A process that has waited for others has their time, which they may have used elsewhere.
        let others = share(others(&before, &after, self.own, &self.processors)).min(all);
        let used = Used { others, all };
        Ok((value, self.shares.objection(slow, used)))
    }
}

impl Watch {
    /// Calls `what`. Also returns the processor time in ticks that programs of these names used
    /// meanwhile. They may begin and end meanwhile, so they are looked for all the time.
    fn polled<T>(&self, names: &[&str], what: impl FnOnce() -> T) -> (T, u64) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut polled = Polled::default();
                loop {
                    let was_done = done.load(Ordering::Relaxed);
                    polled.see(self.stats().filter(|stat| names.contains(&stat.comm.as_str())));
                    if was_done {
                        return polled.ticks();
                    }
                    std::thread::park_timeout(LOOK_AT_POLLED);
                }
            });
            let value = what();
            done.store(true, Ordering::Relaxed);
            watching.thread().unpark();
            // Without a figure, all that polled counts as use.
            (value, watching.join().unwrap_or(0))
        })
    }

    fn stats(&self) -> impl Iterator<Item = Stat> {
        let all = procfs::process::all_processes_with_root(&self.proc).into_iter().flatten().flatten();
        all.filter_map(|process| process.stat().ok())
    }
}

/// The processors that this process may run on, by number. They are those that the kernel had at the
/// start of the watch.
#[derive(Debug, Clone)]
struct Processors(Vec<(u32, u32)>);

impl Processors {
    /// All, if the kernel doesn't say.
    fn own() -> Self {
        let status = procfs::process::Process::myself().and_then(|process| process.status());
        let listed = status.ok().and_then(|status| status.cpus_allowed_list);
        Self(listed.unwrap_or_else(|| vec![(0, u32::MAX)]))
    }

    fn has(&self, processor: usize) -> bool {
        let within = |(first, last): &(u32, u32)| (*first as usize..=*last as usize).contains(&processor);
        self.0.iter().any(within)
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
    /// The processor on which it last ran.
    processor: usize,
}

/// The processor time of all processes at a moment. The kernel's own threads are left out, as they
/// work for others and for the benchmark.
#[derive(Debug, Default)]
struct Snapshot {
    processes: HashMap<i32, Process>,
    /// Processor time in ticks that the hypervisor gave to other machines.
    stolen: u64,
    /// Processor time in ticks in which processors weren't idle, what was stolen included.
    busy: u64,
}

impl Snapshot {
    fn take(proc: &std::path::Path, processors: &Processors) -> anyhow::Result<Self> {
        let all = procfs::process::all_processes_with_root(proc)?;
        let stats = all.flatten().filter_map(|process| process.stat().ok());
        let users = stats.filter(|stat| stat.flags & StatFlags::PF_KTHREAD.bits() == 0);
        let times = KernelStats::current()?.cpu_time;
        let ours = || times.iter().enumerate().filter(|(at, _)| processors.has(*at)).map(|(_, time)| time);
        Ok(Self {
            processes: users.map(|stat| (stat.pid, Process::from(&stat))).collect(),
            stolen: ours().filter_map(|time| time.steal).sum(),
            busy: ours().map(busy).sum(),
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
        Self {
            parent: stat.ppid,
            start: stat.starttime,
            ticks: stat.utime + stat.stime + children,
            processor: stat.processor.and_then(|processor| usize::try_from(processor).ok()).unwrap_or(0),
        }
    }
}

/// Ticks in which processors worked or were stolen.
fn busy(total: &CpuTime) -> u64 {
    let CpuTime { user, nice, system, irq, softirq, steal, .. } = total;
    let interrupts = [irq, softirq, steal].into_iter().flatten().sum::<u64>();
    user + nice + system + interrupts
}

/// Ticks between two snapshots that processes outside the family of `own` used or the hypervisor
/// gave away. Of processes that last ran on none of `processors` nothing counts.
fn others(before: &Snapshot, after: &Snapshot, own: i32, processors: &Processors) -> u64 {
    let (family_before, family_after) = (before.family(own), after.family(own));
    let same = |pid: &i32, process: &Process| {
        after.processes.get(pid).filter(|later| later.start == process.start).is_some()
    };
    let is_here = |process: &Process| processors.has(process.processor);
    let now: u64 = after
        .processes
        .iter()
        .filter(|(pid, process)| !family_after.contains(pid) && is_here(process))
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
            after.processes.get(&pid).is_some_and(is_here)
        })
        .map(|(_, process)| process.ticks)
        .sum();
    now.saturating_sub(then) + after.stolen.saturating_sub(before.stolen)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn snapshot(stolen: u64, processes: &[(i32, i32, u64)]) -> Snapshot {
        let processes = processes.iter().map(|(pid, parent, ticks)| {
            (*pid, Process { parent: *parent, start: 7, ticks: *ticks, processor: 1 })
        });
        Snapshot { processes: processes.collect(), stolen, busy: 0 }
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
            let (before, after) = (snapshot(0, &before), snapshot(stolen, after));
            assert_eq!(others(&before, &after, 10, &Processors(vec![(0, 0), (1, 3)])), want, "{name}");
            let elsewhere = Processors(vec![(0, 0), (2, 3)]);
            assert_eq!(others(&before, &after, 10, &elsewhere), stolen, "{name}, on other processors");
        }
    }

    #[test]
    fn this_process_is_not_another() {
        let watch = Watch::new(Shares { others: f64::INFINITY, busy: f64::INFINITY });
        let (value, objection) = watch.during(Slow::NONE, &[], || 5).unwrap();
        assert_eq!((value, objection), (5, None));
        let snapshot = Snapshot::take(&watch.proc, &watch.processors).unwrap();
        assert!(snapshot.family(watch.own).contains(&watch.own));
        let strict = Watch { shares: Shares { others: -1.0, busy: -1.0 }, ..watch };
        let (_, objection) = strict.during(Slow::NONE, &[], || ()).unwrap();
        assert!(objection.is_some_and(|why| why.why.starts_with("others use")));
    }

    #[test]
    fn what_polls_is_told_from_what_works() {
        const NAME: &str = "yes";
        const TICKS: u64 = 20;
        let watch = Watch::new(Shares { others: f64::INFINITY, busy: f64::INFINITY });
        let (mut polling, ticks) = watch.polled(&[NAME], || {
            let child = Command::new(NAME).stdout(Stdio::null()).spawn().unwrap();
            let process = procfs::process::Process::new(child.id().cast_signed()).unwrap();
            let used = || process.stat().map(|stat| stat.utime + stat.stime).unwrap();
            confine::wait_for("some processor time", || used() >= TICKS).unwrap();
            child
        });
        polling.kill().unwrap();
        polling.wait().unwrap();
        // It may have begun before it was first looked for.
        assert!(ticks >= TICKS / 2, "{ticks}");
        let (_, none) = watch.polled(&["no program has this name"], || ());
        assert_eq!(none, 0);
    }
}
