//! Who gets which task: tasks wait until somebody takes them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

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

/// A taker, with what it was given.
#[derive(Debug, Default)]
struct Account {
    /// How many tasks it takes in all, and how many it got.
    allowed: u64,
    sent: u64,
    /// Tasks without a result.
    given: BTreeSet<TaskId>,
}

impl Account {
    fn takes(&self) -> bool {
        self.allowed > self.sent
    }
}

/// Tasks that wait, and who takes them.
#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    /// Tasks with a number each. One that was taken back stays here until its turn comes.
    queue: VecDeque<(u64, Task)>,
    /// The number of each task that waits.
    waiting: HashMap<TaskId, u64>,
    /// The number of the next task.
    next: u64,
    takers: BTreeMap<Taker, Account>,
    /// Takers that take tasks, in the order of their turns. Some may take none any more.
    turns: VecDeque<Taker>,
}

impl Dispatch {
    /// A task waits, after all others or before them.
    pub(crate) fn push(&mut self, task: Task) {
        let number = self.number(&task);
        self.queue.push_back((number, task));
    }

    pub(crate) fn push_first(&mut self, task: Task) {
        let number = self.number(&task);
        self.queue.push_front((number, task));
    }

    fn number(&mut self, task: &Task) -> u64 {
        self.next += 1;
        self.waiting.insert(TaskId(task.id), self.next);
        self.next
    }

    /// Takes a task back, if it waits.
    pub(crate) fn take_back(&mut self, task: TaskId) {
        self.waiting.remove(&task);
        if self.waiting.is_empty() {
            self.queue.clear();
        }
    }

    /// Takes back those of so many tasks that came last.
    pub(crate) fn take_last(&mut self, count: u64) -> Vec<TaskId> {
        let mut taken = Vec::new();
        while (taken.len() as u64) < count {
            let Some((number, task)) = self.queue.pop_back() else { break };
            let id = TaskId(task.id);
            if self.waiting.get(&id) == Some(&number) {
                self.waiting.remove(&id);
                taken.push(id);
            }
        }
        taken
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
    pub(crate) fn allow(&mut self, taker: Taker, total: u64) {
        let account = self.takers.entry(taker).or_default();
        let took = account.takes();
        account.allowed = account.allowed.max(total);
        if account.takes() && !took {
            self.turns.push_back(taker);
        }
    }

    /// Gives tasks that wait to those that take them, one each in turn.
    pub(crate) fn hand_out(&mut self) -> BTreeMap<Taker, Vec<Task>> {
        let mut given: BTreeMap<Taker, Vec<Task>> = BTreeMap::new();
        while !self.waiting.is_empty() {
            let Some(taker) = self.turns.pop_front() else { break };
            let Some(account) = self.takers.get_mut(&taker).filter(|account| account.takes()) else {
                continue;
            };
            let task = loop {
                let Some((number, task)) = self.queue.pop_front() else { return given };
                if self.waiting.get(&TaskId(task.id)) == Some(&number) {
                    break task;
                }
            };
            self.waiting.remove(&TaskId(task.id));
            account.sent += 1;
            account.given.insert(TaskId(task.id));
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
        self.take_back(task);
        self.takers.entry(taker).or_default().given.insert(task);
    }

    /// A taker is done with a task. Tells whether it had it.
    pub(crate) fn done(&mut self, taker: Taker, task: TaskId) -> bool {
        self.takers.get_mut(&taker).is_some_and(|account| account.given.remove(&task))
    }

    /// The member itself is done with a task, and takes another one in its place.
    pub(crate) fn own_done(&mut self, task: TaskId) {
        if self.done(Taker::Own, task) {
            let allowed = self.takers.get(&Taker::Own).map_or(0, |account| account.allowed);
            self.allow(Taker::Own, allowed.saturating_add(1));
        }
    }

    /// Forgets a taker. Returns the tasks that it had, by their numbers.
    pub(crate) fn lose(&mut self, taker: Taker) -> Vec<TaskId> {
        self.takers.remove(&taker).unwrap_or_default().given.into_iter().collect()
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
        (0..10).for_each(|id| dispatch.push(task(id)));
        assert!(dispatch.hand_out().is_empty(), "nobody takes any");
        dispatch.allow(A, 2);
        dispatch.allow(B, 4);
        let given = dispatch.hand_out();
        assert_eq!((ids(&given, A), ids(&given, B)), (vec![0, 2], vec![1, 3, 4, 5]));
        assert_eq!((dispatch.waiting(), dispatch.wanted()), (4, 0));
        dispatch.allow(A, 1);
        assert!(dispatch.hand_out().is_empty(), "it took two already");
        dispatch.leave(B);
        dispatch.allow(A, 3);
        assert_eq!(ids(&dispatch.hand_out(), A), [6]);
        dispatch.push_first(task(99));
        dispatch.allow(A, 4);
        assert_eq!(ids(&dispatch.hand_out(), A), [99]);
    }

    #[test]
    fn what_a_lost_taker_had() {
        let mut dispatch = Dispatch::default();
        dispatch.allow(A, 4);
        (0..5).for_each(|id| dispatch.push(task(id)));
        dispatch.hand_out();
        dispatch.adopt(A, TaskId(4));
        dispatch.adopt(A, TaskId(2));
        assert_eq!(dispatch.waiting(), 0, "it has the last one, too");
        assert!(dispatch.done(A, TaskId(1)) && !dispatch.done(A, TaskId(1)), "only once");
        assert_eq!(dispatch.lose(A), [0, 2, 3, 4].map(TaskId));
        assert_eq!(dispatch.lose(A), []);
        dispatch.push(task(1));
        assert!(dispatch.hand_out().is_empty(), "it gets nothing any more");
        dispatch.allow(Taker::Own, 1);
        assert_eq!(ids(&dispatch.hand_out(), Taker::Own), [1]);
        dispatch.own_done(TaskId(1));
        dispatch.own_done(TaskId(1));
        assert_eq!(dispatch.wanted(), 1, "one in place of each");
    }

    #[test]
    fn tasks_that_are_taken_back() {
        let mut dispatch = Dispatch::default();
        (0..6).for_each(|id| dispatch.push(task(id)));
        dispatch.take_back(TaskId(0));
        dispatch.take_back(TaskId(4));
        // One that comes back isn't what was taken back before.
        dispatch.push_first(task(4));
        assert_eq!(dispatch.take_last(2), [TaskId(5), TaskId(3)]);
        assert_eq!(dispatch.waiting(), 3);
        dispatch.allow(A, 9);
        assert_eq!(ids(&dispatch.hand_out(), A), [4, 1, 2]);
    }
}
