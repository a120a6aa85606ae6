//! How much of the machine may be used while something is measured. Pure.

use clap::Args;
use isthmus_lab::grid::Slow;

/// Shares of all cores that may be used during a measurement, from 0 to 1.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Shares {
    /// Share of all cores that other processes may use; more of it voids a measurement
    /// that isn't in slow motion.
    #[arg(long, default_value_t = 0.1)]
    pub others: f64,
    /// Share of all cores that all processes together may use; more of it voids a
    /// measurement in slow motion.
    #[arg(long, default_value_t = 0.33)]
    pub busy: f64,
}

/// What was used during a measurement, as shares of all cores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    /// What other processes used, and what the hypervisor took.
    pub others: f64,
    /// What all used, without programs that poll.
    pub all: f64,
}

/// Why a measurement doesn't count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objection {
    pub why: String,
    /// The factor of slow motion at which it would. `None` if none would.
    pub enough: Option<u32>,
}

impl Shares {
    /// Why a measurement during which so much was used doesn't count. `None` if it does.
    pub(crate) fn objection(self, slow: Slow, used: Used) -> Option<Objection> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        if slow.is_none() {
            let others = percent(used.others);
            let why = || format!("others use {others} of the machine");
            return (used.others > self.others).then(|| Objection { why: why(), enough: None });
        }
        (used.all > self.busy).then(|| {
            let (all, others) = (percent(used.all), percent(used.others));
            let enough = self.enough(slow, used);
            let remedy = match enough {
                Some(factor) => format!("--slow {factor} would do"),
                None => "no factor would do".to_owned(),
            };
            let why = format!("the machine is busy for {all}, with others for {others}: {remedy}");
            Objection { why, enough }
        })
    }

    /// The least factor at which the machine would not be too busy. What the benchmark uses shrinks
    /// with the factor. `None` if others alone use too much.
    fn enough(self, slow: Slow, used: Used) -> Option<u32> {
        let (own, room) = ((used.all - used.others).max(0.0), self.busy - used.others);
        (room > 0.0).then(|| (own * f64::from(slow.factor()) / room).ceil() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_voids_a_measurement() {
        let shares = Shares { others: 0.1, busy: 0.33 };
        let slow = Slow::try_from(10).unwrap();
        for (slow, others, all, want) in [
            (Slow::NONE, 0.1, 0.9, None),
            (Slow::NONE, 0.2, 0.2, Some("others use 20 % of the machine")),
            (slow, 0.3, 0.33, None),
            (slow, 0.03, 0.5, Some("busy for 50 %, with others for 3 %: --slow 16 would do")),
            (slow, 0.0, 0.66, Some("--slow 20 would do")),
            (slow, 0.4, 0.5, Some("no factor would do")),
        ] {
            let found = shares.objection(slow, Used { others, all });
            match want {
                None => assert_eq!(found, None),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|found| found.why.contains(part)), "{found:?}");
                }
            }
        }
    }
}
