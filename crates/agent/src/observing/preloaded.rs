//! The processes of a job on this node. They are known by the job's library, which they were
//! started with.

use std::collections::HashSet;
use std::path::Path;

use procfs::Current as _;
use procfs::process::Process;

use crate::starting::supervise::tree::descendants;

/// The processes on this node of the job that has this directory: those that were started with
/// its library since `began` ([`ticks_since_boot`]), and their descendants.
pub(crate) fn processes_of(directory: &Path, began: u64) -> Vec<Process> {
    let own = nix::unistd::geteuid().as_raw();
    let young: Vec<(Process, i32)> = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter(|process| process.uid().is_ok_and(|uid| uid == own))
        .filter_map(|process| {
            let stat = process.stat().ok().filter(|stat| stat.starttime >= began)?;
            Some((process, stat.ppid))
        })
        .collect();
    let directory = directory.to_string_lossy();
    let preloaded = |process: &Process| {
        process.environ().is_ok_and(|environment| {
            let preload = environment.get(std::ffi::OsStr::new("LD_PRELOAD"));
            preload.is_some_and(|preload| preload.to_string_lossy().contains(&*directory))
        })
    };
    let mut members: HashSet<i32> =
        young.iter().filter(|(process, _)| preloaded(process)).map(|(process, _)| process.pid).collect();
    let parents: Vec<(i32, i32)> = young.iter().map(|(process, parent)| (process.pid, *parent)).collect();
    let descendants: Vec<i32> = members.iter().flat_map(|root| descendants(*root, &parents)).collect();
    members.extend(descendants);
    young.into_iter().map(|(process, _)| process).filter(|process| members.contains(&process.pid)).collect()
}

/// The time since boot, in the unit of `/proc/PID/stat`.
pub(crate) fn ticks_since_boot() -> u64 {
    let uptime = procfs::Uptime::current().map(|uptime| uptime.uptime_duration()).unwrap_or_default();
    u64::try_from(uptime.as_millis()).unwrap_or_default() * procfs::ticks_per_second() / 1000
}
