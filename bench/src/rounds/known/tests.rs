use std::collections::BTreeMap;

use isthmus_lab::grid::Slow;
use proptest::prelude::*;

use super::*;
use crate::report::SCHEMA;
use crate::verdict::Bar;

fn comparison(what: &str) -> Comparison {
    Comparison::new(what, "s", "one").bar(Bar::AtMost(1.0))
}

fn row(what: &str, rounds: usize) -> Row {
    Row { void: 2, failed: 1, ..Row::new(comparison(what), &vec![[0.5, 1.0]; rounds]) }
}

fn sources(id: &str) -> Sources {
    let objects = BTreeMap::from([("crates/agent".to_owned(), id.to_owned())]);
    Sources { commit: format!("commit-{id}"), objects, ..Sources::default() }
}

fn report(id: &str, rows: Vec<Row>) -> Report {
    let conditions = Conditions::here(&[]);
    Report {
        schema: SCHEMA,
        name: "test".into(),
        complete: true,
        sources: Some(sources(id)),
        rows,
        conditions,
    }
}

fn known(earlier: Report, now: &str) -> Known {
    let machine = earlier.conditions.clone();
    Known::new(earlier, Some(&sources(now)), &machine)
}

#[test]
fn a_run_goes_on_from_the_same_sources_only() {
    let rows = vec![row("a", 3), row("b", 3)];
    let whats = [comparison("a"), comparison("b")];
    let same = known(report("1", rows.clone()), "1").rounds(&whats);
    assert_eq!((same.rounds, same.void, same.failed), (vec![vec![[0.5, 1.0]; 3]; 2], 2, 1));
    let slow = whats.clone().map(|what| Comparison { slow: Slow::try_from(10).unwrap(), ..what });
    let other_machine = {
        let earlier = report("1", rows.clone());
        let machine = Conditions { cores: earlier.conditions.cores + 1, ..earlier.conditions.clone() };
        Known::new(earlier, Some(&sources("1")), &machine)
    };
    for (name, known, whats) in [
        ("other sources", known(report("2", rows.clone()), "1"), whats.to_vec()),
        ("another machine", other_machine, whats.to_vec()),
        ("another slow motion", known(report("1", rows.clone()), "1"), slow.to_vec()),
        ("a row is missing", known(report("1", rows[..1].to_vec()), "1"), whats.to_vec()),
        ("a row has more", known(report("1", vec![row("a", 3), row("b", 4)]), "1"), whats.to_vec()),
        (
            "no rounds were kept",
            {
                let bare = rows.iter().map(|row| Row { rounds: Vec::new(), ..row.clone() }).collect();
                known(report("1", bare), "1")
            },
            whats.to_vec(),
        ),
    ] {
        assert_eq!(known.rounds(&whats).rounds.concat(), Vec::<Pair>::new(), "{name}");
    }
}

#[test]
fn what_is_not_measured_stays() {
    let earlier = known(report("1", vec![row("a", 5), row("b", 5), row("c", 5)]), "2");
    // This run has another row, measures one anew, and can't measure the third.
    let failed = Row { reason: Some("no route".into()), ..row("c", 0) };
    let rows = earlier.with([row("new", 3), row("b", 2), failed]);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.comparison.what.as_str(), row.runs, row.older.as_deref(), row.reason.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            ("a", 5, Some("commit-1"), None),
            ("b", 2, None, None),
            ("c", 5, Some("commit-1"), Some("not measured again: no route")),
            ("new", 3, None, None),
        ]
    );
    // A third run knows which commit each row is of.
    let third = known(report("2", rows), "3");
    let commits: Vec<_> = third.rows.iter().map(|row| row.older.as_deref()).collect();
    assert_eq!(commits, [Some("commit-1"), Some("commit-2"), Some("commit-1"), Some("commit-2")]);
}

#[test]
fn what_was_never_measured_is_no_earlier_row() {
    let earlier = known(report("1", vec![row("a", 0), row("b", 1)]), "2");
    assert!(earlier.row(&comparison("a")).is_none() && earlier.row(&comparison("b")).is_some());
}

#[test]
fn rounds_are_known_in_their_slow_motion() {
    let factor = |factor| Slow::try_from(factor).unwrap();
    let slowed = |what: &str, slow| Comparison { slow: factor(slow), ..comparison(what) };
    let of = |what, slow, rounds| {
        let row = Row::new(slowed(what, slow), &vec![[0.5, 1.0]; rounds]);
        Row { seconds: Some(20.0), least_slow: Some(factor(8)), ..row }
    };
    let rows = vec![of("a", 10, 2), of("b", 10, 2), of("c", 20, 2), of("void", 10, 0)];
    let now = |sources| known(report("1", rows.clone()), sources);
    for (name, sources, whats, want) in [
        ("all rows of a case", "1", &["a", "b"][..], Some((10, 2))),
        ("only void rounds", "1", &["void"], Some((10, 0))),
        ("of several factors", "1", &["a", "c"], None),
        ("one was never measured", "1", &["a", "new"], None),
        ("nothing", "1", &["new"], None),
        ("other sources", "2", &["a", "b"], None),
    ] {
        let asked: Vec<_> = whats.iter().map(|what| slowed(what, 5)).collect();
        let found = now(sources).earlier(&asked);
        let counted = found.map(|(slow, found)| {
            assert_eq!(found.least_slow, Some(factor(8)), "{name}");
            (slow.factor(), found.rounds[0].len())
        });
        assert_eq!(counted, want, "{name}");
    }
    // How long a round takes depends on its slow motion, and hardly on the sources.
    for (sources, what, slow, want) in
        [("1", "a", 5, Some(10.0)), ("2", "a", 20, Some(40.0)), ("1", "new", 5, None)]
    {
        assert_eq!(now(sources).seconds(&[slowed(what, slow)]), want, "{what} at {slow}");
    }
}

proptest! {
    #[test]
    fn no_row_is_lost_and_none_is_there_twice(
        before in prop::collection::btree_map("[a-f]", 1usize..9, 0..6),
        now in prop::collection::btree_map("[a-f]", 0usize..9, 0..6),
        same in any::<bool>()
    ) {
        let rows = |of: &BTreeMap<String, usize>| of.iter().map(|(what, runs)| row(what, *runs)).collect::<Vec<_>>();
        let earlier = known(report("1", rows(&before)), if same { "1" } else { "2" });
        let after = earlier.with(rows(&now));
        for (what, runs) in &before {
            let found: Vec<_> = after.iter().filter(|row| row.comparison.what == *what).collect();
            prop_assert_eq!(found.len(), 1);
            // Its figures are of this run, or those of before.
            let want = now.get(what).copied().filter(|runs| *runs > 0).unwrap_or(*runs);
            prop_assert_eq!(found[0].runs, want);
        }
        let names: std::collections::BTreeSet<_> = after.iter().map(|row| row.comparison.what.clone()).collect();
        prop_assert_eq!(names.len(), after.len());
    }
}
