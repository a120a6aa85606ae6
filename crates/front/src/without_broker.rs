//! What a user reads of answers that a gateway gave by itself, because it doesn't reach
//! the broker.

use std::time::Duration;

use isthmus_service::clock::humane;
use isthmus_wire::proto::WithoutBroker;
use serde::Serialize;

use crate::output::one_line;

/// The JSON form of a gateway's word that it has answered by itself.
#[derive(Debug, Serialize)]
pub struct View {
    /// The grid name of the gateway that answered.
    gateway: String,
    /// For how many seconds the gateway hasn't reached the broker.
    away_seconds: f64,
    /// Age in seconds of the oldest part of what the gateway answered of other sites; absent if it
    /// had nothing of them.
    told_seconds: Option<f64>,
}

impl View {
    /// The JSON form of a gateway's word.
    pub fn new(answer: &WithoutBroker) -> Self {
        let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        Self {
            gateway: answer.gateway.clone(),
            away_seconds: seconds(answer.away_ms),
            told_seconds: answer.told_ms.map(seconds),
        }
    }
}

/// One line for the user about an answer that a gateway gave by itself.
pub fn line(answer: &WithoutBroker) -> String {
    let time = |ms| humane(Duration::from_millis(ms));
    let (away, gateway) = (time(answer.away_ms), one_line(&answer.gateway));
    let mut line = format!("the broker can't be reached for {away}: this is what {gateway} knows by itself");
    if let Some(told) = answer.told_ms {
        line.push_str(&format!("; of other sites it heard up to {} ago", time(told)));
    }
    line
}

/// Joins what gateways told of themselves with several answers: the latest, with the oldest part of
/// all.
pub fn join(all: &mut Option<WithoutBroker>, answer: Option<WithoutBroker>) {
    if let Some(mut answer) = answer {
        let before = all.as_ref().and_then(|before| before.told_ms);
        answer.told_ms = answer.told_ms.max(before);
        *all = Some(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_all_answers() {
        let answer =
            |away_ms, told_ms| WithoutBroker { gateway: "gateway.alpha".to_owned(), away_ms, told_ms };
        let mut all = None;
        for (next, want) in [
            (None, None),
            (
                Some(answer(9_000, None)),
                Some("the broker can't be reached for 9 s: this is what gateway.alpha knows by itself"),
            ),
            (
                Some(answer(180_000, Some(7_000))),
                Some(
                    "the broker can't be reached for 3 min: this is what gateway.alpha knows by itself; of other \
                     sites it heard up to 7 s ago",
                ),
            ),
            (
                Some(answer(180_000, None)),
                Some(
                    "the broker can't be reached for 3 min: this is what gateway.alpha knows by itself; of other \
                     sites it heard up to 7 s ago",
                ),
            ),
        ] {
            join(&mut all, next);
            assert_eq!(all.as_ref().map(line).as_deref(), want);
        }
    }
}
