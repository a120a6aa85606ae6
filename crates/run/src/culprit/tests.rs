use super::*;

fn rank(rank: u32, signal: i32, status: i32) -> Event {
    rank_at("n2.beta", rank, signal, status)
}

fn rank_at(node: &str, rank: u32, signal: i32, status: i32) -> Event {
    Event::Rank(RankEnded { node: node.to_owned(), rank, signal, status, unfinished: false })
}

fn killed(command: &str, signal: i32) -> CommandKilled {
    CommandKilled { node: "n1.beta".to_owned(), command: command.to_owned(), signal }
}

fn daemon(command: &str) -> Event {
    Event::Command(killed(command, libc::SIGKILL))
}

fn lost(node: &str, reason: &str, ago_ms: u64) -> Event {
    Event::NodeLost(NodeLost { node: node.to_owned(), reason: reason.to_owned(), ago_ms })
}

fn node(name: &str) -> Event {
    lost(name, "its agent has ended", 0)
}

fn signal(number: i32, from_terminal: bool) -> Event {
    Event::Signal(Received { number, from_terminal })
}

/// The culprit of events, each with the milliseconds since the command's start at which it is told.
/// A lost node tells for how long nothing was heard of it.
fn culprit(events: Vec<(u64, Event)>) -> Option<String> {
    let mut all = Events::default();
    let mut now = Duration::ZERO;
    for (millis, event) in events {
        now = Duration::from_millis(millis);
        let ago = event.lost().map_or(Duration::ZERO, |lost| Duration::from_millis(lost.ago_ms));
        all.add(now, ago, event);
    }
    all.culprit(now).map(|culprit| culprit.words)
}

/// A name, the events with the milliseconds at which each is told, and the culprit in words.
type Case = (&'static str, Vec<(u64, Event)>, &'static str);

fn check(cases: Vec<Case>) {
    for (name, events, want) in cases {
        assert_eq!(culprit(events).as_deref(), Some(want), "{name}");
    }
}

const RANK_KILLED: &str = "rank 3 on n2.beta was ended by SIGKILL";
const AGENT_ENDED: &str = "lost node n1.beta: its agent has ended";

#[test]
fn nobody_is_to_blame_for_nothing() {
    assert_eq!(culprit(Vec::new()), None);
}

#[test]
fn of_ranks_one_is_to_blame() {
    use libc::{SIGABRT, SIGKILL, SIGSEGV};
    let unfinished = || {
        let node = "n2.beta".to_owned();
        Event::Rank(RankEnded { node, rank: 3, unfinished: true, ..RankEnded::default() })
    };
    check(vec![
        ("a killed rank", vec![(0, rank(3, SIGKILL, 0))], RANK_KILLED),
        ("a crash", vec![(0, rank(3, SIGSEGV, 0))], "rank 3 on n2.beta was ended by SIGSEGV"),
        ("a status", vec![(0, rank(3, 0, 7))], "rank 3 on n2.beta ended with status 7"),
        ("two ranks", vec![(0, rank(3, SIGKILL, 0)), (1, rank(4, SIGKILL, 0))], RANK_KILLED),
        ("the others abort first", vec![(0, rank(1, SIGABRT, 0)), (9, rank(3, SIGKILL, 0))], RANK_KILLED),
        ("the others exit first", vec![(0, rank(1, 0, 1)), (9, rank(3, SIGKILL, 0))], RANK_KILLED),
        ("long before they hear of it", vec![(0, rank(1, 0, 1)), (9000, rank(3, SIGKILL, 0))], RANK_KILLED),
        ("MPICH's cleanup", vec![(0, daemon("die")), (20, rank(3, SIGKILL, 0))], RANK_KILLED),
        (
            "one that ended in order too early, and those that wait for it",
            vec![(0, unfinished()), (5000, rank(1, 0, 1))],
            "rank 3 on n2.beta ended without MPI_Finalize",
        ),
        (
            "a rank beside a silent site",
            vec![(0, Event::Silent("n1.beta".to_owned())), (1, rank(3, 0, 7))],
            "rank 3 on n2.beta ended with status 7",
        ),
        (
            "a silent site and no more",
            vec![(0, Event::Silent("n1.beta".to_owned()))],
            "nothing is heard of n1.beta: it is frozen, or the network between is cut",
        ),
    ]);
}

