//! Which ranks of a job run on this node.

pub(crate) mod look;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use isthmus_service::lock;
use isthmus_wire::GridName;
use isthmus_wire::proto::{self, RankSource};

/// Most worlds that are counted: a script may start one launcher after another.
const WORLDS_MAX: usize = 8;
/// Most ranks of one world that are counted.
const RANKS_MAX: usize = 1 << 16;
/// Most ranks whose processes are known.
const PROCESSES_MAX: usize = RANKS_MAX;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_counts_once_and_no_number_is_unbounded() {
        let of = |name: &str| World { name: name.to_owned(), size: 4, source: RankSource::OpenMpi };
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
}
