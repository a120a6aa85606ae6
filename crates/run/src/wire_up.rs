//! When the connections of a job's start are made.

use std::time::{Duration, Instant};

use isthmus_wire::proto::Joined;

/// Finds out when the connections of the start were all made: when no new one has come for
/// [`QUIET`](Self::QUIET). It waits longer while only daemons are joined to their launcher.
#[derive(Debug)]
pub(super) struct WireUp {
    started: Instant,
    first: Option<Instant>,
    latest: Option<Instant>,
    done: bool,
    pairs: Vec<Joined>,
}

impl WireUp {
    /// Quiet time after which the start is over.
    const QUIET: Duration = Duration::from_secs(1);
    /// Quiet time after which the start is over while there are no more connections than commands
    /// on nodes: those have yet to start the ranks.
    const RANKS: Duration = Duration::from_secs(10);

    pub(super) fn new(started: Instant) -> Self {
        Self { started, first: None, latest: None, done: false, pairs: Vec::new() }
    }

    /// Takes in how many connections a pair of nodes has made so far.
    pub(super) fn joined(&mut self, joined: Joined, now: Instant) {
        let same = |old: &Joined| {
            (&old.initiator, &old.acceptor, (old.route, old.dial), &old.relay)
                == (&joined.initiator, &joined.acceptor, (joined.route, joined.dial), &joined.relay)
        };
        let more = match self.pairs.iter_mut().find(|old| same(old)) {
            Some(old) => std::mem::replace(&mut old.connections, joined.connections) < joined.connections,
            None => {
                // A trunk may have carried bytes by a way by which no connection was made.
                let more = joined.connections > 0;
                self.pairs.push(joined);
                more
            }
        };
        if more && !self.done {
            self.first.get_or_insert(now);
            self.latest = Some(now);
        }
    }

    /// Decides whether the start is over; called every 200 ms. `commands` is how many commands were
    /// started on nodes so far.
    pub(super) fn tick(&mut self, now: Instant, commands: usize) {
        let quiet = if self.ranks_joined(commands) { Self::QUIET } else { Self::RANKS };
        self.done |= self.latest.is_some_and(|latest| now.duration_since(latest) >= quiet);
    }

    /// Whether there are more connections than those of the launcher's daemons.
    pub(super) fn ranks_joined(&self, commands: usize) -> bool {
        self.connections() > commands as u64
    }

    /// How many connections were made so far.
    fn connections(&self) -> u64 {
        self.pairs.iter().map(|joined| joined.connections).sum()
    }

    /// Whether the start is over.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// When the first and the last connection of the start came.
    pub(super) fn span(&self) -> Option<(Instant, Instant)> {
        self.first.zip(self.latest)
    }

    /// Time from the command's start to the last connection of the job's start; `None` if there was
    /// none.
    pub(super) fn result(&self) -> Option<Duration> {
        self.latest.map(|latest| latest.duration_since(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_over_when_nothing_comes_any_more() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs_f64(seconds);
        let joined = |connections| Joined { connections, ..Joined::default() };
        for (name, counts, commands, looked_at, want) in [
            ("nothing yet", vec![], 0, 60.0, (false, None)),
            ("one that just came", vec![(0.5, 1)], 0, 1.4, (false, Some(0.5))),
            ("quiet", vec![(0.5, 1), (0.7, 2)], 0, 1.8, (true, Some(0.7))),
            ("daemons, and ranks to come", vec![(0.5, 7)], 7, 9.0, (false, Some(0.5))),
            ("ranks that came late", vec![(0.5, 7), (5.0, 30)], 7, 6.1, (true, Some(5.0))),
            ("ranks that never come", vec![(0.5, 7)], 7, 10.6, (true, Some(0.5))),
        ] {
            let mut wire_up = WireUp::new(began);
            for (seconds, connections) in counts {
                wire_up.joined(joined(connections), after(seconds));
            }
            wire_up.tick(after(looked_at), commands);
            let result = wire_up.result().map(|result| result.as_secs_f64());
            assert_eq!((wire_up.is_done(), result), want, "{name}");
        }
    }
}