#[test]
fn of_what_starts_ranks_one_is_to_blame() {
    use libc::{SIGABRT, SIGKILL, SIGSEGV, SIGTERM};
    let launcher = |signal| Event::Launcher(killed("mpirun", signal));
    check(vec![
        (
            "ranks of a killed daemon",
            vec![(0, rank(1, SIGABRT, 0)), (500, daemon("orted"))],
            "orted on n1.beta was ended by SIGKILL",
        ),
        (
            "a supervisor",
            vec![(0, rank(1, 0, 1)), (500, daemon("the supervisor of prted"))],
            "the supervisor of prted on n1.beta was ended by SIGKILL",
        ),
        (
            "what stands in place of ssh",
            vec![(0, daemon("`isthmus launch n2.gamma`")), (200, rank(1, 0, 1))],
            "`isthmus launch n2.gamma` on n1.beta was ended by SIGKILL",
        ),
        (
            "the launcher",
            vec![(0, rank(1, 0, 1)), (5, daemon("die")), (9, launcher(SIGKILL))],
            "mpirun on n1.beta was ended by SIGKILL",
        ),
        (
            "a launcher that another party has told to end, and that ends its ranks",
            vec![(0, launcher(SIGTERM)), (300, rank(1, 0, 1)), (400, daemon("die"))],
            "mpirun on n1.beta was ended by SIGTERM",
        ),
        (
            "a daemon that was told to end",
            vec![(0, rank(1, 0, 1)), (9, Event::Command(killed("orted", SIGTERM)))],
            "orted on n1.beta was ended by SIGTERM",
        ),
        (
            "a launcher with a killed rank",
            vec![(0, rank(3, SIGKILL, 0)), (9, launcher(SIGKILL))],
            RANK_KILLED,
        ),
        (
            "a launcher that fails while it ends its job",
            vec![(0, launcher(SIGSEGV)), (9, rank(3, SIGKILL, 0))],
            RANK_KILLED,
        ),
        (
            "the same after a rank's own end",
            vec![(0, rank(3, 0, 7)), (9, launcher(SIGSEGV))],
            "rank 3 on n2.beta ended with status 7",
        ),
        (
            "a launcher that fails by itself",
            vec![(0, launcher(SIGSEGV)), (9, rank(3, 0, 7))],
            "mpirun on n1.beta was ended by SIGSEGV",
        ),
    ]);
}

#[test]
fn a_lost_node_is_to_blame_for_what_came_after() {
    use libc::{SIGABRT, SIGKILL};
    let cut_off = || Event::Lost("site alpha is cut off from n1.beta, and from the broker".to_owned());
    check(vec![
        ("an agent and its daemon", vec![(0, daemon("orted")), (300, node("n1.beta"))], AGENT_ENDED),
        (
            "the node that stands for its site, and the ranks that the others then end",
            vec![(0, rank_at("n1.alpha", 0, 0, 15)), (900, lost("n1.beta", "its agent has ended", 1200))],
            AGENT_ENDED,
        ),
        (
            "the same with ranks that are killed",
            vec![(0, rank(3, SIGKILL, 0)), (900, lost("n1.beta", "its agent has ended", 1200))],
            AGENT_ENDED,
        ),
        (
            "ranks notice a frozen node before its silence is long enough",
            vec![(0, rank(1, 0, 1)), (5000, lost("n1.beta", "no sign of life for 6.0 s", 6000))],
            "lost node n1.beta: no sign of life for 6.0 s",
        ),
        (
            "found lost at the end",
            vec![(0, rank(1, SIGABRT, 0)), (900, lost("n1.beta", "the connection broke", 0))],
            "lost node n1.beta: the connection broke",
        ),
        ("lost by the end", vec![(0, rank(3, SIGKILL, 0)), (900, node("n1.beta"))], RANK_KILLED),
        (
            "a node that goes down",
            vec![(0, rank_at("n1.beta", 3, SIGKILL, 0)), (900, node("n1.beta"))],
            AGENT_ENDED,
        ),
        ("lost long after", vec![(0, rank(3, SIGKILL, 0)), (9000, node("n1.beta"))], RANK_KILLED),
        (
            "frozen after that",
            vec![(0, rank(3, SIGKILL, 0)), (9000, lost("n1.beta", "no sign of life for 6.0 s", 6000))],
            RANK_KILLED,
        ),
        (
            "the head's own site",
            vec![(0, cut_off()), (200, rank(3, 0, 1))],
            "site alpha is cut off from n1.beta, and from the broker",
        ),
        (
            "the command on a lost node",
            vec![
                (0, Event::Each("the connection to the command on n1.beta broke".to_owned())),
                (9, node("n1.beta")),
            ],
            AGENT_ENDED,
        ),
    ]);
}

#[test]
fn a_signal_ends_what_it_hits() {
    use libc::{SIGINT, SIGKILL, SIGTERM};
    let cancelled = || signal(SIGTERM, false);
    check(vec![
        (
            "a cancelled batch job",
            vec![(0, rank(3, SIGKILL, 0)), (3, node("n1.beta")), (900, cancelled())],
            "SIGTERM to `isthmus run`",
        ),
        (
            "ranks that hear of it first",
            vec![(0, rank(3, SIGTERM, 0)), (5000, cancelled())],
            "SIGTERM to `isthmus run`",
        ),
        ("an impatient batch system", vec![(0, rank(3, SIGKILL, 0)), (9000, cancelled())], RANK_KILLED),
        ("an impatient user", vec![(0, rank(3, SIGKILL, 0)), (900, signal(SIGINT, true))], RANK_KILLED),
        ("a user", vec![(0, signal(SIGINT, true)), (900, rank(3, SIGKILL, 0))], "SIGINT from the terminal"),
        (
            "a user whose command goes on",
            vec![(0, signal(SIGINT, true)), (600_000, rank(3, SIGKILL, 0))],
            RANK_KILLED,
        ),
        (
            "and who is heeded the second time",
            vec![(0, signal(SIGINT, true)), (600_000, signal(SIGINT, true)), (600_900, rank(3, SIGKILL, 0))],
            "SIGINT from the terminal",
        ),
        (
            "a command that is slow to end",
            vec![(0, cancelled()), (600_000, rank(3, SIGKILL, 0))],
            "SIGTERM to `isthmus run`",
        ),
    ]);
    let mut events = Events::default();
    events.add(Duration::ZERO, Duration::ZERO, cancelled());
    let signal = events.culprit(Duration::ZERO).and_then(|culprit| culprit.signal);
    assert_eq!(signal.map(Received::status), Some(143));
}

