use std::collections::HashSet;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const KEY: [u8; 32] = [1; 32];
const FORMER: [u8; 32] = [2; 32];
const OTHER: [u8; 32] = [3; 32];
/// The date at which the tests' time begins, in seconds since 1970-01-01 UTC.
const EPOCH: u64 = 1_700_000_000;

const BOUNDS: Bounds = Bounds { waiting: 2, patience: Duration::from_secs(20), remembered: 4 };

/// A ticket for one side of connection `id`, good for `seconds` from the start.
fn ticket(key: [u8; 32], id: u8, side: Side, seconds: u64) -> [u8; TICKET_LEN] {
    let ticket = Ticket { connection: ConnectionId([id; 16]), side, expiry_unix_seconds: EPOCH + seconds };
    Secret::new(key).seal_ticket(&ticket)
}

fn from(source: u8) -> Source {
    IpAddr::from([192, 0, 2, source]).into()
}

/// Tells in a few words what came of showing a ticket.
fn text(admission: Admission<u32>) -> String {
    match admission {
        Admission::Waits { evicted: None } => "waits".into(),
        Admission::Waits { evicted: Some((.., evicted)) } => format!("waits in place of {evicted}"),
        Admission::Paired { initiator, acceptor, .. } => format!("pairs {initiator} with {acceptor}"),
        Admission::Refused { reason, candidate } => format!("refuses {candidate}: {reason}"),
    }
}

/// A matcher whose candidates are numbered in the order in which they come.
struct Bench {
    matcher: Matcher<u32>,
    start: Instant,
    candidates: u32,
}

impl Bench {
    fn new(bounds: Bounds) -> Self {
        Self { matcher: Matcher::new(bounds), start: Instant::now(), candidates: 0 }
    }

    fn at(&self, seconds: u64) -> Now {
        Now { instant: self.start + Duration::from_secs(seconds), unix_seconds: EPOCH + seconds }
    }

    fn show(&mut self, seconds: u64, ticket: &[u8; TICKET_LEN]) -> String {
        self.show_from(1, seconds, ticket)
    }

    fn show_from(&mut self, source: u8, seconds: u64, ticket: &[u8; TICKET_LEN]) -> String {
        self.candidates += 1;
        text(self.matcher.admit(ticket, from(source), self.candidates, self.at(seconds)))
    }
}

