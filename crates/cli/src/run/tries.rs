//! A job that can't start because something is away is tried again for a while: what a running
//! job outlives keeps none from starting.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::nodes::ChoiceError;
use super::progress::Progress;
use super::signals::{Interrupted, Signals};
use crate::format::causes;
use crate::output::one_line;
use crate::{ask, local};

/// For how long, counted from the first try's beginning.
const TRIES_ON: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How messages about jobs begin that aren't started.
const NOT_STARTED: &str = "not started: ";

/// Why a job isn't started.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct NotStarted {
    /// For the user; perhaps several lines.
    pub text: String,
    /// The lines with reasons among them.
    pub reasons: String,
    /// Another try may have another result.
    pub may_pass: bool,
}

/// The tries so far.
#[derive(Debug)]
pub(super) struct Tries {
    began: Instant,
    is_told: bool,
    /// The user has read that a gateway answers for the broker.
    pub without_broker_is_told: bool,
}

impl Tries {
    /// The first one begins.
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), is_told: false, without_broker_is_told: false }
    }

    /// Waits until the next try, after one that has failed.
    ///
    /// # Errors
    /// The failure, if it won't pass, or time is over; or a signal.
    pub(super) async fn again(
        &mut self,
        error: anyhow::Error,
        progress: &mut Progress,
        (signals, quiet): (&mut Signals, bool),
    ) -> anyhow::Result<()> {
        if !goes_on(&error, self.began.elapsed()) {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_told, true) && !quiet {
            progress.message(&word(&error));
        }
        progress.show("waiting for what is away");
        tokio::select! {
            () = sleep(PAUSE) => Ok(()),
            signal = signals.next() => Err(Interrupted(signal).into()),
        }
    }
}

/// Whether another try follows one that has failed, so long after the first one began.
fn goes_on(error: &anyhow::Error, elapsed: Duration) -> bool {
    let choice = error.downcast_ref().map(ChoiceError::may_pass);
    let answer = error.downcast_ref().map(|failure: &ask::Failure| failure.may_pass);
    let agent = error.downcast_ref().map(|absent: &local::Absent| absent.was_killed);
    let start = error.downcast_ref().map(|start: &NotStarted| start.may_pass);
    elapsed < TRIES_ON && [choice, answer, agent, start].contains(&Some(true))
}

/// What the user reads once.
fn word(error: &anyhow::Error) -> String {
    let start = error.downcast_ref().map(|start: &NotStarted| start.reasons.clone());
    let text = start.unwrap_or_else(|| causes(error));
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let text = one_line(text.strip_prefix(NOT_STARTED).unwrap_or(&text));
    format!(
        "not started yet: {text}. It is tried again for up to {} s (Ctrl-C ends that)",
        TRIES_ON.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_for_a_while() {
        let not_started =
            |may_pass| NotStarted { text: "not started: x".to_owned(), reasons: "x".to_owned(), may_pass };
        let absent = |was_killed| local::Absent { text: "no agent runs".to_owned(), was_killed };
        let name = || "n1.beta".to_owned();
        let not_known = ChoiceError::NotKnown { name: name(), gateway: "gateway login1".to_owned() };
        let first = Duration::from_secs(2);
        for (error, elapsed, want) in [
            (anyhow::Error::from(not_started(true)), first, true),
            (not_started(true).into(), TRIES_ON, false),
            (not_started(false).into(), first, false),
            (anyhow::Error::from(not_started(true)).context("the grid"), first, true),
            (absent(true).into(), first, true),
            (absent(false).into(), first, false),
            (ChoiceError::NotAttached.into(), first, true),
            (not_known.into(), first, true),
            (ChoiceError::NoSuch { name: name() }.into(), first, false),
            (anyhow::anyhow!("anything else"), first, false),
        ] {
            assert_eq!(goes_on(&error, elapsed), want, "{error:#} after {elapsed:?}");
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
                format!("not started yet: {want}. It is tried again for up to 30 s (Ctrl-C ends that)");
            assert_eq!(word(&error), want);
        }
    }
}
