//! A job that can't start because something is away is tried again for a while: what a running
//! job outlives keeps none from starting.

use std::time::{Duration, Instant};

use isthmus_front::format::causes;
use isthmus_front::output::one_line;
use isthmus_front::{ask, local};
use tokio::time::sleep;

use super::nodes::ChoiceError;
use super::progress::Progress;
use super::signals::{Interrupted, Signals};

/// Pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How messages begin about jobs that aren't started.
const NOT_STARTED: &str = "not started: ";

/// Why a job isn't started.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct NotStarted {
    /// The message for the user, perhaps of several lines.
    pub text: String,
    /// The lines of `text` that tell reasons.
    pub reasons: String,
    /// Whether another try may have another result.
    pub may_pass: bool,
}

/// What is known of the tries to start a job so far.
#[derive(Debug)]
pub(super) struct Tries {
    began: Instant,
    /// How long after the first try began another try may follow.
    lasting: Duration,
    is_told: bool,
    /// Whether the user has read that a gateway answers for the broker.
    pub without_broker_is_told: bool,
}

impl Tries {
    /// Begins the first try. Others may follow for the time `lasting`.
    pub(super) fn begin(lasting: Duration) -> Self {
        Self { began: Instant::now(), lasting, is_told: false, without_broker_is_told: false }
    }

    /// Waits until the next try, after one that has failed with `error`.
    ///
    /// # Errors The failure, if it won't pass or time is over; [`Interrupted`] if a signal comes.
    pub(super) async fn again(
        &mut self,
        error: anyhow::Error,
        progress: &mut Progress,
        (signals, quiet): (&mut Signals, bool),
    ) -> anyhow::Result<()> {
        if self.began.elapsed() >= self.lasting || !may_pass(&error) {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_told, true) && !quiet {
            progress.message(&word(&error, self.lasting));
        }
        progress.show("waiting for what is away");
        tokio::select! {
            () = sleep(PAUSE) => Ok(()),
            signal = signals.next() => Err(Interrupted(signal).into()),
        }
    }
}

/// Whether another try after one that has failed with `error` may have another result.
fn may_pass(error: &anyhow::Error) -> bool {
    let choice = error.downcast_ref().map(ChoiceError::may_pass);
    let answer = error.downcast_ref().map(|failure: &ask::Failure| failure.may_pass);
    let agent = error.downcast_ref().map(|absent: &local::Absent| absent.was_killed);
    let start = error.downcast_ref().map(|start: &NotStarted| start.may_pass);
    [choice, answer, agent, start].contains(&Some(true))
}

/// What the user reads, once, of a failure after which another try follows.
fn word(error: &anyhow::Error, lasting: Duration) -> String {
    let start = error.downcast_ref().map(|start: &NotStarted| start.reasons.clone());
    let text = start.unwrap_or_else(|| causes(error));
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let text = one_line(text.strip_prefix(NOT_STARTED).unwrap_or(&text));
    let lasting = humantime::format_duration(lasting);
    format!("not started yet: {text}. It is tried again for up to {lasting} (Ctrl-C ends that)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again() {
        let not_started =
            |may_pass| NotStarted { text: "not started: x".to_owned(), reasons: "x".to_owned(), may_pass };
        let absent = |was_killed| local::Absent { text: "no agent runs".to_owned(), was_killed };
        let name = || "n1.beta".to_owned();
        let not_known = ChoiceError::NotKnown { name: name(), gateway: "gateway login1".to_owned() };
        for (error, want) in [
            (anyhow::Error::from(not_started(true)), true),
            (not_started(false).into(), false),
            (anyhow::Error::from(not_started(true)).context("the grid"), true),
            (absent(true).into(), true),
            (absent(false).into(), false),
            (ChoiceError::NotAttached.into(), true),
            (not_known.into(), true),
            (ChoiceError::NoSuch { name: name() }.into(), false),
            (anyhow::anyhow!("anything else"), false),
        ] {
            assert_eq!(may_pass(&error), want, "{error:#}");
        }
    }

    #[test]
    fn the_word_is_one_line() {
        let reasons = "  n1.beta: no answer within 30 s\n  n1.gamma: gone\n".to_owned();
        let text = format!("not started: the job cannot take place\n{reasons}");
        for (error, want) in [
            (
                NotStarted { text, reasons, may_pass: true }.into(),
                "n1.beta: no answer within 30 s; n1.gamma: gone",
            ),
            (anyhow::anyhow!("not started: no node can take part"), "no node can take part"),
            (anyhow::anyhow!("no agent runs\u{1b}"), "no agent runs\\u{1b}"),
        ] {
            let want =
                format!("not started yet: {want}. It is tried again for up to 1m 30s (Ctrl-C ends that)");
            assert_eq!(word(&error, Duration::from_secs(90)), want);
        }
    }
}
