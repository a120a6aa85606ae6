//! What the kernel counted while gathers ran: what the paper takes from Web100.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{read_json, write_json};
use crate::tcp::Tcp;

/// What a way took and counted in a round.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    /// Mean time of the turn's gathers, in seconds.
    pub seconds: f64,
    pub gathers: u64,
    /// TCP's counters at the senders' machine and at the root's.
    pub tcp: [Tcp; 2],
    /// Processor seconds of the near end and the far end.
    pub ends_seconds: [f64; 2],
    /// Processor seconds of the senders together, and of the root.
    pub programs_seconds: [f64; 2],
}

/// All rounds of a way in a case.
#[derive(Debug, Serialize, Deserialize)]
struct Sum {
    what: String,
    way: String,
    /// Time of all gathers together, in seconds.
    seconds: f64,
    /// How many gathers all rounds had. The counters belong to them.
    gathers: u64,
    bytes: u64,
    senders: Tcp,
    root: Tcp,
    /// Processor seconds of the near end and the far end, in all rounds.
    ends_seconds: [f64; 2],
    /// Processor seconds of the senders together, and of the root.
    programs_seconds: [f64; 2],
}

/// The counts of all cases and ways, for `trunk-counts.json`.
#[derive(Debug)]
pub(super) struct Counts {
    path: PathBuf,
    sums: Vec<Sum>,
}

impl Counts {
    /// The counts in `trunk-counts.json` of the directory. With `goes_on` they add to those of earlier
    /// runs.
    pub(super) fn new(directory: &Path, goes_on: bool) -> Self {
        let path = directory.join("trunk-counts.json");
        let earlier = if goes_on { read_json(&path).ok() } else { None };
        Self { path, sums: earlier.unwrap_or_default() }
    }

    /// Adds a way's turn to the counts of a case.
    pub(super) fn add(&mut self, what: &str, way: &str, bytes_each: u64, turn: &Turn) {
        let found = self.sums.iter().position(|sum| sum.what == what && sum.way == way);
        let at = found.unwrap_or_else(|| {
            self.sums.push(Sum {
                what: what.to_owned(),
                way: way.to_owned(),
                seconds: 0.0,
                gathers: 0,
                bytes: 0,
                senders: Tcp::default(),
                root: Tcp::default(),
                ends_seconds: [0.0; 2],
                programs_seconds: [0.0; 2],
            });
            self.sums.len() - 1
        });
        let sum = &mut self.sums[at];
        sum.seconds += turn.seconds * turn.gathers as f64;
        sum.gathers += turn.gathers;
        sum.bytes += turn.gathers * bytes_each;
        sum.senders.add(turn.tcp[0]);
        sum.root.add(turn.tcp[1]);
        for at in [0, 1] {
            sum.ends_seconds[at] += turn.ends_seconds[at];
            sum.programs_seconds[at] += turn.programs_seconds[at];
        }
    }

    pub(super) fn write(&self) -> anyhow::Result<()> {
        write_json(&self.path, 1, &self.sums)
    }
}
