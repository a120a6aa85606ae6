//! The progress line while a job wires up.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isthmus_wire::proto::JobNode;

use super::WireUp;

/// Says something on standard error. The terminal may be gone: that must not
/// keep the job from its orderly end, as a panic would.
pub(super) fn say(text: &str) {
    write(&format!("isthmus: {text}\n"));
}

/// Writes to standard error whatever becomes of it.
pub(super) fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A line on standard error where that is a terminal, plain lines for what
/// matters where it isn't.
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

    /// From time to time: shows how far the wiring is. The line goes once the
    /// program has the terminal to itself.
    pub(super) fn tick(&self, wire_up: &WireUp) {
        if wire_up.is_done() {
            self.clear();
        } else if wire_up.connections() > 0 {
            self.bar.set_message(format!("wiring up: {} connections", wire_up.connections()));
        }
    }

    /// Says something that must not be missed.
    pub(super) fn say(&self, text: &str) {
        self.clear();
        say(text);
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}
