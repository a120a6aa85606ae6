//! Who gets which task: tasks wait until somebody takes them.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::message::{Task, TaskId};

/// A link to another member, by a number that the caller gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

/// Who takes tasks of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Taker {
    /// The member itself, which runs them.
    Own,
    /// A child.
    Child(Link),
}

/// Tasks of a taker that was lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// Tasks that it ran.
    pub ran: Vec<TaskId>,
    /// Tasks that it may have run, or that waited there.
    pub held: Vec<TaskId>,
}

/// A taker, with what it was given.
#[derive(Debug, Default)]
struct Account {
    /// How many tasks it takes in all, and how many it got.
    allowed: u64,
    sent: u64,
    /// How many tasks it runs at once.
    slots: usize,
    /// It hands on tasks to others, so that it isn't known which of its tasks run.
    is_boss: bool,
    /// The next place in `order`.
    next: u64,
    /// Tasks without a result, in the order in which they were given, and the place of each.
    order: BTreeMap<u64, TaskId>,
    places: HashMap<TaskId, u64>,
}

impl Account {
    fn give(&mut self, task: TaskId) {
        if self.places.insert(task, self.next).is_none() {
            self.order.insert(self.next, task);
            self.next += 1;
        }
    }

    fn takes(&self) -> bool {
        self.allowed > self.sent
    }
}

/// Tasks that wait, and who takes them.
#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    waiting: VecDeque<Task>,
    takers: BTreeMap<Taker, Account>,
    /// Takers that take tasks, each once, in the order of their turns. Some may take none any more.
    turns: VecDeque<Taker>,
}

impl Dispatch {
    /// Adds a taker that runs so many tasks at once. It gets nothing before it is allowed to take any.
    pub(crate) fn add(&mut self, taker: Taker, slots: u32) {
        self.takers.entry(taker).or_default().slots = slots as usize;
    }

    pub(crate) fn knows(&self, taker: Taker) -> bool {
        self.takers.contains_key(&taker)
    }

    /// A task waits, after all others or before them.
    pub(crate) fn push(&mut self, task: Task) {
        self.waiting.push_back(task);
    }

    pub(crate) fn push_first(&mut self, task: Task) {
        self.waiting.push_front(task);
    }

    /// Takes tasks back, as far as they wait.
    pub(crate) fn take_back(&mut self, tasks: &HashSet<TaskId>) {
        self.waiting.retain(|waiting| !tasks.contains(&TaskId(waiting.id)));
    }

    /// How many tasks wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// How many tasks the takers take now.
    pub(crate) fn wanted(&self) -> u64 {
        let each = self.takers.values().map(|account| account.allowed.saturating_sub(account.sent));
        each.fold(0, u64::saturating_add)
    }

    /// Lets a taker take this many tasks in all.
    pub(crate) fn allow(&mut self, taker: Taker, total: u64, is_boss: bool) {
        let Some(account) = self.takers.get_mut(&taker) else { return };
        let took = account.takes();
        account.allowed = account.allowed.max(total);
        account.is_boss |= is_boss;
        if account.takes() && !took {
            self.turns.push_back(taker);
        }
    }

    /// Lets a taker take one task more than so far.
    pub(crate) fn allow_another(&mut self, taker: Taker) {
        let allowed = self.takers.get(&taker).map_or(0, |account| account.allowed);
        self.allow(taker, allowed.saturating_add(1), false);
    }

    /// Gives tasks that wait to those that take them, one each in turn.
    pub(crate) fn hand_out(&mut self) -> BTreeMap<Taker, Vec<Task>> {
        let mut given: BTreeMap<Taker, Vec<Task>> = BTreeMap::new();
        while !self.waiting.is_empty() {
            let Some(taker) = self.turns.pop_front() else { break };
            let Some(account) = self.takers.get_mut(&taker).filter(|account| account.takes()) else {
                continue;
            };
            let Some(task) = self.waiting.pop_front() else { break };
            account.sent += 1;
            account.give(TaskId(task.id));
            if account.takes() {
                self.turns.push_back(taker);
            }
            given.entry(taker).or_default().push(task);
        }
        given
    }

