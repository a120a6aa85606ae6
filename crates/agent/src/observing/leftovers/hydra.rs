//! The picture of the machine that Hydra's proxy writes for its ranks, and removes at its end.
//! Nobody keeps the file open, so it is found by the time at which it was written.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;
use procfs::Current as _;
use procfs::process::Process;

/// How long before its proxy's start a picture may have been written. The proxy writes the picture
/// first of all, and the kernel tells starts in hundredths of a second only.
const BEFORE: Duration = Duration::from_millis(100);
/// How long after its proxy's start a picture may have been written.
const AFTER: Duration = Duration::from_secs(2);
/// The directory in which proxies write pictures.
const DIRECTORY: &str = "/tmp";
/// How the name of a picture begins.
pub(super) const NAME: &str = "hydra_hwloc_xmlfile_";
/// The name of a proxy's process, as the kernel has it.
const PROXY: &str = "hydra_pmi_proxy";

/// The pictures of the proxies among these processes of a job. Leaves out those that another proxy
/// of this user, started at that time, may have written.
pub(super) fn pictures(processes: &[Process]) -> Vec<PathBuf> {
    let own: HashSet<i32> = processes.iter().filter(|it| is_proxy(it)).map(|it| it.pid).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let Some(boot) = boot() else { return Vec::new() };
    let all = procfs::process::all_processes().into_iter().flatten().flatten();
    let (ours, others): (Vec<_>, Vec<_>) = all
        .filter(is_proxy)
        .filter_map(|it| Some((own.contains(&it.pid), started(boot, &it)?)))
        .partition(|(is_own, _)| *is_own);
    let [ours, others] =
        [ours, others].map(|them| them.into_iter().map(|(_, time)| time).collect::<Vec<_>>());
    let written = fs::read_dir(DIRECTORY).into_iter().flatten().flatten().filter_map(|entry| {
        let is_one = entry.file_name().to_string_lossy().starts_with(NAME);
        let time = entry.metadata().ok().filter(|_| is_one)?.modified().ok()?;
        Some((entry.path(), time))
    });
    written.filter(|(_, time)| is_written_by(*time, &ours, &others)).map(|(path, _)| path).collect()
}

/// Whether a file of this time was written by a proxy that started at a time of `ours`, and by none
/// of `others`.
fn is_written_by(time: SystemTime, ours: &[SystemTime], others: &[SystemTime]) -> bool {
    let fits = |started: &SystemTime| *started - BEFORE <= time && time <= *started + AFTER;
    ours.iter().any(fits) && !others.iter().any(fits)
}

fn is_proxy(process: &Process) -> bool {
    let is_own = process.uid().is_ok_and(|uid| uid == geteuid().as_raw());
    is_own && process.stat().is_ok_and(|stat| stat.comm == PROXY)
}

/// When the kernel started.
fn boot() -> Option<SystemTime> {
    SystemTime::now().checked_sub(procfs::Uptime::current().ok()?.uptime_duration())
}

fn started(boot: SystemTime, process: &Process) -> Option<SystemTime> {
    let ticks = process.stat().ok()?.starttime;
    boot.checked_add(Duration::from_millis(ticks * 1000 / procfs::ticks_per_second()))
}

/// Whether a path is that of a picture.
pub(super) fn is_picture(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent() == Some(Path::new(DIRECTORY)) && name.is_some_and(|name| name.starts_with(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_proxy_that_started_just_before() {
        let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000 + ms);
        for (written, ours, others, want) in [
            (50, &[0][..], &[][..], true),
            (2000, &[0], &[], true),
            (2100, &[0], &[], false),
            (1000, &[1050], &[], true),
            (1000, &[1200], &[], false),
            (50, &[], &[], false),
            (50, &[9000, 0], &[7000], true),
            (500, &[0], &[400], false),
        ] {
            let [ours, others] =
                [ours, others].map(|times| times.iter().map(|ms| at(*ms)).collect::<Vec<_>>());
            assert_eq!(is_written_by(at(written), &ours, &others), want, "{written} {ours:?} {others:?}");
        }
    }

    #[test]
    fn pictures_are_known_by_their_path() {
        for (path, want) in [
            ("/tmp/hydra_hwloc_xmlfile_j0A3FE", true),
            ("/tmp/other", false),
            ("/home/hydra_hwloc_xmlfile_x", false),
        ] {
            assert_eq!(is_picture(Path::new(path)), want, "{path}");
        }
    }
}
