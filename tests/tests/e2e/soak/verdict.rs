//! Whether a job did under a fault what is promised.

use std::time::Duration;

use super::table::Outcome;

/// Time within which a job that gives up waiting is gone.
const GIVES_UP: Duration = Duration::from_secs(10);

/// What a job must do. Times count from the beginning of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// The job must go on.
    Lives,
    /// The job must be gone everywhere between `after` and `within`.
    Ends { after: Duration, within: Duration },
}

/// What a job did under a fault.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// The job went on. `pause` is its longest pause from the fault's beginning on.
    Lived { pause: Duration },
    /// The job ended. `took` is the time from the fault's beginning until nothing of the job ran
    /// any more.
    Ended { took: Duration, status: i32, printed: String },
}

/// What a promise means for a job that waits for `outlive`, and a fault that lasts so long.
pub(super) fn expected(outcome: Outcome, lasts: Duration, outlive: Duration) -> Expected {
    match outcome {
        Outcome::Lives => Expected::Lives,
        Outcome::EndsWithin(within) => Expected::Ends { after: Duration::ZERO, within },
        Outcome::WaitsForOutlive if lasts < outlive => Expected::Lives,
        Outcome::WaitsForOutlive => Expected::Ends { after: outlive, within: outlive + GIVES_UP },
    }
}

/// What is wrong with what a job did. `None` if nothing is. A job that ends must tell at least one
/// text of each list of `reasons`.
pub(super) fn fault_of(expected: Expected, seen: &Seen, reasons: &[&[&str]]) -> Option<String> {
    match (expected, seen) {
        (Expected::Lives, Seen::Lived { .. }) => None,
        (Expected::Lives, Seen::Ended { took, status, .. }) => {
            Some(format!("it should live, and ended after {took:.1?} with status {status}"))
        }
        (Expected::Ends { within, .. }, Seen::Lived { .. }) => {
            Some(format!("it should end within {within:?}, and went on"))
        }
        (Expected::Ends { after, within }, Seen::Ended { took, status, printed }) => {
            let silent = reasons.iter().find(|texts| !texts.iter().any(|text| printed.contains(text)));
            match silent {
                _ if took < &after => {
                    Some(format!("it should wait for {after:?}, and ended after {took:.1?}"))
                }
                _ if took > &within => Some(format!("it should end within {within:?}, and took {took:.1?}")),
                _ if matches!(*status, 0 | 124) => Some(format!("it ended with status {status}")),
                Some(texts) => Some(format!("it should tell its user one of {texts:?}")),
                None => None,
            }
        }
    }
}

/// The longest time without progress from `from` on, up to the first progress after `healed`.
/// `None` if there was no progress after that yet. All times are in seconds since the epoch.
pub(super) fn longest_pause(progress: &[f64], from: f64, healed: f64) -> Option<f64> {
    let (mut longest, mut last) = (0f64, from);
    for time in progress.iter().copied().filter(|time| *time > from) {
        longest = longest.max(time - last);
        last = time;
        if time > healed {
            return Some(longest);
        }
    }
    None
}

#[test]
fn a_promise_becomes_what_is_expected() {
    let s = Duration::from_secs;
    for (outcome, lasts, want) in [
        (Outcome::Lives, 5000, Expected::Lives),
        (Outcome::EndsWithin(s(10)), 1, Expected::Ends { after: s(0), within: s(10) }),
        (Outcome::WaitsForOutlive, 19, Expected::Lives),
        (Outcome::WaitsForOutlive, 20, Expected::Ends { after: s(20), within: s(30) }),
    ] {
        assert_eq!(expected(outcome, s(lasts), s(20)), want, "{outcome:?} for {lasts} s");
    }
}

#[test]
fn what_a_job_did_is_judged() {
    let s = Duration::from_secs;
    let ended = |took, status, printed: &str| {
        let printed = printed.to_owned();
        Seen::Ended { took: s(took), status, printed }
    };
    let lived = || Seen::Lived { pause: s(1) };
    let ends = Expected::Ends { after: s(5), within: s(15) };
    let reasons: &[&[&str]] = &[&["lost node a", "lost node b"], &["no sign of life"]];
    for (expected, seen, wrong) in [
        (Expected::Lives, lived(), None),
        (Expected::Lives, ended(3, 1, ""), Some("should live")),
        (ends, lived(), Some("went on")),
        (ends, ended(6, 1, "lost node b: no sign of life"), None),
        (ends, ended(4, 1, "lost node b: no sign of life"), Some("should wait")),
        (ends, ended(16, 1, "lost node b: no sign of life"), Some("took")),
        (ends, ended(6, 0, "lost node b: no sign of life"), Some("status 0")),
        (ends, ended(6, 124, "lost node b: no sign of life"), Some("status 124")),
        (ends, ended(6, 1, "lost node b"), Some("no sign of life")),
        (ends, ended(6, 1, "no sign of life"), Some("lost node a")),
    ] {
        let found = fault_of(expected, &seen, reasons);
        match (&found, wrong) {
            (None, None) => {}
            (Some(found), Some(wrong)) => assert!(found.contains(wrong), "{seen:?}: {found}"),
            _ => panic!("{seen:?}: {found:?}, not {wrong:?}"),
        }
    }
}

#[test]
fn pauses_are_found_in_the_progress() {
    for (progress, from, healed, want) in [
        (&[][..], 1.0, 2.0, None),
        (&[0.5, 1.5, 2.0][..], 1.0, 2.0, None),
        (&[0.5, 1.5, 2.5, 9.0][..], 1.0, 2.0, Some(1.0)),
        (&[0.5, 4.0, 4.5, 9.0][..], 1.0, 2.0, Some(3.0)),
        (&[1.5, 4.5, 5.0, 5.5, 99.0][..], 1.0, 5.0, Some(3.0)),
    ] {
        assert_eq!(longest_pause(progress, from, healed), want, "{progress:?}, {from}, {healed}");
    }
}
