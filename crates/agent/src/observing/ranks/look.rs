//! A launcher's command line doesn't say where it starts ranks. So the agent looks from time to
//! time at the environments of the job's processes.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_wire::launchers::starts_ranks;
use isthmus_wire::proto::RankSource;
use tracing::info;

use super::World;
use crate::jobs::job::Job;
use crate::observing::preloaded::{processes_of, ticks_since_boot};

/// Time between two looks while ranks are expected, or more appear.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long ranks are expected: a look costs some milliseconds of a processor, and many
/// nodes never get a rank.
const EXPECTED: Duration = Duration::from_secs(60);
/// Most bytes that are read of a process's environment.
const ENVIRONMENT_MAX: u64 = 1 << 20;
/// Most bytes of a world's name that are kept.
const NAME_MAX: usize = 64;

/// The environment variables of each launcher, in the order in which they count: of the rank, and
/// of the number of ranks (empty if none). Open MPI's ranks have those of PMIx, too.
const VARIABLES: [(RankSource, &str, &str); 3] = [
    (RankSource::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (RankSource::Pmix, "PMIX_RANK", ""),
    (RankSource::Pmi, "PMI_RANK", "PMI_SIZE"),
];

/// Looks for ranks until the job ends.
pub(crate) async fn follow(job: Arc<Job>) {
    let began = ticks_since_boot();
    let started = Instant::now();
    let mut pause = PAUSE;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = job.ended.cancelled() => return,
        }
        let looking = job.clone();
        // Hundreds of small reads, which would delay other tasks.
        let is_early = started.elapsed() < EXPECTED;
        let look = tokio::task::spawn_blocking(move || look(&looking, began, is_early));
        let Ok(found) = look.await else { return };
        let (ranks, any_new) = job.ranks.take_in(found);
        if any_new {
            info!(job = %job.id, ranks, "ranks run here");
        }
        pause = next_pause(pause, any_new, ranks > 0, started.elapsed());
    }
}

/// Time until the next look: short while ranks are expected or appear, then longer.
fn next_pause(pause: Duration, any_new: bool, any: bool, since_start: Duration) -> Duration {
    if any_new || (!any && since_start < EXPECTED) { PAUSE } else { (pause * 2).min(PAUSE_MAX) }
}

fn look(job: &Job, began: u64, is_early: bool) -> Vec<(World, u32)> {
    let processes = processes_of(job.directory.path(), began);
    if is_early {
        // By then an MPI has what it works with; the end of the job looks once more.
        job.leftovers.note(&processes, job.directory.path());
    }
    processes
        .iter()
        // Nothing can be read of a process that has just ended.
        .filter(|process| process.stat().is_ok_and(|stat| !starts_ranks(&stat.comm)))
        .filter_map(|process| rank_of(&environment(process.pid)?))
        .collect()
}

fn environment(pid: i32) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut bytes = Vec::new();
    file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The rank that a process belongs to, by its environment as `/proc/PID/environ` has it.
fn rank_of(environment: &[u8]) -> Option<(World, u32)> {
    let value = |name: &str| {
        let of = |entry: &[u8]| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        environment.split(|byte| *byte == 0).find_map(of)
    };
    let number = |name: &str| value(name)?.parse::<u32>().ok();
    let known = |(source, rank, size): &(RankSource, &str, &str)| {
        let name = match source {
            RankSource::OpenMpi | RankSource::Pmix => value("PMIX_NAMESPACE").unwrap_or_default(),
            RankSource::Pmi | RankSource::Unknown => String::new(),
        };
        let size = number(size).unwrap_or(0);
        Some((World { name: end_of(&name).to_owned(), size, source: *source }, number(rank)?))
    };
    VARIABLES.iter().find_map(known)
}

/// The end of a namespace, which tells it from others of the same launcher.
fn end_of(name: &str) -> &str {
    let longest = name.len().saturating_sub(NAME_MAX);
    let begin = (longest..name.len()).find(|at| name.is_char_boundary(*at));
    begin.and_then(|begin| name.get(begin..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(name: &str, size: u32, source: RankSource) -> World {
        World { name: name.to_owned(), size, source }
    }

    #[test]
    fn ranks_are_read_from_environments() {
        let long = format!("PMIX_RANK=1\0PMIX_NAMESPACE={}@12\0", "x".repeat(100));
        let tail = format!("{}@12", "x".repeat(61));
        for (name, environment, want) in [
            ("nothing", "", None),
            ("no rank", "HOME=/root\0PATH=/bin\0", None),
            (
                "Open MPI",
                "PMIX_RANK=9\0OMPI_COMM_WORLD_SIZE=4\0OMPI_COMM_WORLD_RANK=3\0PMIX_NAMESPACE=77.1\0",
                Some((world("77.1", 4, RankSource::OpenMpi), 3)),
            ),
            ("PMIx", "PMIX_RANK=2\0PMIX_NAMESPACE=a@1\0", Some((world("a@1", 0, RankSource::Pmix), 2))),
            ("Hydra", "PMI_RANK=1\0PMI_SIZE=2\0", Some((world("", 2, RankSource::Pmi), 1))),
            ("the last without its end", "PMI_SIZE=2\0PMI_RANK=1", Some((world("", 2, RankSource::Pmi), 1))),
            ("a name that only begins so", "PMI_RANKS=1\0", None),
            ("no number", "PMI_RANK=-1\0", None),
            (
                "not a rank, but another one",
                "PMIX_RANK=x\0PMI_RANK=0\0",
                Some((world("", 0, RankSource::Pmi), 0)),
            ),
            ("a long name keeps its end", &long, Some((world(&tail, 0, RankSource::Pmix), 1))),
        ] {
            assert_eq!(rank_of(environment.as_bytes()), want, "{name}");
        }
    }

    #[test]
    fn looks_become_rare_once_ranks_stand() {
        let seconds = Duration::from_secs;
        for (name, pause, any_new, any, since_start, want) in [
            ("none yet", 1, false, false, 5, 1),
            ("none for long", 1, false, false, 60, 2),
            ("a new one", 16, true, true, 90, 1),
            ("no new one", 1, false, true, 5, 2),
            ("no longer than that", 20, false, true, 90, 30),
        ] {
            let got = next_pause(seconds(pause), any_new, any, seconds(since_start));
            assert_eq!(got, seconds(want), "{name}");
        }
    }
}
