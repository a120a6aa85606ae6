//! What the MPI library has done in a job's ranks here: each writes a file into the job's
//! directory when it ends (docs/collectives.md). The ranks are the user's programs, so all
//! that they write is bounded.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use isthmus_wire::Label;
use isthmus_wire::proto;
use isthmus_wire::topology::REPORTS;

/// Most files of one node that are read.
const FILES_MAX: usize = 4096;
/// Most bytes that are read of one file.
const BYTES_MAX: u64 = 256 * 1024;
/// Most pairs of an operation and an algorithm that are told.
const TAKEN_MAX: usize = 256;
/// Most pairs of sites that are told.
const CROSSINGS_MAX: usize = 10_000;
/// Most bytes of the name of an operation, an algorithm or a site.
const NAME_MAX: usize = 32;

/// What the MPI library has done, summed over ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Collectives {
    processes: u32,
    taken: BTreeMap<(String, String), u64>,
    /// Messages and bytes from one site to another, by their names.
    crossings: BTreeMap<(String, String), (u64, u64)>,
    /// Messages and bytes that any algorithm would have had to send.
    least: (u64, u64),
    /// Topologies for which there is a better order of ranks, which the job doesn't ask for.
    reorderable: proto::Reordering,
    /// Topologies for which the ranks got a better order.
    reordered: proto::Reordering,
}

impl Collectives {
    /// Adds up the reports of the ranks that have ended.
    pub(crate) fn of(job_directory: &Path) -> Self {
        let mut sum = Self::default();
        let entries = fs::read_dir(job_directory.join(REPORTS)).into_iter().flatten().flatten();
        for entry in entries.take(FILES_MAX) {
            // A program can put anything there, a FIFO too.
            let opened = fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(entry.path());
            let Ok(file) = opened else { continue };
            let mut text = String::new();
            if file.metadata().is_ok_and(|metadata| metadata.is_file())
                && file.take(BYTES_MAX).read_to_string(&mut text).is_ok()
            {
                sum.add_report(&text);
            }
        }
        sum
    }

