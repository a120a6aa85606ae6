//! What processes cost: processor time from /proc.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Stat;

use crate::rounds::Void;

/// Processor time, user and system, of a process and its descendants. It includes those of them
/// that have ended and been waited for.
///
/// # Errors
/// The process has ended.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let table = table()?;
    let mut total = 0;
    for pid in family(&table, pid)? {
        if let Some(stat) = table.get(&pid) {
            let waited_for = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
            total += stat.utime + stat.stime + waited_for;
        }
    }
    Ok(duration(total))
}

/// Processor times of processes so far, by their ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CpuTimes(BTreeMap<i32, Duration>);

impl CpuTimes {
    /// The time that was spent since an earlier look at the same processes and their descendants. A
    /// process that began meanwhile counts.
    ///
    /// # Errors
    /// A process has ended since, so that nobody knows how much it took: [`Void`].
    pub(crate) fn since(&self, before: &Self) -> anyhow::Result<Duration> {
        let mut spent: Duration = self.0.values().sum();
        for (pid, earlier) in &before.0 {
            // Another process may have got the id.
            if self.0.get(pid).is_none_or(|now| now < earlier) {
                return Err(Void(format!("process {pid} ended while its time was taken")).into());
            }
            spent = spent.saturating_sub(*earlier);
        }
        Ok(spent)
    }
}

/// Processor time, user and system, of processes and their descendants, to the nanosecond as the
/// scheduler counts it. A process that descends from several counts once. Threads that have ended
/// count, processes that have ended don't: [`CpuTimes::since`] finds these.
///
/// # Errors
/// A process has ended, or the kernel refuses its clock.
pub(crate) fn exact_cpu_time(pids: &[u32]) -> anyhow::Result<CpuTimes> {
    let table = table()?;
    let mut all = HashSet::new();
    for pid in pids {
        all.extend(family(&table, *pid)?);
    }
    let mut times = BTreeMap::new();
    for pid in all {
        if let Some(time) = exact_own_cpu_time(pid)? {
            times.insert(pid, time);
        }
    }
    Ok(CpuTimes(times))
}

/// Processor time of a process without its descendants: its clock (clock_getcpuclockid(3)), which
/// goes on from its threads that have ended. `None` if it has ended meanwhile.
///
/// # Errors
/// The kernel refuses.
fn exact_own_cpu_time(pid: i32) -> anyhow::Result<Option<Duration>> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid));
    match clock.and_then(clock_gettime) {
        Ok(time) => Ok(Some(Duration::from(time))),
        Err(Errno::ESRCH | Errno::EINVAL) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("no clock of process {pid}")),
    }
}

/// Processor time, user and system, of the calling thread.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn thread_cpu_time() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("no clock of this thread")?.into())
}

/// Processor time, user and system, of a thread of this process that doesn't run at the moment, to the
/// nanosecond as the scheduler counts it (`/proc/PID/task/TID/schedstat`, proc(5)).
///
/// # Errors
/// The thread has ended.
pub(crate) fn waiting_thread_cpu_time(thread: Pid) -> anyhow::Result<Duration> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanos.with_context(|| format!("{path} has no time: {text:?}"))?))
}

/// Ids of a process and of its descendants.
///
/// # Errors
/// The process has ended.
pub(crate) fn descendants(pid: u32) -> anyhow::Result<Vec<u32>> {
    let found = family(&table()?, pid)?;
    Ok(found.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
}

/// Processor time, user and system, of all processes in the network namespace of the process `pid`.
///
/// # Errors
/// The process has ended.
pub(crate) fn network_cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net"));
    let wanted = namespace(i32::try_from(pid)?).with_context(|| format!("process {pid} has ended"))?;
    let table = table()?;
    let there = table.values().filter(|stat| namespace(stat.pid).is_ok_and(|found| found == wanted));
    Ok(duration(there.map(|stat| stat.utime + stat.stime).sum()))
}

/// All processes by their ids. A process that ends meanwhile counts with its parent.
fn table() -> anyhow::Result<HashMap<i32, Stat>> {
    let stats = procfs::process::all_processes()?.flatten().filter_map(|process| process.stat().ok());
    Ok(stats.map(|stat| (stat.pid, stat)).collect())
}

