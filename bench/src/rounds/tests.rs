use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;

use super::case::{Next, Tally};
use super::known::EarlierRounds;
use super::part::{Outcome, Part, Way};
use super::*;
use crate::report::Comparison;
use crate::verdict::{Bar, Verdict};

#[test]
fn what_becomes_of_a_case() {
    let tally =
        |counted, void, failed| Tally { counted, void, failed, last_failure: Some("no route".into()) };
    // Five rounds at least, 30 at most in a run.
    for (name, earlier, tally, undecided, want) in [
        ("none yet", 0, tally(0, 0, 0), true, Next::Round),
        ("too few to decide", 0, tally(4, 0, 0), false, Next::Round),
        ("decided", 0, tally(5, 0, 0), false, Next::Decided),
        ("decided though rounds failed", 0, tally(5, 20, 20), false, Next::Decided),
        ("decided by two runs", 3, tally(2, 0, 0), false, Next::Decided),
        ("decided before", 5, tally(0, 0, 0), false, Next::Decided),
        ("not decided", 0, tally(29, 0, 0), true, Next::Round),
        ("not decided by a run", 0, tally(30, 0, 0), true, Next::Stop("not decided after 30 rounds".into())),
        ("not decided by an earlier one", 30, tally(0, 0, 0), true, Next::Round),
        ("nor by both", 30, tally(30, 0, 0), true, Next::Stop("not decided after 60 rounds".into())),
        ("many void", 0, tally(2, 100, 0), true, Next::Round),
        ("some failed", 0, tally(0, 0, 2), true, Next::Round),
        ("too many failed", 0, tally(1, 0, 3), true, Next::Stop("no route".into())),
        ("too many failed in this run", 9, tally(1, 0, 3), true, Next::Stop("no route".into())),
        ("many failed, more count", 0, tally(4, 0, 3), true, Next::Round),
    ] {
        assert_eq!(tally.next(earlier, 5, 30, || undecided), want, "{name}");
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

const QUIET: Shares = Shares { others: f64::INFINITY, busy: f64::INFINITY };

/// A run of a benchmark that has these sources.
fn run_of(directory: &std::path::Path, sources: &str, only: &[&str]) -> Run {
    let options = RoundOptions {
        rounds: 8,
        budget: Duration::from_secs(600).into(),
        share: 1,
        began: None,
        slow: Slow::NONE,
        slowest: None,
        labs: 1,
        plan: false,
        shares: QUIET,
        only: only.iter().map(|text| text.parse().unwrap()).collect(),
        anew: false,
        results: directory.to_owned(),
    };
    let report = Report {
        schema: SCHEMA,
        name: "test".into(),
        complete: false,
        sources: Some(Sources {
            commit: sources.into(),
            objects: [("x".into(), sources.into())].into(),
            ..Sources::default()
        }),
        rows: Vec::new(),
        conditions: Conditions::here(&[]),
    };
    Run::of(&options, report).unwrap()
}

fn run(directory: &std::path::Path) -> Run {
    run_of(directory, "one", &[])
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
    let rows = run.rows();
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
    let written: Report = crate::files::read_json(&directory.path().join("test.json")).unwrap();
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
    let reasons: Vec<_> = run.rows().iter().map(|row| (row.verdict, row.reason.as_deref())).collect();
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

/// An experiment that gives the same figures again and again, and counts how many of it measure.
struct Steady<'a>(&'a AtomicUsize);

impl Experiment for Steady<'_> {
    type Case = usize;

    fn measure(&mut self, _case: &usize, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        Ok(vec![[0.5, 1.0]])
    }

    fn finish(self) -> anyhow::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn factor(factor: u32) -> Slow {
    Slow::try_from(factor).unwrap()
}

#[test]
fn grids_measure_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.options.labs = 3;
    let ended = AtomicUsize::new(0);
    let (slow, slower) = (factor(10), factor(40));
    let cases = (0..8).map(|index| case(index).slowed(if index < 6 { slow } else { slower })).collect();
    run.part_in_slow_motion(1, cases, |_| Ok(Steady(&ended))).unwrap();
    // Three for the first factor, and not more than cases for the other.
    assert_eq!(ended.into_inner(), 5);
    let found: Vec<_> = run.rows().iter().map(|row| (row.verdict, row.runs, row.comparison.slow)).collect();
    let of = |slow| (Some(Verdict::Yes), 5, slow);
    assert_eq!(found, [vec![of(slow); 6], vec![of(slower); 2]].concat());
    assert!(run.rows().iter().all(|row| row.seconds.is_some()));

    let mut run = run_of(directory.path(), "two", &[]);
    let none = |_| -> anyhow::Result<Steady<'_>> { bail!("no lab") };
    run.part_in_slow_motion(1, vec![case(9).slowed(slow)], none).unwrap();
    assert_eq!(run.rows()[0].reason.as_deref(), Some("cannot bring it up: no lab"));
}

#[test]
fn a_run_in_which_nothing_is_measured_keeps_earlier_rows() {
    let directory = tempfile::tempdir().unwrap();
    let slow = factor(10);
    let ended = AtomicUsize::new(0);
    let cases = || (0..2).map(|index| case(index).slowed(slow)).collect();
    let mut run = run_of(directory.path(), "kept", &[]);
    run.part_in_slow_motion(1, cases(), |_| Ok(Steady(&ended))).unwrap();
    run.finish().unwrap();
    let rows = || -> Report { read_json(&directory.path().join("test.json")).unwrap() };
    let before = rows().rows;
    assert_eq!(before.len(), 2);
    for (name, make) in [("all are decided", true), ("no lab", false)] {
        let mut run = run_of(directory.path(), "kept", &[]);
        let make = |_| if make { Ok(Steady(&ended)) } else { bail!("no lab") };
        run.part_in_slow_motion(1, cases(), make).unwrap();
        run.finish().unwrap();
        assert_eq!(rows().rows, before, "{name}");
    }
}

/// What comes of the measurements of a part, which a case takes one after the other.
#[derive(Clone, Copy)]
enum Came {
    Counted,
    /// Void, and this factor would do.
    TooBusy(u32),
    /// Void for another reason.
    Void,
}

#[test]
fn a_busy_machine_makes_slow_motion_slower() {
    use Came::{Counted, TooBusy, Void};
    let busy = |times| vec![TooBusy(16); times];
    // How many cases, what comes, whether the part ends, and of each case its slow motion, the least that
    // is known to do, and whether it ends for this run.
    for (name, cases, came, ends, want) in [
        ("two void", 2, busy(2), None, vec![(10, None, false); 2]),
        ("one counts", 3, [busy(2), vec![Counted], busy(2)].concat(), None, vec![(10, None, false); 3]),
        ("one void otherwise", 4, [busy(2), vec![Void]].concat(), None, vec![(10, None, false); 4]),
        // Each was void once: that stays for this run.
        ("void in a row, no rounds", 3, busy(3), Some(16), vec![(16, None, false); 3]),
        ("some not tried", 5, busy(3), Some(16), vec![(16, None, false); 5]),
        (
            "a busy minute after rounds",
            3,
            [vec![Counted; 3], busy(6)].concat(),
            None,
            vec![(10, None, false); 3],
        ),
        (
            "rounds stay, a case without goes on",
            2,
            vec![Counted, TooBusy(16), TooBusy(16), TooBusy(18)],
            Some(18),
            vec![(10, None, false), (18, None, false)],
        ),
        ("a case itself, no rounds", 1, busy(3), None, vec![(16, Some(16), false)]),
        ("a case itself", 1, [vec![Counted], busy(3)].concat(), None, vec![(10, Some(16), true)]),
        (
            "rounds between",
            1,
            [vec![Counted], busy(2), vec![Counted], busy(2)].concat(),
            None,
            vec![(10, None, false)],
        ),
        (
            "all cases themselves",
            2,
            [vec![Counted; 2], busy(6)].concat(),
            None,
            vec![(10, Some(16), true); 2],
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut run = run(directory.path());
        run.options.slow = factor(10);
        let cases = (0..cases).map(|index| case(index).slowed(factor(10))).collect();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let way = Way { slow: factor(10), alone: false };
        let mut part = Part::new(&mut run, cases, deadline, Some(way));
        for one in came {
            assert_eq!(part.slower(), None, "{name}");
            let index = part.next().unwrap().index;
            part.took(
                index,
                match one {
                    Counted => figures(),
                    TooBusy(enough) => Outcome::Void("busy".into(), Some(enough)),
                    Void => Outcome::Void("not as described".into(), None),
                },
            );
        }
        assert_eq!(part.slower().map(Slow::factor), ends, "{name}");
        let of = |case: &Case<usize>| {
            let least = case.rows().next().and_then(|row| row.least_slow);
            (case.slow().factor(), least.map(Slow::factor), case.reason.is_some())
        };
        assert_eq!(part.cases().iter().map(of).collect::<Vec<_>>(), want, "{name}");
    }
}

fn figures() -> Outcome {
    Outcome::Figures { figures: vec![[0.5, 1.0]], how: Vec::new(), took: Duration::from_secs(1) }
}

#[test]
fn what_is_being_measured_stays_in_its_slow_motion() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.options.slow = factor(10);
    let cases = (0..5).map(|index| case(index).slowed(factor(10))).collect();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let way = Way { slow: factor(10), alone: false };
    let mut part = Part::new(&mut run, cases, deadline, Some(way));
    let [counts, void] = [(); 2].map(|()| part.next().unwrap().index);
    for _ in 0..3 {
        let index = part.next().unwrap().index;
        part.took(index, Outcome::Void("busy".into(), Some(16)));
    }
    assert!(part.next().is_none());
    part.took(counts, figures());
    // It goes on beside the others.
    part.took(void, Outcome::Void("busy".into(), Some(13)));
    let found: Vec<_> = part.cases().iter().map(|case| (case.slow().factor(), case.counted())).collect();
    assert_eq!(found, [(10, 1), (16, 0), (16, 0), (16, 0), (16, 0)]);
}

#[test]
fn a_round_that_counts_clears_what_was_too_fast() {
    for (slow, least, want) in
        [(10, None, None), (10, Some(16), None), (16, Some(16), Some(16)), (20, Some(16), Some(16))]
    {
        let earlier = EarlierRounds { least_slow: least.map(factor), ..EarlierRounds::default() };
        let mut case = case(0).slowed(factor(slow)).going_on(earlier, false);
        case.take(vec![[0.5, 1.0]], Vec::new()).unwrap();
        let found = case.rows().next().and_then(|row| row.least_slow);
        assert_eq!(found.map(Slow::factor), want, "{slow} {least:?}");
    }
}

#[test]
fn a_round_that_was_measured_in_another_way_does_not_count() {
    let how = |name: &str| vec![Some(name.to_owned())];
    let earlier =
        EarlierRounds { rounds: vec![vec![[0.5, 1.0]]], how: how("relayed"), ..EarlierRounds::default() };
    let mut case = case(0).going_on(earlier, false);
    assert!(case.take(vec![[0.5, 1.0]], how("native")).is_err());
    case.take(vec![[0.6, 1.0]], how("relayed")).unwrap();
    let row = case.rows().next().unwrap();
    assert_eq!((row.runs, row.how.as_deref()), (2, Some("relayed")));
}

/// Measures case 0, asked for in this slow motion. Returns its rounds and their slow motion.
fn measured_in(directory: &std::path::Path, slow: u32, rounds: usize) -> (usize, u32) {
    let mut run = run(directory);
    run.options.rounds = rounds;
    let ended = AtomicUsize::new(0);
    run.part_in_slow_motion(1, vec![case(0).slowed(factor(slow))], |_| Ok(Steady(&ended))).unwrap();
    run.finish().unwrap();
    let report: Report = read_json(&directory.join("test.json")).unwrap();
    (report.rows[0].runs, report.rows[0].comparison.slow.factor())
}

#[test]
fn rounds_go_on_in_their_slow_motion() {
    let directory = tempfile::tempdir().unwrap();
    let measure = |slow, rounds| measured_in(directory.path(), slow, rounds);
    assert_eq!(measure(16, 2), (2, 16));
    // Rounds of another factor aren't added: those at 16 go on.
    assert_eq!(measure(10, 1), (3, 16));
    assert_eq!(measure(20, 1), (4, 16));
    // What may be decided stays, also where anew would be quicker.
    assert_eq!(measure(16, 1), (5, 16));
    assert_eq!(measure(2, 1), (5, 16));
    // What was decided without slow motion begins anew in it.
    let directory = tempfile::tempdir().unwrap();
    let measure = |slow, rounds| measured_in(directory.path(), slow, rounds);
    assert_eq!(measure(1, 8), (5, 1));
    assert_eq!(measure(10, 2), (2, 10));
    // Where anew is much quicker, it begins anew.
    let directory = tempfile::tempdir().unwrap();
    let measure = |slow, rounds| measured_in(directory.path(), slow, rounds);
    assert_eq!(measure(100, 2), (2, 100));
    assert_eq!(measure(10, 1), (1, 10));
}

#[test]
fn what_was_void_again_and_again_is_not_begun_with() {
    let directory = tempfile::tempdir().unwrap();
    let measure = |slow, rounds| measured_in(directory.path(), slow, rounds);
    assert_eq!(measure(10, 2), (2, 10));
    let mut busy = run(directory.path());
    let cases = vec![case(0).slowed(factor(10)), case(1).slowed(factor(10))];
    let mut cases = busy.wanted(cases);
    cases.iter_mut().for_each(|case| case.slow_down(factor(25)));
    busy.write(&cases).unwrap();
    let found = written(directory.path());
    assert_eq!(found.iter().map(|(_, runs, ..)| *runs).collect::<Vec<_>>(), [2, 0]);
    // The rounds that it has are of a factor that is too fast.
    assert_eq!(measure(10, 1), (1, 25));
    // That stays known, though anew would be quicker.
    assert_eq!(measure(10, 1), (2, 25));
    // What has no rounds begins slower as well.
    let earlier = run(directory.path()).known.earlier(&case(1).comparisons());
    assert_eq!(case(1).slowed(factor(10)).in_motion(earlier).slow(), factor(25));
}

#[test]
fn what_polls_has_a_grid_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.options.labs = 3;
    let slow = factor(10);
    let (ended, at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let cases = (0..6).map(|index| case(index).slowed(slow));
    let cases = cases.map(|case| if *case.case < 3 { case.alone() } else { case }).collect();
    run.part_in_slow_motion(1, cases, |_| Ok(Alone { at_once: &at_once, most: &most, ended: &ended }))
        .unwrap();
    // Three side by side, and then one, which measured three cases alone.
    assert_eq!((ended.into_inner(), most.into_inner()), (4, 1));
    assert!(run.rows().iter().all(|row| row.runs == 5));
}

/// An experiment that notes how many measure the first three cases at once with others.
struct Alone<'a> {
    at_once: &'a AtomicUsize,
    most: &'a AtomicUsize,
    ended: &'a AtomicUsize,
}

