//! The progress line while a job wires up.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isthmus_wire::proto::JobNode;

use super::wire_up::WireUp;
use crate::output::message;

/// A progress line, if standard error is a terminal; messages appear as plain
/// lines in any case.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line without text.
    pub(super) fn new(quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("isthmus: {spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// The nodes are asked to take part.
    pub(super) fn preparing(&self, nodes: &[JobNode]) {
        self.bar.set_message(format!("asking {} nodes to take part", nodes.len()));
        self.bar.enable_steady_tick(Duration::from_millis(120));
    }

    pub(super) fn ready(&self, nodes: &[JobNode]) {
        self.bar.set_message(format!("{} nodes ready, wiring up", nodes.len()));
    }

    /// Shows how far the wiring is, called every 200 ms. The line disappears
    /// once the start is over.
    pub(super) fn tick(&self, wire_up: &WireUp) {
        if wire_up.is_done() {
            self.clear();
        } else if wire_up.connections() > 0 {
            self.bar.set_message(format!("wiring up: {} connections", wire_up.connections()));
        }
    }

    /// Clears the line, and writes a message.
    pub(super) fn message(&self, text: &str) {
        self.clear();
        message(text);
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}