    fn add_report(&mut self, text: &str) {
        // A rank that was killed meanwhile may have written half of its report.
        if !text.starts_with("isthmus mpi report 1\n") || !text.ends_with("\nend\n") {
            return;
        }
        self.processes = self.processes.saturating_add(1);
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["call", operation, algorithm, calls] => {
                    self.add_taken(operation, algorithm, calls.parse().ok())
                }
                ["sent", from, to, messages, bytes] => {
                    if let (Ok(messages), Ok(bytes)) = (messages.parse(), bytes.parse()) {
                        self.add_crossing(from, to, (messages, bytes));
                    }
                }
                ["least", messages, bytes] => {
                    if let (Ok(messages), Ok(bytes)) = (messages.parse(), bytes.parse()) {
                        self.add_least((messages, bytes));
                    }
                }
                ["reorder", ..] | ["reordered", ..] => self.add_reordering(line),
                _ => {}
            }
        }
    }

    fn add_reordering(&mut self, line: &str) {
        let [word, numbers @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else { return };
        let numbers: Vec<u64> = numbers.iter().map_while(|number| number.parse().ok()).collect();
        let sum = if *word == "reorder" { &mut self.reorderable } else { &mut self.reordered };
        if let [topologies, weight, weight_reordered] = numbers[..] {
            add_reordering(sum, proto::Reordering { topologies, weight, weight_reordered });
        }
    }

    fn add_least(&mut self, (messages, bytes): (u64, u64)) {
        self.least = (self.least.0.saturating_add(messages), self.least.1.saturating_add(bytes));
    }

    fn add_taken(&mut self, operation: &str, algorithm: &str, calls: Option<u64>) {
        let is_name = |name: &str| {
            name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let Some(calls) = calls.filter(|_| is_name(operation) && is_name(algorithm)) else { return };
        let key = (operation.to_owned(), algorithm.to_owned());
        if self.taken.len() < TAKEN_MAX || self.taken.contains_key(&key) {
            let sum = self.taken.entry(key).or_default();
            *sum = sum.saturating_add(calls);
        }
    }

    fn add_crossing(&mut self, from: &str, to: &str, (messages, bytes): (u64, u64)) {
        if from.parse::<Label>().is_err() || to.parse::<Label>().is_err() {
            return;
        }
        let key = (from.to_owned(), to.to_owned());
        if self.crossings.len() < CROSSINGS_MAX || self.crossings.contains_key(&key) {
            let sum = self.crossings.entry(key).or_default();
            *sum = (sum.0.saturating_add(messages), sum.1.saturating_add(bytes));
        }
    }

    /// Adds what another node has told.
    pub(crate) fn add(&mut self, told: &proto::Collectives) {
        self.processes = self.processes.saturating_add(told.processes);
        for taken in &told.taken {
            self.add_taken(&taken.operation, &taken.algorithm, Some(taken.calls));
        }
        self.add_least((told.least_messages, told.least_bytes));
        add_reordering(&mut self.reorderable, told.reorderable.unwrap_or_default());
        add_reordering(&mut self.reordered, told.reordered.unwrap_or_default());
        for crossing in &told.crossings {
            self.add_crossing(&crossing.from, &crossing.to, (crossing.messages, crossing.bytes));
        }
    }

    /// The message by which the head is told of these sums.
    pub(crate) fn message(self) -> proto::Collectives {
        let taken = self.taken.into_iter();
        let crossings = self.crossings.into_iter();
        proto::Collectives {
            processes: self.processes,
            taken: taken
                .map(|((operation, algorithm), calls)| proto::Taken { operation, algorithm, calls })
                .collect(),
            crossings: crossings
                .map(|((from, to), (messages, bytes))| proto::Crossing { from, to, messages, bytes })
                .collect(),
            least_messages: self.least.0,
            least_bytes: self.least.1,
            reorderable: (self.reorderable.topologies > 0).then_some(self.reorderable),
            reordered: (self.reordered.topologies > 0).then_some(self.reordered),
        }
    }
}

fn add_reordering(sum: &mut proto::Reordering, other: proto::Reordering) {
    *sum = proto::Reordering {
        topologies: sum.topologies.saturating_add(other.topologies),
        weight: sum.weight.saturating_add(other.weight),
        weight_reordered: sum.weight_reordered.saturating_add(other.weight_reordered),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "isthmus mpi report 1\nrank 0 4\ncall bcast leaders 3\ncall bcast native 1\nsent alpha beta 3 96\nleast 2 64\nreorder 2 24 10\nend\n";

    #[test]
    fn reports_are_added_up() {
        let directory = tempfile::tempdir().unwrap();
        let reports = directory.path().join(REPORTS);
        fs::create_dir(&reports).unwrap();
        assert_eq!(Collectives::of(directory.path()), Collectives::default());
        fs::write(reports.join("mpi.1"), REPORT).unwrap();
        fs::write(reports.join("mpi.2"), REPORT).unwrap();
        fs::write(reports.join("half"), &REPORT[..REPORT.len() - 4]).unwrap();
        fs::write(reports.join("other"), b"\xff\xfe").unwrap();
        std::os::unix::fs::symlink(reports.join("mpi.1"), reports.join("link")).unwrap();
        nix::unistd::mkfifo(&reports.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let told = Collectives::of(directory.path()).message();
        let mut sum = Collectives::of(directory.path());
        sum.add(&told);
        let sum = sum.message();
        assert_eq!((told.processes, sum.processes), (2, 4));
        let taken: Vec<_> =
            sum.taken.iter().map(|taken| (&*taken.operation, &*taken.algorithm, taken.calls)).collect();
        assert_eq!(taken, [("bcast", "leaders", 12), ("bcast", "native", 4)]);
        let crossings: Vec<_> = sum
            .crossings
            .iter()
            .map(|crossing| (&*crossing.from, &*crossing.to, crossing.messages, crossing.bytes))
            .collect();
        assert_eq!(crossings, [("alpha", "beta", 12, 384)]);
        assert_eq!((sum.least_messages, sum.least_bytes), (8, 256));
        let reorderable = proto::Reordering { topologies: 8, weight: 96, weight_reordered: 40 };
        assert_eq!((sum.reorderable, sum.reordered), (Some(reorderable), None));
    }

    #[test]
    fn what_programs_write_is_bounded() {
        let mut sum = Collectives::default();
        let mut text = String::from("isthmus mpi report 1\n");
        for number in 0..2 * TAKEN_MAX {
            text.push_str(&format!("call op{number} leaders 1\n"));
        }
        text.push_str(
            "call bcast lea-ders 1\nleast x 1\nleast 1\ncall bcast\ncall a b -1\nsent al/pha beta 1 1\nsent alpha beta x 1\nreorder 1 2\nreorder 1 2 x\nreordered 1 2 3 4\n",
        );
        text.push_str(&format!("call bcast leaders {}\ncall bcast leaders {}\nend\n", u64::MAX, u64::MAX));
        sum.add_report(&text);
        assert_eq!(sum.taken.len(), TAKEN_MAX);
        assert!(sum.crossings.is_empty() && sum.least == (0, 0));
        assert_eq!((sum.reorderable.topologies, sum.reordered.topologies), (0, 0));
    }
}
