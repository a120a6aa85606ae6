//! What processes cost: processor time from /proc.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use procfs::process::Stat;

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

/// Processor time of a process and its descendants, to the nanosecond as the scheduler counts it. It
/// doesn't include processes and threads that have ended.
///
/// # Errors
/// The process has ended, or the kernel doesn't count (proc(5), /proc/pid/schedstat).
pub(crate) fn exact_cpu_time(pid: u32) -> anyhow::Result<Duration> {
    descendants(pid)?.into_iter().map(exact_own_cpu_time).sum()
}

/// Processor time of a process without its descendants, to the nanosecond. It doesn't include
/// threads that have ended.
///
/// # Errors
/// The kernel doesn't count.
fn exact_own_cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Ok(Duration::ZERO) };
    // A thread that ends meanwhile isn't counted.
    let texts = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    Ok(Duration::from_nanos(texts.map(|text| on_processor(&text)).sum::<anyhow::Result<u64>>()?))
}

/// Nanoseconds on a processor, the first number of a schedstat.
fn on_processor(schedstat: &str) -> anyhow::Result<u64> {
    let first = schedstat.split_whitespace().next().and_then(|word| word.parse().ok());
    first.with_context(|| format!("no time in {schedstat:?}"))
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
        let (exact, own) = (exact_cpu_time(pid).unwrap(), own_cpu_time(pid).unwrap());
        // Without children that have ended; threads of other tests may have begun or ended.
        assert!(exact > Duration::ZERO && exact <= own + Duration::from_millis(500), "{exact:?} {own:?}");
        assert!(exact_cpu_time(0x7fff_fff0).is_err());
        assert_eq!(on_processor("12345 6 7\n").unwrap(), 12345);
        assert!(on_processor("").is_err());
    }
}
