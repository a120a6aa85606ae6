//! What processes cost: processor time from /proc.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;

/// Processor time, user and system, of a process, its descendants, and those of
/// them that have ended and been waited for.
///
/// # Errors
/// If the process is gone.
pub fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let pid = i32::try_from(pid)?;
    let mut ticks = HashMap::new();
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in procfs::process::all_processes()?.flatten() {
        // One that has ended meanwhile counts with its parent.
        let Ok(stat) = process.stat() else { continue };
        let waited_for = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
        ticks.insert(stat.pid, stat.utime + stat.stime + waited_for);
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    let own = ticks.get(&pid).with_context(|| format!("process {pid} has ended"))?;
    let mut total = *own;
    let mut open = children.remove(&pid).unwrap_or_default();
    while let Some(child) = open.pop() {
        total += ticks.get(&child).copied().unwrap_or(0);
        open.extend(children.remove(&child).unwrap_or_default());
    }
    let seconds = total as f64 / procfs::ticks_per_second() as f64;
    Ok(Duration::from_secs_f64(seconds))
}

/// Processor time, user and system, of a process alone.
///
/// # Errors
/// If the process is gone.
pub fn own_cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = procfs::process::Process::new(i32::try_from(pid)?)
        .and_then(|process| process.stat())
        .with_context(|| format!("process {pid} has ended"))?;
    let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Ok(Duration::from_secs_f64(seconds))
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
        assert!(cpu_time(0x7fff_fff0).is_err());
    }
}
