use std::time::Duration;

const VOID: &str = "10 rounds were void: others used the machine, or the emulated link was late";

use anyhow::bail;

use super::case::{MOST_VOID, Next, Tally};
use super::*;
use crate::report::Comparison;
use crate::verdict::{Bar, Verdict};

#[test]
fn what_becomes_of_a_case() {
    let tally =
        |counted, void, failed| Tally { counted, void, failed, last_failure: Some("no route".into()) };
    // Five rounds at least, 30 at most.
    for (name, tally, undecided, want) in [
        ("none yet", tally(0, 0, 0), true, Next::Round),
        ("too few to decide", tally(4, 0, 0), false, Next::Round),
        ("decided", tally(5, 0, 0), false, Next::Decided),
        ("decided though rounds failed", tally(5, 20, 20), false, Next::Decided),
        ("not decided", tally(29, 0, 0), true, Next::Round),
        ("never decided", tally(30, 0, 0), true, Next::Stop("not decided after 30 rounds".into())),
        ("some void", tally(0, 9, 0), true, Next::Round),
        ("too many void", tally(2, 10, 0), true, Next::Stop(VOID.into())),
        ("many void, more count", tally(12, 10, 0), true, Next::Round),
        ("some failed", tally(0, 0, 2), true, Next::Round),
        ("too many failed", tally(1, 0, 3), true, Next::Stop("no route".into())),
        ("many failed, more count", tally(4, 0, 3), true, Next::Round),
    ] {
        assert_eq!(tally.next(5, 30, || undecided), want, "{name}");
    }
}

/// An experiment whose cases give figures from a list, one after the other.
struct Script(Vec<Vec<anyhow::Result<f64>>>);

impl Experiment for Script {
    type Case = usize;

    fn measure(&mut self, case: &usize, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        match self.0[*case].get_mut(round) {
            Some(value) => Ok(vec![[std::mem::replace(value, Ok(0.0))?, 1.0]]),
            None => bail!("no more figures"),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        if self.0.is_empty() { bail!("not joined as was to be measured") } else { Ok(()) }
    }
}

fn run(directory: &std::path::Path) -> Run {
    let options = RoundOptions {
        rounds: 8,
        budget: Duration::from_secs(600).into(),
        others: f64::INFINITY,
        only: None,
        results: directory.to_owned(),
    };
    let conditions = Conditions::here(&[]);
    let report = Report {
        schema: SCHEMA,
        name: "test".into(),
        complete: false,
        sources: None,
        rows: Vec::new(),
        conditions,
    };
    Run { limit: Limit::new(options.others), options, started: Instant::now(), report }
}

fn case(case: usize) -> Case<usize> {
    Case::new(case, vec![Comparison::new(format!("case {case}"), "s", "one").bar(Bar::AtMost(1.0))])
}

#[test]
fn a_failing_case_does_not_end_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    let good = || (0..8).map(|_| Ok(0.5)).collect::<Vec<_>>();
    let straddling = (0..8).map(|round| Ok(0.5 + f64::from(round % 2))).collect();
    let mut once = good();
    once[1] = Err(anyhow::anyhow!("connected from the other side"));
    let figures = vec![good(), Vec::new(), straddling, once];
    let mut script = Some(Script(figures));
    run.part(1, (0..4).map(case).collect(), || script.take().context("made twice")).unwrap();
    let rows = &run.report.rows;
    let found: Vec<_> =
        rows.iter().map(|row| (row.verdict, row.runs, row.failed, row.reason.as_deref())).collect();
    assert_eq!(
        found,
        [
            (Some(Verdict::Yes), 5, 0, None),
            (Some(Verdict::NotMeasured), 0, 3, Some("no more figures")),
            (Some(Verdict::Undecided), 8, 0, Some("not decided after 8 rounds")),
            (Some(Verdict::Yes), 5, 1, Some("connected from the other side")),
        ]
    );
    let written: Report = crate::report::read_json(&directory.path().join("test.json")).unwrap();
    assert_eq!((written.rows.len(), written.complete), (4, false));
    assert!(!run.finish().unwrap());
}

#[test]
fn what_cannot_be_brought_up_has_rows() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.part::<Script>(1, vec![case(0)], || bail!("no lab")).unwrap();
    // What turns out to be another thing than what was to be measured has none that count.
    let spoiled = || Ok(Spoiled(Script(vec![(0..8).map(|_| Ok(0.5)).collect()])));
    run.part(1, vec![case(0)], spoiled).unwrap();
    let reasons: Vec<_> = run.report.rows.iter().map(|row| (row.verdict, row.reason.as_deref())).collect();
    assert_eq!(
        reasons,
        [
            (Some(Verdict::NotMeasured), Some("cannot bring it up: no lab")),
            (Some(Verdict::NotMeasured), Some("not joined as was to be measured")),
        ]
    );
}

struct Spoiled(Script);

impl Experiment for Spoiled {
    type Case = usize;

    fn measure(&mut self, case: &usize, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        self.0.measure(case, round)
    }

    fn finish(self) -> anyhow::Result<()> {
        Script(Vec::new()).finish()
    }
}

#[test]
fn the_budget_ends_a_part() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.options.budget = Duration::ZERO.into();
    run.part(1, vec![case(0)], || Ok(Script(vec![Vec::new()]))).unwrap();
    assert_eq!(run.report.rows[0].reason.as_deref(), Some("the budget ended after 0 rounds"));
}

#[test]
fn a_busy_machine_voids_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    // Any use at all is above it.
    run.limit = Limit::new(-1.0);
    let mut busy = case(0);
    busy.tally.void = MOST_VOID - 1;
    run.part(1, vec![busy], || Ok(Script(vec![Vec::new()]))).unwrap();
    let row = &run.report.rows[0];
    assert_eq!((row.verdict, row.void), (Some(Verdict::NotMeasured), MOST_VOID));
    assert_eq!(row.reason.as_deref(), Some(VOID));
}

#[test]
fn sides_take_turns() {
    for (round, want) in [(0, [0, 1]), (1, [1, 0])] {
        let mut order = Vec::new();
        let found = in_turns(round, |side| {
            order.push(side);
            Ok(side)
        });
        assert_eq!((order.as_slice(), found.unwrap()), (&want[..], [0, 1]));
    }
}