fn family(table: &HashMap<i32, Stat>, pid: u32) -> anyhow::Result<Vec<i32>> {
    let first = i32::try_from(pid)?;
    ensure!(table.contains_key(&first), "process {pid} has ended");
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for stat in table.values() {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    let (mut found, mut open) = (Vec::new(), vec![first]);
    while let Some(next) = open.pop() {
        found.push(next);
        open.extend(children.remove(&next).unwrap_or_default());
    }
    Ok(found)
}

fn duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// Processor time, user and system, of a process without its descendants.
///
/// # Errors
/// The process has ended.
pub(crate) fn own_cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = procfs::process::Process::new(i32::try_from(pid)?)
        .and_then(|process| process.stat())
        .with_context(|| format!("process {pid} has ended"))?;
    Ok(duration(stat.utime + stat.stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_children_count() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        // Two levels: the inner shell is a grandchild.
        let status = std::process::Command::new("sh").args(["-c", &format!("sh -c '{burn}'; true")]).status();
        assert!(status.unwrap().success());
        assert!(cpu_time(pid).unwrap() > before + Duration::from_millis(20));
        assert!(own_cpu_time(pid).unwrap() <= cpu_time(pid).unwrap() - Duration::from_millis(20));
        assert!(cpu_time(0x7fff_fff0).is_err());
        let spent = exact_cpu_time(&[pid]).unwrap().since(&CpuTimes::default()).unwrap();
        let (exact, own) = (spent, own_cpu_time(pid).unwrap());
        // Without children that have ended; threads of other tests may use some meanwhile.
        assert!(exact > Duration::ZERO && exact <= own + Duration::from_millis(500), "{exact:?} {own:?}");
        assert!(exact_cpu_time(&[0x7fff_fff0]).is_err());
        assert_eq!(exact_own_cpu_time(0x7fff_fff0).unwrap(), None);
    }

    #[test]
    fn a_thread_has_its_own_time() {
        let (id_tx, id_rx) = std::sync::mpsc::channel();
        let (end_tx, end_rx) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu_time().unwrap() < Duration::from_millis(30) {}
            id_tx.send((nix::unistd::gettid(), thread_cpu_time().unwrap())).unwrap();
            end_rx.recv().unwrap_err();
        });
        let (id, burned) = id_rx.recv().unwrap();
        let waits = || waiting_thread_cpu_time(id).unwrap();
        // The thread has told its id, and doesn't wait yet.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while waits() < burned && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(waits() >= burned && waits() < burned + Duration::from_secs(1), "{:?} {burned:?}", waits());
        drop(end_tx);
        thread.join().unwrap();
        assert!(waiting_thread_cpu_time(id).is_err());
    }

    #[test]
    fn a_process_that_ended_makes_the_time_void() {
        let times = |times: &[(i32, u64)]| {
            CpuTimes(times.iter().map(|(pid, time)| (*pid, Duration::from_millis(*time))).collect())
        };
        for (name, before, after, want) in [
            ("all stay", &[(1, 5), (2, 7)][..], &[(1, 8), (2, 7)][..], Some(3)),
            ("one began", &[(1, 5)], &[(1, 8), (2, 7)], Some(10)),
            ("one ended", &[(1, 5), (2, 7)], &[(1, 8)], None),
            ("one ended, one began", &[(1, 5), (2, 7)], &[(1, 8), (3, 9)], None),
            ("the id is another's", &[(1, 5)], &[(1, 1)], None),
        ] {
            let found = times(after).since(&times(before));
            assert!(found.as_ref().err().is_none_or(|error| error.is::<Void>()), "{name}");
            assert_eq!(found.ok(), want.map(Duration::from_millis), "{name}");
        }
    }

    #[test]
    fn threads_that_ended_count_and_none_twice() {
        let pid = std::process::id();
        let before = exact_cpu_time(&[pid]).unwrap();
        let burned = std::thread::spawn(|| {
            let thread = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
            while thread() < Duration::from_millis(30) {}
            thread()
        });
        let burned = burned.join().unwrap();
        let (once, twice) = (exact_cpu_time(&[pid]).unwrap(), exact_cpu_time(&[pid, pid]).unwrap());
        assert!(once.since(&before).unwrap() >= burned, "{before:?} {once:?}");
        assert!(twice.since(&once).unwrap() < Duration::from_millis(500), "{once:?} {twice:?}");
    }
}