enum Step {
    Key([u8; 32]),
    Show([u8; TICKET_LEN], &'static str),
    Expire(&'static [u32]),
}
use Side::{Acceptor, Initiator};
use Step::{Expire, Key, Show};

/// A case's name, and its steps with the second in which each happens.
type Case = (&'static str, Vec<(u64, Step)>);

fn check(cases: Vec<Case>) {
    for (name, steps) in cases {
        let mut bench = Bench::new(BOUNDS);
        for (seconds, step) in steps {
            match step {
                Key(key) => bench.matcher.set_key(Secret::new(key), bench.at(seconds)),
                Show(ticket, want) => assert_eq!(bench.show(seconds, &ticket), want, "{name}, {seconds} s"),
                Expire(want) => {
                    let gone: Vec<_> =
                        bench.matcher.expire(bench.at(seconds)).into_iter().map(|gone| gone.2).collect();
                    assert_eq!(gone, want, "{name}, {seconds} s");
                }
            }
        }
    }
}

fn sides() -> [[u8; TICKET_LEN]; 2] {
    [ticket(KEY, 1, Initiator, 60), ticket(KEY, 1, Acceptor, 60)]
}

#[test]
fn two_sides_are_paired_once() {
    let [initiator, acceptor] = sides();
    check(vec![
        (
            "initiator first",
            vec![(0, Key(KEY)), (0, Show(initiator, "waits")), (9, Show(acceptor, "pairs 1 with 2"))],
        ),
        (
            "acceptor first",
            vec![(0, Key(KEY)), (0, Show(acceptor, "waits")), (9, Show(initiator, "pairs 2 with 1"))],
        ),
        (
            "one side twice: the first goes on waiting",
            vec![
                (0, Key(KEY)),
                (0, Show(initiator, "waits")),
                (1, Show(initiator, "refuses 2: the ticket was used before")),
                (2, Show(acceptor, "pairs 1 with 3")),
            ],
        ),
        (
            "used up",
            vec![
                (0, Key(KEY)),
                (0, Show(initiator, "waits")),
                (1, Show(acceptor, "pairs 1 with 2")),
                (2, Show(initiator, "refuses 3: the ticket was used before")),
                (59, Show(acceptor, "refuses 4: the ticket was used before")),
                (61, Show(acceptor, "refuses 5: the ticket expired 1 s ago by this machine's clock")),
            ],
        ),
        (
            "a pair does not expire",
            vec![
                (0, Key(KEY)),
                (0, Show(initiator, "waits")),
                (1, Show(acceptor, "pairs 1 with 2")),
                (30, Expire(&[])),
            ],
        ),
    ]);
    assert_eq!(Refusal::Used.to_string(), "the ticket was used before");
}

#[test]
fn tickets_without_a_valid_signature_are_refused() {
    let [initiator, _] = sides();
    let mut changed = initiator;
    changed[30] ^= 1;
    check(vec![
        ("no key yet", vec![(0, Show(initiator, "refuses 1: the broker has sent no ticket key yet"))]),
        (
            "a ticket of another key",
            vec![
                (0, Key(KEY)),
                (
                    0,
                    Show(
                        ticket(OTHER, 1, Initiator, 60),
                        "refuses 1: the ticket is not signed with this service's key",
                    ),
                ),
            ],
        ),
        (
            "a changed ticket",
            vec![
                (0, Key(KEY)),
                (0, Show(changed, "refuses 1: the ticket is not signed with this service's key")),
            ],
        ),
        (
            "no ticket",
            vec![
                (0, Key(KEY)),
                (0, Show([0; 64], "refuses 1: malformed ticket: starts with [00, 00, 00, 00]")),
            ],
        ),
        (
            "a new key: tickets of the former one stay valid for a while",
            vec![
                (0, Key(FORMER)),
                (0, Show(ticket(FORMER, 1, Initiator, 600), "waits")),
                (0, Key(KEY)),
                (0, Key(KEY)),
                (1, Show(ticket(FORMER, 1, Acceptor, 600), "pairs 1 with 2")),
                (1, Show(initiator, "refuses 3: the ticket was used before")),
                (
                    120,
                    Show(
                        ticket(FORMER, 2, Acceptor, 600),
                        "refuses 4: the ticket is not signed with this service's key",
                    ),
                ),
            ],
        ),
    ]);
}

#[test]
fn waiting_ends_and_is_bounded() {
    let [initiator, acceptor] = sides();
    check(vec![
        (
            "expired",
            vec![
                (0, Key(KEY)),
                (60, Show(initiator, "refuses 1: the ticket expired 0 s ago by this machine's clock")),
            ],
        ),
        (
            "the other side never comes",
            vec![
                (0, Key(KEY)),
                (0, Show(initiator, "waits")),
                (5, Show(ticket(KEY, 2, Acceptor, 60), "waits")),
                (19, Expire(&[])),
                (20, Expire(&[1])),
                (21, Show(acceptor, "refuses 3: the ticket was used before")),
                (25, Expire(&[2])),
            ],
        ),
        (
            "no room: the oldest is dropped, and a ticket that completes a pair is admitted",
            vec![
                (0, Key(KEY)),
                (0, Show(initiator, "waits")),
                (0, Show(ticket(KEY, 2, Initiator, 60), "waits")),
                (0, Show(ticket(KEY, 3, Initiator, 60), "waits in place of 1")),
                (1, Show(acceptor, "refuses 4: the ticket was used before")),
                (1, Show(ticket(KEY, 2, Acceptor, 60), "pairs 2 with 5")),
                (20, Expire(&[3])),
            ],
        ),
    ]);
}

/// A far client needs long for its other side to arrive.
#[test]
fn many_tickets_from_one_source_drop_none_of_another() {
    let mut bench = Bench::new(Bounds { remembered: 100, ..BOUNDS });
    bench.matcher.set_key(Secret::new(KEY), bench.at(0));
    assert_eq!(bench.show_from(2, 0, &ticket(KEY, 0, Initiator, 60)), "waits");
    assert_eq!(bench.show_from(1, 0, &ticket(KEY, 1, Initiator, 60)), "waits");
    for id in 2..50 {
        let dropped = format!("waits in place of {id}");
        assert_eq!(bench.show_from(1, 1, &ticket(KEY, id, Initiator, 60)), dropped);
    }
    assert_eq!(bench.show_from(3, 2, &ticket(KEY, 0, Acceptor, 60)), "pairs 1 with 51");
}

#[test]
fn nothing_is_remembered_once_it_has_expired() {
    let mut bench = Bench::new(BOUNDS);
    bench.matcher.set_key(Secret::new(KEY), bench.at(0));
    for id in 0..4 {
        bench.show(0, &ticket(KEY, id, Initiator, 60));
        bench.show(0, &ticket(KEY, id, Acceptor, 60));
    }
    assert!(bench.show(1, &ticket(KEY, 9, Initiator, 90)).contains("within a minute"));
    assert_eq!(bench.matcher.connections.len(), 4);
    bench.matcher.expire(bench.at(60));
    assert!(bench.matcher.connections.is_empty() && bench.matcher.used.is_empty());
    assert_eq!(bench.matcher.next_deadline(), None);
}

#[derive(Debug, Clone)]
enum Op {
    Show { id: u8, side: Side, life: u64, genuine: bool },
    Pass { seconds: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let side = prop_oneof![Just(Initiator), Just(Acceptor)];
    prop_oneof![
        4 => (0..6_u8, side, 0..80_u64, prop::bool::weighted(0.9))
            .prop_map(|(id, side, life, genuine)| Op::Show { id, side, life, genuine }),
        1 => (0..30_u64).prop_map(|seconds| Op::Pass { seconds }),
    ]
}

proptest! {
    /// For every sequence of tickets: no candidate waits beyond the deadline, and each leaves once.
    /// Only two sides of one connection are paired, and a ticket works once.
    #[test]
    fn each_candidate_leaves_once(ops in prop::collection::vec(op(), 1..200)) {
        let mut bench = Bench::new(BOUNDS);
        bench.matcher.set_key(Secret::new(KEY), bench.at(0));
        let mut clock = 0;
        let mut inside: HashMap<u32, (u8, Side, u64)> = HashMap::new();
        let mut taken: HashSet<[u8; TICKET_LEN]> = HashSet::new();
        for op in ops {
            match op {
                Op::Pass { seconds } => {
                    clock += seconds;
                    let now = bench.at(clock);
                    for (connection, side, candidate) in bench.matcher.expire(now) {
                        let (id, was, since) = inside.remove(&candidate).expect("was inside");
                        prop_assert_eq!((connection, side), (ConnectionId([id; 16]), was));
                        prop_assert!(since + 20 <= clock);
                    }
                    prop_assert!(inside.values().all(|(_, _, since)| since + 20 > clock));
                    prop_assert!(bench.matcher.next_deadline().is_none_or(|at| at > now.instant));
                }
                Op::Show { id, side, life, genuine } => {
                    let key = if genuine { KEY } else { OTHER };
                    let shown = ticket(key, id, side, clock + life);
                    bench.candidates += 1;
                    let candidate = bench.candidates;
                    match bench.matcher.admit(&shown, from(id % 2), candidate, bench.at(clock)) {
                        Admission::Waits { evicted } => {
                            prop_assert!(genuine && life > 0 && taken.insert(shown));
                            inside.insert(candidate, (id, side, clock));
                            if let Some((connection, side, evicted)) = evicted {
                                let (id, was, _) = inside.remove(&evicted).expect("was inside");
                                prop_assert_eq!((connection, side), (ConnectionId([id; 16]), was));
                            }
                        }
                        Admission::Paired { connection, initiator, acceptor } => {
                            prop_assert!(genuine && life > 0 && taken.insert(shown));
                            prop_assert_eq!(connection, ConnectionId([id; 16]));
                            let (first, mine) =
                                if side == Initiator { (acceptor, initiator) } else { (initiator, acceptor) };
                            prop_assert_eq!(mine, candidate);
                            let (other, other_side, _) = inside.remove(&first).expect("was inside");
                            prop_assert_eq!((other, other_side), (id, side.other()));
                        }
                        Admission::Refused { candidate: sent_away, .. } => prop_assert_eq!(sent_away, candidate),
                    }
                }
            }
            prop_assert_eq!(bench.matcher.waiting(), inside.len());
            prop_assert!(inside.len() <= BOUNDS.waiting);
            prop_assert!(bench.matcher.connections.len() <= BOUNDS.remembered);
        }
    }
}