    /// A taker takes no further tasks, and begins anew if it comes back. It still has those that it was
    /// given.
    pub(crate) fn leave(&mut self, taker: Taker) {
        if let Some(account) = self.takers.get_mut(&taker) {
            (account.allowed, account.sent) = (0, 0);
        }
    }

    /// A taker has a task that it got from somebody else before.
    pub(crate) fn adopt(&mut self, taker: Taker, task: TaskId) {
        self.takers.entry(taker).or_default().give(task);
    }

    /// A taker is done with a task. Tells whether it had it.
    pub(crate) fn done(&mut self, taker: Taker, task: TaskId) -> bool {
        let Some(account) = self.takers.get_mut(&taker) else { return false };
        let Some(place) = account.places.remove(&task) else { return false };
        account.order.remove(&place);
        true
    }

    /// Forgets a taker. Returns what it had.
    pub(crate) fn lose(&mut self, taker: Taker) -> Given {
        let Some(account) = self.takers.remove(&taker) else { return Given::default() };
        let mut all: Vec<_> = account.order.into_values().collect();
        // Tasks are run in the order in which they were given.
        let running = if account.is_boss { 0 } else { account.slots.min(all.len()) };
        let held = all.split_off(running);
        Given { ran: all, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: u64) -> Task {
        Task { id, ..Task::default() }
    }

    fn ids(given: &BTreeMap<Taker, Vec<Task>>, taker: Taker) -> Vec<u64> {
        given.get(&taker).into_iter().flatten().map(|task| task.id).collect()
    }

    const A: Taker = Taker::Child(Link(1));
    const B: Taker = Taker::Child(Link(2));

    #[test]
    fn tasks_go_round_to_those_that_take_them() {
        let mut dispatch = Dispatch::default();
        dispatch.add(A, 1);
        dispatch.add(B, 1);
        (0..10).for_each(|id| dispatch.push(task(id)));
        assert!(dispatch.hand_out().is_empty(), "nobody takes any");
        dispatch.allow(A, 2, false);
        dispatch.allow(B, 4, false);
        let given = dispatch.hand_out();
        assert_eq!((ids(&given, A), ids(&given, B)), (vec![0, 2], vec![1, 3, 4, 5]));
        assert_eq!((dispatch.waiting(), dispatch.wanted()), (4, 0));
        dispatch.allow(A, 1, false);
        assert!(dispatch.hand_out().is_empty(), "it took two already");
        dispatch.leave(B);
        dispatch.allow_another(A);
        assert_eq!(ids(&dispatch.hand_out(), A), [6]);
        dispatch.push_first(task(99));
        dispatch.allow_another(A);
        assert_eq!(ids(&dispatch.hand_out(), A), [99]);
    }

    #[test]
    fn what_a_lost_taker_ran() {
        for (slots, is_boss, done, ran, held) in [
            (1, false, vec![], vec![0], vec![1, 2, 3]),
            (1, false, vec![0, 2], vec![1], vec![3]),
            (8, false, vec![1], vec![0, 2, 3], vec![]),
            (1, true, vec![3], vec![], vec![0, 1, 2]),
        ] {
            let mut dispatch = Dispatch::default();
            dispatch.add(A, slots);
            dispatch.allow(A, 4, is_boss);
            (0..5).for_each(|id| dispatch.push(task(id)));
            dispatch.hand_out();
            for id in done {
                assert!(dispatch.done(A, TaskId(id)));
                assert!(!dispatch.done(A, TaskId(id)), "only once");
            }
            let all = |ids: &[u64]| ids.iter().map(|id| TaskId(*id)).collect::<Vec<_>>();
            assert_eq!(dispatch.lose(A), Given { ran: all(&ran), held: all(&held) });
            assert_eq!(dispatch.lose(A), Given::default());
        }
    }

    #[test]
    fn a_taker_that_is_gone_gets_nothing() {
        let mut dispatch = Dispatch::default();
        dispatch.add(A, 1);
        dispatch.allow(A, 4, false);
        dispatch.lose(A);
        dispatch.push(task(1));
        assert!(dispatch.hand_out().is_empty());
        assert_eq!(dispatch.waiting(), 1);
        dispatch.take_back(&HashSet::from([TaskId(1)]));
        assert_eq!(dispatch.waiting(), 0);
    }
}
