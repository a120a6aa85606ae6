//! Which ranks of a job run on this node. A launcher's command line doesn't say where it
//! starts them, so the agent looks from time to time at the environments of the job's
//! processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_service::lock;
use isthmus_wire::GridName;
use isthmus_wire::launchers::starts_ranks;
use isthmus_wire::proto::{self, RankSource};
use tracing::info;

use super::links;
use crate::jobs::job::Job;

/// Time between two looks while ranks are expected, or more appear.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long ranks are expected: a look costs some milliseconds of a processor, and many
/// nodes never get a rank.
const EXPECTED: Duration = Duration::from_secs(60);
/// Most bytes that are read of a process's environment.
const ENVIRONMENT_MAX: u64 = 1 << 20;
/// Most worlds that are counted: a script may start one launcher after another.
const WORLDS_MAX: usize = 8;
/// Most ranks of one world that are counted.
const RANKS_MAX: usize = 1 << 16;
/// Most ranks whose processes are known.
const PROCESSES_MAX: usize = RANKS_MAX;
/// Most bytes of a world's name that are kept.
const NAME_MAX: usize = 64;

/// The environment variables of each launcher, in the order in which they count: of the rank, and
/// of the number of ranks (empty if none). Open MPI's ranks have those of PMIx, too.
const VARIABLES: [(RankSource, &str, &str); 3] = [
    (RankSource::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (RankSource::Pmix, "PMIX_RANK", ""),
    (RankSource::Pmi, "PMI_RANK", "PMI_SIZE"),
];

/// Ranks that were started together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    /// The end of the namespace's name; empty if the launcher gives none.
    name: String,
    /// The number of the world's ranks; 0 if it isn't known.
    size: u32,
    source: RankSource,
}

/// The ranks that were seen, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counted {
    worlds: BTreeMap<World, BTreeSet<u32>>,
    /// Whether there were more ranks or worlds than are counted.
    incomplete: bool,
}

impl Counted {
    /// Counts a rank. Returns whether it is a new one.
    fn add(&mut self, world: World, rank: u32) -> bool {
        if self.worlds.len() >= WORLDS_MAX && !self.worlds.contains_key(&world) {
            self.incomplete = true;
            return false;
        }
        let ranks = self.worlds.entry(world).or_default();
        if ranks.len() >= RANKS_MAX && !ranks.contains(&rank) {
            self.incomplete = true;
            return false;
        }
        ranks.insert(rank)
    }

    fn ranks(&self) -> usize {
        self.worlds.values().map(BTreeSet::len).sum()
    }
}

/// The ranks of one job that have run here.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    counted: Mutex<Counted>,
    /// The rank of each process that has introduced itself, until its launcher or daemon has
    /// collected it.
    processes: Mutex<HashMap<u32, u32>>,
}

impl Ranks {
    /// The message by which the head is told of these ranks at the job's end.
    pub(crate) fn message(&self, node: &GridName) -> proto::NodeRanks {
        let counted = lock(&self.counted);
        let world = |(world, ranks): (&World, &BTreeSet<u32>)| proto::RankWorld {
            name: world.name.clone(),
            size: world.size,
            ranks: u32::try_from(ranks.len()).unwrap_or(u32::MAX),
            source: world.source.into(),
        };
        proto::NodeRanks {
            node: node.to_string(),
            worlds: counted.worlds.iter().map(world).collect(),
            incomplete: counted.incomplete,
        }
    }

    /// Notes that a process is this rank. If it is the first, calls `tell` with true, under the
    /// lock, so that calls come in the right order.
    pub(crate) fn introduced(&self, pid: u32, rank: u32, tell: impl FnOnce(bool)) {
        let mut processes = lock(&self.processes);
        if processes.is_empty() {
            tell(true);
        }
        if processes.len() < PROCESSES_MAX {
            processes.insert(pid, rank);
        }
    }

    /// Notes that a process was collected. Returns its rank, if it was one. If no other rank runs,
    /// calls `tell` with false.
    pub(crate) fn collected(&self, pid: u32, tell: impl FnOnce(bool)) -> Option<u32> {
        let mut processes = lock(&self.processes);
        let rank = processes.remove(&pid)?;
        if processes.is_empty() {
            tell(false);
        }
        Some(rank)
    }

