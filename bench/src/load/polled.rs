//! Programs that poll while they wait, such as ranks of MPIs. Pure but for the reading of /proc.

use std::collections::HashMap;

use procfs::process::Stat;

/// What programs that poll have used: by process id and start, the ticks when the process was first
/// seen, and when it was last.
#[derive(Debug, Default)]
pub(super) struct Polled {
    processes: HashMap<(i32, u64), [u64; 2]>,
    looked: bool,
}

impl Polled {
    pub(super) fn see(&mut self, stats: impl Iterator<Item = Stat>) {
        self.note(stats.map(|stat| ((stat.pid, stat.starttime), stat.utime + stat.stime)));
    }

    /// Notes the ticks of all processes that run now. One that comes later has used all its ticks
    /// meanwhile.
    fn note(&mut self, now: impl Iterator<Item = ((i32, u64), u64)>) {
        for (process, ticks) in now {
            let first = if self.looked { 0 } else { ticks };
            self.processes.entry(process).or_insert([first, ticks])[1] = ticks;
        }
        self.looked = true;
    }

    pub(super) fn ticks(&self) -> u64 {
        self.processes.values().map(|[first, last]| last - first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_poll_are_followed_until_they_end() {
        let mut polled = Polled::default();
        // id and start, ticks
        for now in [&[((5, 1), 100)][..], &[((5, 1), 120), ((6, 2), 30)], &[((6, 2), 50), ((6, 3), 7)], &[]] {
            polled.note(now.iter().copied());
        }
        assert_eq!(polled.ticks(), 20 + 50 + 7);
    }
}