impl Experiment for Alone<'_> {
    type Case = usize;

    fn measure(&mut self, case: &usize, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        std::thread::sleep(Duration::from_millis(2));
        if *case < 3 {
            self.most.fetch_max(now, Ordering::SeqCst);
        }
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![[0.5, 1.0]])
    }

    fn finish(self) -> anyhow::Result<()> {
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_plan_measures_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.options.plan = true;
    run.part::<Script>(1, vec![case(0)], || bail!("measured")).unwrap();
    run.part_in_slow_motion::<Steady>(1, vec![case(1)], |_| bail!("measured")).unwrap();
    let plan = run.plan.to_string();
    assert!(plan.starts_with("2 rows, 2 with a bar, 0 of them decided; 2 cases open, 10 rounds"), "{plan}");
    assert!(run.finish().unwrap());
    assert!(!directory.path().join("test.json").exists());
}

#[test]
fn what_a_benchmark_leaves_is_for_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (share, began, now, want) in [
        (1, None, 7000, minutes(10)),
        (2, None, 7000, minutes(5)),
        (2, Some(7000), 7000, minutes(5)),
        // The first took a minute.
        (1, Some(7000), 7060, minutes(9)),
        (2, Some(7000), 9000, Duration::ZERO),
        (1, Some(7000), 6000, minutes(10)),
    ] {
        let options = run(directory.path()).options;
        let options = RoundOptions { budget: minutes(10).into(), share, began, ..options };
        assert_eq!(options.time(now), want, "{share} {began:?} {now}");
    }
}

