//! How long a job waited for sites that were cut off.

use std::fmt;
use std::time::Duration;

use isthmus_front::format::count;
use isthmus_front::output::one_line;
use serde::Serialize;

/// The cuts of one site that a job has outlived. Those of under 3 s aren't told to the
/// user, and aren't counted either.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Pauses {
    /// The node that stands for the site.
    pub node: String,
    /// How often the site was cut off.
    pub pauses: u32,
    /// For how many seconds in all. Two sites may be cut off at the same time.
    pub seconds: f64,
}

/// Adds a cut that has ended.
pub(super) fn note(all: &mut Vec<Pauses>, node: &str, silent: Duration) {
    let seconds = silent.as_secs_f64();
    let node = one_line(node);
    match all.iter_mut().find(|known| known.node == node) {
        Some(known) => {
            known.pauses = known.pauses.saturating_add(1);
            known.seconds += seconds;
        }
        None => all.push(Pauses { node, pauses: 1, seconds }),
    }
}

/// In words, for instance `waited 21.4 s for n1.beta, which was cut off once`.
impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let often = match self.pauses {
            1 => "once".to_owned(),
            pauses => count(pauses.into(), "time"),
        };
        write!(f, "waited {:.1} s for {}, which was cut off {often}", self.seconds, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_of_a_site_are_added_up() {
        let mut all = Vec::new();
        for (node, millis) in [("n1.beta", 21_440), ("n1.gamma", 5_000), ("n1.beta", 4_000)] {
            note(&mut all, node, Duration::from_millis(millis));
        }
        let lines: Vec<_> = all.iter().map(Pauses::to_string).collect();
        let want = [
            "waited 25.4 s for n1.beta, which was cut off 2 times",
            "waited 5.0 s for n1.gamma, which was cut off once",
        ];
        assert_eq!(lines, want);
    }
}
