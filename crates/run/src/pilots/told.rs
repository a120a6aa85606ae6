//! What of the pilots was told where no line is seen, as in a log: pure.

use std::collections::HashSet;
use std::mem::Discriminant;

use super::board::{Board, Phase};

/// Most reasons that are told. Schedulers name nodes in some, so that each may be another text.
const MOST: usize = 100;

/// What was told of the pilots.
#[derive(Debug, Default)]
pub(super) struct Told {
    phases: Vec<Discriminant<Phase>>,
    reasons: HashSet<(usize, String)>,
}

impl Told {
    /// Whether a pilot is in another phase than before, or gives a reason that it hasn't given yet. From
    /// now on that counts as told.
    pub(super) fn takes(&mut self, board: &Board) -> bool {
        let phases = board.phases();
        let mut is_new = self.phases != phases;
        self.phases = phases;
        for reason in board.reasons() {
            is_new |= self.reasons.len() < MOST && self.reasons.insert(reason);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use isthmus_wire::proto::{PilotDown, PilotRuns, PilotWaits, pilot_down};

    use super::super::board::Entry;
    use super::*;

    fn waits(reason: &str, trouble: &str) -> PilotDown {
        let waits = PilotWaits { reason: reason.to_owned(), starts_in_seconds: None };
        let phase = Some(pilot_down::Phase::Waits(waits));
        PilotDown { phase, trouble: trouble.to_owned(), ..PilotDown::default() }
    }

    #[test]
    fn each_reason_is_told_once() {
        let runs = PilotDown {
            phase: Some(pilot_down::Phase::Runs(PilotRuns { nodes: 1, ..PilotRuns::default() })),
            ..PilotDown::default()
        };
        let mut board = Board::new(vec![Entry::new("alpha", 1), Entry::new("beta", 1)]);
        let mut told = Told::default();
        assert!(told.takes(&board) && !told.takes(&board));
        for (case, index, down, want) in [
            ("it waits", 0, waits("", ""), true),
            ("for a reason", 0, waits("Priority", ""), true),
            ("for another one", 0, waits("Resources", ""), true),
            ("for the first one again", 0, waits("Priority", ""), false),
            ("its scheduler is away", 0, waits("Priority", "no answer"), true),
            ("and back", 0, waits("Priority", ""), false),
            ("the other one waits for the same", 1, waits("Priority", ""), true),
            ("it runs", 1, runs, true),
            ("it waits again", 1, waits("Priority", ""), true),
        ] {
            board.take(index, down, Instant::now());
            assert_eq!(told.takes(&board), want, "{case}");
        }
        for number in 0..2 * MOST {
            board.take(0, waits(&format!("node {number} is down"), ""), Instant::now());
            told.takes(&board);
        }
        assert_eq!(told.reasons.len(), MOST);
    }
}