#[test]
fn the_budget_ends_a_part() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    run.time = Duration::ZERO;
    run.part(1, vec![case(0)], || Ok(Script(vec![Vec::new()]))).unwrap();
    assert_eq!(run.rows()[0].reason.as_deref(), Some("the budget ended after 0 rounds"));
}

#[test]
fn a_busy_machine_voids_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(directory.path());
    // Any use at all is above it, as long as the budget lasts.
    run.watch = Watch::new(Shares { others: -1.0, busy: -1.0 });
    run.time = Duration::from_millis(500);
    run.part(1, vec![case(0)], || Ok(Script(vec![Vec::new()]))).unwrap();
    let row = &run.rows()[0];
    assert_eq!((row.verdict, row.void), (Some(Verdict::NotMeasured), 1));
    assert_eq!(row.reason.as_deref(), Some("the budget ended after 0 rounds"));
}

/// The rounds of each case, as they stand in the results.
fn written(directory: &std::path::Path) -> Vec<(String, usize, Option<Verdict>, bool)> {
    let report: Report = read_json(&directory.join("test.json")).unwrap();
    let row = |row: Row| (row.comparison.what, row.runs, row.verdict, row.older.is_some());
    report.rows.into_iter().map(row).collect()
}

fn steady(ours: f64) -> Vec<anyhow::Result<f64>> {
    (0..20).map(|_| Ok(ours)).collect()
}