#[test]
fn what_a_node_lacks_is_to_blame_for_what_fails_by_it() {
    use libc::SIGKILL;
    const SHORT: &str = "n1.alpha has no file descriptors left";
    const NO_WAY: &str = "n1.a could not connect to n1.b: no relay";
    let short = || Event::Short(SHORT.to_owned());
    let unconnected = || Event::Unconnected(NO_WAY.to_owned());
    check(vec![
        ("no way", vec![(0, unconnected()), (3, rank(1, 0, 1))], NO_WAY),
        (
            "the command on one of several nodes",
            vec![(0, Event::Each("the command on n1.beta ended with status 7".to_owned()))],
            "the command on n1.beta ended with status 7",
        ),
        ("a rank that can't connect", vec![(0, short()), (100_000, rank(1, 0, 1))], SHORT),
        ("told a moment later", vec![(0, rank(1, 0, 1)), (300, short())], SHORT),
        ("a connection", vec![(0, short()), (9, unconnected()), (20, rank(1, 0, 1))], SHORT),
        ("a daemon that can't be started", vec![(0, short())], SHORT),
        ("a killed rank beside", vec![(0, short()), (9, rank(3, SIGKILL, 0))], RANK_KILLED),
        ("a lost node beside", vec![(0, short()), (9000, node("n1.beta"))], AGENT_ENDED),
        ("long over", vec![(0, short()), (600_000, rank(3, 0, 7))], "rank 3 on n2.beta ended with status 7"),
        (
            "long over for one, not for another",
            vec![(0, short()), (500_000, short()), (600_000, rank(3, 0, 7))],
            SHORT,
        ),
    ]);
}

#[test]
fn what_a_job_has_survived_has_not_ended_it() {
    let at = Duration::from_secs;
    let mut events = Events::default();
    let words = |events: &Events, now| events.culprit(at(now)).map(|culprit| culprit.words);
    events.add(at(1), Duration::ZERO, rank(3, libc::SIGKILL, 0));
    events.goes_on(at(4));
    assert_eq!(words(&events, 4).as_deref(), Some(RANK_KILLED));
    events.goes_on(at(60));
    assert_eq!(words(&events, 60), None);
    events.add(at(70), Duration::ZERO, rank(5, 0, 2));
    // The rank's end is told again in the answer at the job's end.
    events.add(at(71), Duration::ZERO, rank(3, libc::SIGKILL, 0));
    assert_eq!(words(&events, 71).as_deref(), Some("rank 5 on n2.beta ended with status 2"));
    // No job goes on without a node.
    let mut events = Events::default();
    events.add(at(1), Duration::ZERO, node("n1.beta"));
    events.goes_on(at(60));
    assert_eq!(words(&events, 60).as_deref(), Some(AGENT_ENDED));
}

#[test]
fn thousands_of_consequences_leave_room_for_their_cause() {
    let ranks = (0..2 * EVENTS_MAX).map(|number| (0, rank(u32::try_from(number).unwrap(), 0, 1)));
    let events = ranks.chain([(6000, node("n1.beta"))]).collect();
    assert_eq!(culprit(events).as_deref(), Some(AGENT_ENDED));
}

#[test]
fn lost_nodes_are_one_line() {
    let silent = |name: &str, seconds: u32| lost(name, &format!("no sign of life for {seconds} s"), 0);
    for (name, events, want) in [
        (
            "two of a site",
            vec![silent("n1.beta", 6), silent("n2.beta", 7)],
            "lost nodes n1.beta, n2.beta of site beta: no sign of life for 6 s",
        ),
        (
            "many of a site",
            (1..=32).map(|number| silent(&format!("n{number}.beta"), 6)).collect(),
            "lost nodes n1.beta, n2.beta and 30 more of site beta: no sign of life for 6 s",
        ),
        (
            "of two sites",
            vec![silent("n1.beta", 6), silent("n1.gamma", 6)],
            "lost nodes n1.beta, n1.gamma: no sign of life for 6 s",
        ),
        (
            "for two reasons",
            vec![silent("n1.beta", 6), node("n2.beta")],
            "lost node n1.beta: no sign of life for 6 s",
        ),
        (
            "told twice",
            vec![silent("n1.beta", 6), lost("n1.beta", "the connection broke", 0)],
            "lost node n1.beta: no sign of life for 6 s",
        ),
    ] {
        let events = events.into_iter().map(|event| (0, event)).collect();
        assert_eq!(culprit(events).as_deref(), Some(want), "{name}");
    }
}
