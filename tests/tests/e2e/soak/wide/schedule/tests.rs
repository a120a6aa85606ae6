use super::*;
use crate::soak::wide::hits::Process;

const SEEDS: u64 = 200;

fn rounds(seed: u64) -> Vec<Round> {
    let mut rounds = Rounds::new(seed, longest(Duration::ZERO));
    (0..ROUNDS).map(|_| rounds.next()).collect()
}

/// Whether any of the rounds has a hit for which `is_such` is true.
fn has(rounds: &[Round], is_such: impl Fn(&Round, &Timed) -> bool) -> bool {
    rounds.iter().any(|round| round.hits.iter().any(|timed| is_such(round, timed)))
}

#[test]
fn a_seed_repeats_its_rounds() {
    assert_eq!(rounds(7), rounds(7));
    assert_ne!(rounds(7), rounds(8));
}

#[test]
fn whatever_the_seed_the_first_rounds_have_all_that_users_have_met() {
    let killed = |role: &'static str| {
        move |_: &Round, timed: &Timed| {
            let Hit::Grid(What::Killed(services)) = &timed.hit else { return false };
            services.iter().any(|(_, of)| *of == role)
        }
    };
    for seed in 0..SEEDS {
        let rounds = rounds(seed);
        let [first, others @ ..] = &rounds[..] else { panic!("no rounds") };
        assert!(first.hits.iter().all(|timed| timed.is_before), "{seed}: {first:?}");
        assert!(matches!(first.hits[..], [Timed { hit: Hit::Grid(What::Swallows(..)), .. }]), "{seed}");
        assert!(others.iter().flat_map(|round| &round.hits).all(|timed| !timed.is_before), "{seed}");
        for role in ["broker", "gateway", "relay"] {
            assert!(has(others, killed(role)), "{seed}: {role}");
        }
        let gives_up = Duration::from_secs(20);
        let is_apart = |_: &Round, timed: &Timed| {
            matches!(timed.hit, Hit::Grid(What::Apart(_))) && timed.lasts >= gives_up
        };
        let swallows = |_: &Round, timed: &Timed| matches!(timed.hit, Hit::Grid(What::Swallows(..)));
        let is_lead = |round: &Round, timed: &Timed| {
            killed_agent(&timed.hit) == Some(LEAD) && site(round.spec.head()) != site(LEAD)
        };
        let is_own_site = |round: &Round, timed: &Timed| {
            timed.hit == Hit::Grid(What::Cut(site(round.spec.head()))) && timed.lasts > round.spec.outlive
        };
        let is_short_cut = |round: &Round, timed: &Timed| {
            matches!(timed.hit, Hit::Grid(What::Cut(_))) && timed.lasts < round.spec.outlive
        };
        let is_process =
            |process, signal| move |_: &Round, timed: &Timed| timed.hit == Hit::Process(process, signal);
        let is_back = |round: &Round, timed: &Timed| {
            let end = timed.begins + timed.lasts;
            let soon = end..=end + Duration::from_secs(1);
            killed_agent(&timed.hit).is_some()
                && timed.lasts < Duration::from_secs(1)
                && round.starts.iter().any(|start| soon.contains(&start.at))
        };
        assert!(has(others, is_apart), "{seed}");
        assert!(has(others, swallows), "{seed}");
        assert!(has(others, is_lead), "{seed}");
        assert!(has(others, is_own_site), "{seed}");
        assert!(has(others, is_short_cut), "{seed}");
        assert!(has(others, is_process(Process::Launch, "KILL")), "{seed}");
        assert!(has(others, is_process(Process::Launcher, "TERM")), "{seed}");
        assert!(has(others, is_back), "{seed}");
    }
}

#[test]
fn nothing_breaks_twice_at_once_and_a_job_that_must_end_ends_by_one_thing() {
    for round in (0..SEEDS).flat_map(rounds) {
        let grid = round.hits.iter().filter_map(|timed| match &timed.hit {
            Hit::Grid(what) => Some(places(what)),
            Hit::Process(..) => None,
        });
        let mut all: Vec<_> = grid.flatten().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{round:?}");
        assert!(!round.hits.is_empty() && round.starts.len() == 2, "{round:?}");
        let ends = |timed: &&Timed| {
            let lead = killed_agent(&timed.hit).is_some_and(|node| round.spec.nodes.contains(&node));
            let is_cut = matches!(timed.hit, Hit::Grid(What::Cut(_))) && timed.lasts >= round.spec.outlive;
            lead || is_cut || matches!(timed.hit, Hit::Process(..))
        };
        assert!(round.hits.iter().filter(ends).count() <= 1, "{round:?}");
    }
}

#[test]
fn jobs_are_such_as_the_grid_has_room_for() {
    for round in (0..SEEDS).flat_map(rounds) {
        assert_eq!(round.spec.nodes.len(), 4, "{round:?}");
        for spec in round.starts.iter().map(|start| &start.spec).chain([&round.spec]) {
            let mut nodes = spec.nodes.clone();
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!((nodes.len(), spec.ranks), (spec.nodes.len(), spec.nodes.len()), "{round:?}");
            assert!(nodes.iter().any(|node| site(node) != site(spec.head())), "{round:?}");
        }
    }
}

#[test]
fn what_ends_has_begun_and_a_round_is_short() {
    for round in (0..SEEDS).flat_map(rounds) {
        let acts = round.acts();
        assert!(acts.is_sorted_by_key(|(at, _)| *at), "{acts:?}");
        for (at, timed) in round.hits.iter().enumerate() {
            let place = |act| acts.iter().position(|(_, other)| *other == act);
            let (begin, end) = (place(Act::Begin(at)), place(Act::End(at)));
            assert_eq!(begin.is_none(), timed.is_before, "{acts:?}");
            assert!(end.is_some() && begin < end, "{acts:?}");
        }
        let last = acts.last().map(|(at, _)| *at).unwrap_or_default();
        assert!(last <= Duration::from_secs(34), "{acts:?}");
    }
}

#[test]
fn a_longer_soak_has_longer_faults() {
    for (soak, want) in [(0, 25), (600, 30), (7200, 300)] {
        assert_eq!(longest(Duration::from_secs(soak)), Duration::from_secs(want), "{soak} s");
    }
}