#[test]
fn rounds_add_up_over_runs() {
    let directory = tempfile::tempdir().unwrap();
    let measure = |sources: &str, only: &[&str], budget: Duration, most: usize| {
        let mut run = run_of(directory.path(), sources, only);
        run.time = budget;
        run.options.rounds = most;
        let figures = || Ok(Script(vec![steady(0.5), steady(1.5)]));
        run.part(1, vec![case(0), case(1)], figures).unwrap();
        run.finish().unwrap();
        written(directory.path())
    };
    let long = Duration::from_secs(60);
    let rows = |rounds: [usize; 2], verdicts: [Verdict; 2], older: [bool; 2]| {
        [0, 1].map(|at| (format!("case {at}"), rounds[at], Some(verdicts[at]), older[at])).to_vec()
    };
    let open = [Verdict::Undecided; 2];
    assert_eq!(measure("one", &[], long, 3), rows([3, 3], open, [false; 2]));
    // What a run leaves out stays.
    assert_eq!(measure("one", &["case 1"], long, 1), rows([3, 4], open, [false; 2]));
    let decided = [Verdict::Yes, Verdict::No];
    assert_eq!(measure("one", &["undecided"], long, 30), rows([5, 5], decided, [false; 2]));
    assert_eq!(measure("one", &[], long, 30), rows([5, 5], decided, [false; 2]));
    assert_eq!(measure("one", &["missed"], long, 2), rows([5, 7], decided, [false; 2]));
    // A run without time takes nothing away, other sources or not.
    assert_eq!(measure("two", &[], Duration::ZERO, 30), rows([5, 7], decided, [true; 2]));
    let mixed = [Verdict::Yes, Verdict::Undecided];
    assert_eq!(measure("two", &["case 1"], long, 1), rows([5, 1], mixed, [true, false]));
    assert_eq!(measure("two", &["undecided"], long, 30), rows([5, 5], decided, [false; 2]));
}