    /// Notes that a process has ended, with this wait status. Returns what the head is told, if the
    /// process was a rank and ended badly.
    pub(crate) fn ended(
        &self,
        node: &GridName,
        pid: u32,
        status: i32,
        tell: impl FnOnce(bool),
    ) -> Option<proto::RankEnded> {
        let rank = self.collected(pid, tell)?;
        let signal = if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 };
        let status = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 0 };
        ((signal, status) != (0, 0)).then(|| proto::RankEnded {
            node: node.to_string(),
            rank,
            signal,
            status,
            unfinished: false,
        })
    }

    /// Notes that a process ends with status 0 without having finished with MPI. Returns what the
    /// head is told, if the process itself is a rank, not the child of one.
    pub(crate) fn unfinished(&self, node: &GridName, pid: u32) -> Option<proto::RankEnded> {
        let rank = *lock(&self.processes).get(&pid)?;
        let node = node.to_string();
        Some(proto::RankEnded { node, rank, unfinished: true, ..proto::RankEnded::default() })
    }

    /// Counts what a look has found. Returns how many ranks are known, and whether one is
    /// new.
    fn take_in(&self, found: Vec<(World, u32)>) -> (usize, bool) {
        let mut counted = lock(&self.counted);
        let mut any_new = false;
        for (world, rank) in found {
            any_new |= counted.add(world, rank);
        }
        (counted.ranks(), any_new)
    }
}

/// Looks for ranks until the job ends.
pub(crate) async fn follow(job: Arc<Job>) {
    let began = links::ticks_since_boot();
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
    let processes = links::processes_of(job, began);
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
    fn each_rank_counts_once_and_no_number_is_unbounded() {
        let of = |name: &str| world(name, 4, RankSource::OpenMpi);
        let mut counted = Counted::default();
        // A rank's child has the rank's environment, and isn't counted again.
        assert_eq!([0, 1, 1, 0].map(|rank| counted.add(of("a"), rank)), [true, true, false, false]);
        assert!(counted.add(of("b"), 0));
        assert_eq!((counted.ranks(), counted.incomplete), (3, false));
        for index in 0..WORLDS_MAX {
            counted.add(of(&index.to_string()), 0);
        }
        assert_eq!((counted.worlds.len(), counted.incomplete), (WORLDS_MAX, true));
    }

    #[test]
    fn a_rank_that_ends_badly_is_told_once() {
        let ranks = Ranks::default();
        for (pid, rank) in [(10, 3), (11, 4), (12, 5)] {
            ranks.introduced(pid, rank, |_| ());
        }
        let node = "n1.beta".parse().unwrap();
        for (name, pid, status, want) in [
            ("killed", 10, libc::SIGKILL, Some((3, libc::SIGKILL, 0))),
            ("again", 10, libc::SIGKILL, None),
            ("with a core", 11, libc::SIGSEGV | 0x80, Some((4, libc::SIGSEGV, 0))),
            ("exited", 12, 7 << 8, Some((5, 0, 7))),
            ("no rank", 13, libc::SIGKILL, None),
        ] {
            let ended = ranks.ended(&node, pid, status, |_| ());
            let got = ended.map(|ended| (ended.rank, ended.signal, ended.status));
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn only_a_rank_itself_ends_unfinished() {
        let ranks = Ranks::default();
        ranks.introduced(10, 3, |_| ());
        let node = "n1.beta".parse().unwrap();
        let ended = |pid| ranks.unfinished(&node, pid).map(|ended| (ended.rank, ended.unfinished));
        assert_eq!([11, 10].map(ended), [None, Some((3, true))]);
    }

    #[test]
    fn whether_any_rank_runs_is_told_when_it_changes() {
        let (ranks, told) = (Ranks::default(), std::cell::RefCell::new(Vec::new()));
        let tell = |any| told.borrow_mut().push(any);
        let node = "n1.beta".parse().unwrap();
        ranks.introduced(10, 0, tell);
        ranks.introduced(11, 1, tell);
        ranks.collected(12, tell);
        ranks.collected(10, tell);
        assert_eq!(*told.borrow(), [true]);
        ranks.ended(&node, 11, libc::SIGKILL, tell);
        ranks.introduced(13, 0, tell);
        assert_eq!(*told.borrow(), [true, false, true]);
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
