use super::*;

fn rank(rank: u32, signal: i32, status: i32) -> Event {
    Event::Rank(RankEnded { node: "n2.beta".to_owned(), rank, signal, status })
}

fn killed(command: &str) -> CommandKilled {
    CommandKilled { node: "n1.beta".to_owned(), command: command.to_owned(), signal: libc::SIGKILL }
}

fn daemon(command: &str) -> Event {
    Event::Command(killed(command))
}

fn lost(node: &str, reason: &str) -> NodeLost {
    NodeLost { node: node.to_owned(), reason: reason.to_owned() }
}

fn node(name: &str) -> Event {
    Event::NodeLost(lost(name, "its agent has ended"))
}

fn late(name: &str) -> Event {
    Event::NodeLostLate(lost(name, "the connection broke"))
}

fn culprit(events: Vec<(u64, Event)>) -> Option<String> {
    let mut all = Events::default();
    for (millis, event) in events {
        all.add(Duration::from_millis(millis), event);
    }
    all.culprit()
}

#[test]
fn one_is_to_blame() {
    use libc::{SIGABRT, SIGKILL, SIGSEGV};
    let signal = || Event::Signal("SIGTERM to `isthmus run`".to_owned());
    let launcher = || Event::Launcher(killed("mpirun"));
    let unconnected = || Event::Unconnected("n1.a could not connect to n1.b: no relay".to_owned());
    let rank_killed = "rank 3 on n2.beta was ended by SIGKILL";
    for (name, events, want) in [
        ("a killed rank", vec![(0, rank(3, SIGKILL, 0))], rank_killed),
        (
            "a silent site and no more",
            vec![(0, Event::Silent("n1.beta".to_owned()))],
            "nothing is heard of n1.beta: it is frozen, or the network between is cut",
        ),
        (
            "a rank beside a silent site",
            vec![(0, Event::Silent("n1.beta".to_owned())), (1, rank(3, 0, 7))],
            "rank 3 on n2.beta ended with status 7",
        ),
        ("a crash", vec![(0, rank(3, SIGSEGV, 0))], "rank 3 on n2.beta was ended by SIGSEGV"),
        ("a status", vec![(0, rank(3, 0, 7))], "rank 3 on n2.beta ended with status 7"),
        ("two ranks", vec![(0, rank(3, SIGKILL, 0)), (1, rank(4, SIGKILL, 0))], rank_killed),
        ("the others abort first", vec![(0, rank(1, SIGABRT, 0)), (9, rank(3, SIGKILL, 0))], rank_killed),
        ("the others exit first", vec![(0, rank(1, 0, 1)), (9, rank(3, SIGKILL, 0))], rank_killed),
        ("MPICH's cleanup", vec![(0, daemon("die")), (20, rank(3, SIGKILL, 0))], rank_killed),
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
            "the launcher",
            vec![(0, rank(1, 0, 1)), (5, daemon("die")), (9, launcher())],
            "mpirun on n1.beta was ended by SIGKILL",
        ),
        ("a launcher with a killed rank", vec![(0, rank(3, SIGKILL, 0)), (9, launcher())], rank_killed),
        (
            "a lost agent",
            vec![(0, daemon("orted")), (300, node("n1.beta"))],
            "lost node n1.beta: its agent has ended",
        ),
        (
            "ranks notice a frozen node before its silence is long enough",
            vec![(0, rank(1, 0, 1)), (5000, node("n1.beta"))],
            "lost node n1.beta: its agent has ended",
        ),
        (
            "found lost at the end",
            vec![(0, rank(1, SIGABRT, 0)), (900, late("n1.beta"))],
            "lost node n1.beta: the connection broke",
        ),
        ("lost by the end", vec![(0, rank(3, SIGKILL, 0)), (900, late("n1.beta"))], rank_killed),
        ("lost long after", vec![(0, rank(3, SIGKILL, 0)), (9000, node("n1.beta"))], rank_killed),
        (
            "a cancelled batch job",
            vec![(0, rank(3, SIGKILL, 0)), (3, node("n1.beta")), (900, signal())],
            "SIGTERM to `isthmus run`",
        ),
        ("an impatient user", vec![(0, rank(3, SIGKILL, 0)), (9000, signal())], rank_killed),
        ("no way", vec![(0, unconnected()), (3, rank(1, 0, 1))], "n1.a could not connect to n1.b: no relay"),
        (
            "the command on one of several nodes",
            vec![(0, Event::Each("the command on n1.beta ended with status 7".to_owned()))],
            "the command on n1.beta ended with status 7",
        ),
        (
            "the command on a lost node",
            vec![
                (0, Event::Each("the connection to the command on n1.beta broke".to_owned())),
                (9, node("n1.beta")),
            ],
            "lost node n1.beta: its agent has ended",
        ),
    ] {
        assert_eq!(culprit(events).as_deref(), Some(want), "{name}");
    }
    assert_eq!(culprit(Vec::new()), None);
}

#[test]
fn what_a_job_has_survived_has_not_ended_it() {
    let at = Duration::from_secs;
    let mut events = Events::default();
    events.add(at(1), rank(3, libc::SIGKILL, 0));
    events.goes_on(at(4));
    assert_eq!(events.culprit().as_deref(), Some("rank 3 on n2.beta was ended by SIGKILL"));
    events.goes_on(at(60));
    assert_eq!(events.culprit(), None);
    events.add(at(70), rank(5, 0, 2));
    // Told again in the answer at the end.
    events.add(at(71), rank(3, libc::SIGKILL, 0));
    assert_eq!(events.culprit().as_deref(), Some("rank 5 on n2.beta ended with status 2"));
    // No job goes on without a node.
    let mut events = Events::default();
    events.add(at(1), node("n1.beta"));
    events.goes_on(at(60));
    assert_eq!(events.culprit().as_deref(), Some("lost node n1.beta: its agent has ended"));
}

#[test]
fn thousands_of_consequences_leave_room_for_their_cause() {
    let ranks = (0..2 * EVENTS_MAX).map(|number| (0, rank(u32::try_from(number).unwrap(), 0, 1)));
    let events = ranks.chain([(6000, node("n1.beta"))]).collect();
    assert_eq!(culprit(events).as_deref(), Some("lost node n1.beta: its agent has ended"));
}

#[test]
fn lost_nodes_are_one_line() {
    let silent =
        |name: &str, seconds: u32| Event::NodeLost(lost(name, &format!("no sign of life for {seconds} s")));
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
            vec![silent("n1.beta", 6), late("n1.beta")],
            "lost node n1.beta: no sign of life for 6 s",
        ),
    ] {
        let events = events.into_iter().map(|event| (0, event)).collect();
        assert_eq!(culprit(events).as_deref(), Some(want), "{name}");
    }
}