#[test]
fn all_must_be_measured_for_complete_results() {
    let one = Comparison::new("a", "s", "one");
    let row = Row::new(one.clone(), &[[1.0, 1.0]]);
    let older = Row { older: Some("c0ffee".into()), ..row.clone() };
    for (name, rows, want) in [
        ("all", vec![row.clone()], true),
        ("none", vec![], false),
        ("not measured", vec![Row::new(one.clone(), &[])], false),
        ("older", vec![older.clone()], false),
        (
            "another as well",
            vec![row.clone(), Row::new(Comparison::new("b", "s", "one"), &[[1.0, 1.0]])],
            true,
        ),
        (
            "another that is left out and older",
            vec![row.clone(), Row { comparison: Comparison::new("b", "s", "one"), ..older.clone() }],
            true,
        ),
    ] {
        assert_eq!(is_complete(std::slice::from_ref(&one), &rows), want, "{name}");
    }
}

#[test]
fn what_is_left_out_by_options_is_not_complete() {
    let directory = tempfile::tempdir().unwrap();
    for (taken, want) in [(&["a", "b"][..], true), (&["b"], false), (&["b", "a", "c"], true)] {
        let mut run = run(directory.path());
        run.leaves_out(&["a", "b"], taken);
        run.part(1, vec![case(0)], || Ok(Script(vec![steady(0.5)]))).unwrap();
        run.finish().unwrap();
        let written: Report = read_json(&directory.path().join("test.json")).unwrap();
        assert_eq!(written.complete, want, "{taken:?}");
    }
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

#[test]
fn reasons_do_not_say_where_the_sources_lie() {
    let mut case = case(0);
    let program = crate::grid::root().join("target/release/isthmus");
    case.fail(&anyhow::anyhow!("{} run: exit status: 3", program.display()));
    let reason = case.rows().next().and_then(|row| row.reason);
    assert_eq!(reason.as_deref(), Some("target/release/isthmus run: exit status: 3"));
}
