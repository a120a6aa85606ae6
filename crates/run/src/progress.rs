//! The progress line of a job's start. It is rewritten in place and leaves no trace, so it
//! is gone before a program can write to the same terminal.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isthmus_front::format::{count, site};
use isthmus_front::output::{message, one_line};
use isthmus_wire::proto::JobNode;
use isthmus_wire::text::first;

/// How long a launcher may take to start its daemons before the line tells of it.
const LONG: Duration = Duration::from_secs(1);
/// Most nodes or sites that the line names: it must not be longer than a terminal is wide.
const NAMES_MAX: usize = 2;

/// A progress line on standard error, if that is a terminal. Messages appear as plain lines in any
/// case.
#[derive(Debug)]
pub(crate) struct Progress {
    is_visible: bool,
    line: Option<ProgressBar>,
}

impl Progress {
    /// Makes a progress that shows no line yet; with `quiet` it never shows one.
    pub(super) fn new(quiet: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        Self { is_visible: !quiet && !is_dumb && std::io::stderr().is_terminal(), line: None }
    }

    /// Whether the line is seen.
    pub(super) fn is_visible(&self) -> bool {
        self.is_visible
    }

    /// Shows what is done, and for how many seconds by now.
    pub(super) fn show(&mut self, text: &str) {
        if !self.is_visible {
            return;
        }
        let new = || {
            let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("isthmus: {spinner} {msg} ({elapsed})") {
                line.set_style(style);
            }
            line.enable_steady_tick(Duration::from_millis(120));
            line
        };
        let line = self.line.get_or_insert_with(new);
        let text = one_line(text);
        if line.message() != text {
            line.reset_elapsed();
            line.set_message(text);
        }
    }

    /// Shows that the nodes are asked to take part.
    pub(super) fn asking(&mut self, nodes: &[JobNode]) {
        let sites: BTreeSet<&str> = nodes.iter().map(|node| site(&node.name)).collect();
        let (nodes, sites) = (count(nodes.len() as u64, "node"), first(sites.iter(), 0, NAMES_MAX));
        self.show(&format!("asking {nodes} at {sites} to take part"));
    }

    /// Writes a message above the line.
    pub(super) fn message(&self, text: &str) {
        match &self.line {
            Some(line) => line.suspend(|| message(text)),
            None => message(text),
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if let Some(line) = self.line.take() {
            line.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The daemons of a launcher that starts no rank before all of them run. Until then nothing but the
/// launcher's own errors can come from it.
#[derive(Debug)]
pub(super) struct Daemons {
    began: Instant,
    all: usize,
    /// Names of the nodes on which no daemon runs yet.
    missing: BTreeSet<String>,
}

impl Daemons {
    /// Awaits a daemon on each node with slots but the head; with `awaited` false, for other
    /// launchers, none.
    pub(super) fn new(nodes: &[JobNode], awaited: bool, began: Instant) -> Self {
        let others = nodes.iter().skip(1).filter(|node| awaited && node.slots > 0);
        let missing: BTreeSet<String> = others.map(|node| node.name.clone()).collect();
        Self { began, all: missing.len(), missing }
    }

    /// Notes that a daemon runs on this node.
    pub(super) fn started(&mut self, node: &str) {
        self.missing.remove(node);
    }

    /// Awaits no daemons any more: ranks run, or the launcher needs no more daemons.
    pub(super) fn over(&mut self) {
        self.missing.clear();
    }

    /// Which daemons are awaited, in words; `None` before that takes long.
    pub(super) fn text(&self, now: Instant) -> Option<String> {
        if self.missing.is_empty() || now.duration_since(self.began) < LONG {
            return None;
        }
        let (run, all) = (self.all - self.missing.len(), self.all);
        let missing = first(self.missing.iter(), 0, NAMES_MAX);
        Some(format!("the launcher starts its daemons: {run} of {all} run, not yet {missing}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_waited_for_until_the_last_one_runs() {
        let node = |name: &str, slots| JobNode { name: name.to_owned(), virtual_address: 0, slots };
        let nodes = [node("n1.a", 2), node("n2.a", 2), node("n1.b", 2), node("fe.b", 0)];
        let began = Instant::now();
        let waits = "the launcher starts its daemons";
        for (name, awaited, started, seconds, want) in [
            ("not yet long", true, &[][..], 0.9, None),
            ("none runs", true, &[], 1.1, Some("0 of 2 run, not yet n1.b, n2.a")),
            ("one runs, twice", true, &["n2.a", "n2.a"], 1.1, Some("1 of 2 run, not yet n1.b")),
            ("all run", true, &["n2.a", "n1.b"], 1.1, None),
            ("ranks may write at once", false, &[], 1.1, None),
        ] {
            let mut daemons = Daemons::new(&nodes, awaited, began);
            started.iter().for_each(|node| daemons.started(node));
            let got = daemons.text(began + Duration::from_secs_f64(seconds));
            assert_eq!(got, want.map(|want| format!("{waits}: {want}")), "{name}");
            daemons.over();
            assert_eq!(daemons.text(began + Duration::from_secs(9)), None, "{name}");
        }
    }
}
