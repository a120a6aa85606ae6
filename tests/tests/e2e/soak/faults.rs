//! What breaks under jobs, in which order and for how long: all by the seed.

use std::time::Duration;

use super::chance::Chance;
use super::services::Service;

/// Shortest and longest fault that ends. Some faults last longer than TCP's first retries.
const FAULT_SECONDS: (f64, f64) = (0.2, 8.0);
/// How long a job waits for a cut that is longer, and so ends it.
pub(super) const SHORT_OUTLIVE: Duration = Duration::from_secs(5);
/// How long a job waits for other faults.
pub(super) const LONG_OUTLIVE: Duration = Duration::from_secs(900);
/// Length of a cut that lasts longer than any job waits. It ends once the job has ended.
const FOREVER: Duration = Duration::from_secs(3600);

/// A kind of fault, as the table of docs/design.md has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Broker,
    Gateway,
    Relay,
    Upgrade,
    Cut,
    LongCut,
    Link,
    NatForgets,
    NatMoves,
    NatRestarts,
    NatTimeouts,
    Agent,
    Rank,
}

/// A fault as it happens.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) what: What,
    /// How long the fault lasts. A fault that ends the job lasts until the job has ended.
    pub(super) lasts: Duration,
}

/// What breaks, and where.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// Services are killed, and started again at the end.
    Killed(Vec<Service>),
    /// A service is upgraded in place.
    Upgraded(Service),
    /// A site is cut off.
    Cut(&'static str),
    /// A site's link loses and delays packets by these settings.
    Link(&'static str, [String; 2]),
    /// A site's NAT forgets what it knew.
    Forgets(&'static str),
    /// A site gets another address.
    Moves(&'static str),
    /// A site's NAT is off, and is back without state.
    Restarts(&'static str),
    /// A site's NAT forgets what was idle for so many seconds.
    Timeouts(&'static str, u32),
    /// A rank of this node is killed.
    Rank(&'static str),
    /// A host without a site is cut off.
    Host(&'static str),
    /// Packets between a site and others pass over relays only.
    Apart(&'static str),
    /// A site's link swallows large packets in this direction, and tells nobody.
    Swallows(&'static str, &'static str),
}

impl Kind {
    pub(super) const ALL: [Self; 13] = [
        Self::Broker,
        Self::Gateway,
        Self::Relay,
        Self::Upgrade,
        Self::Cut,
        Self::LongCut,
        Self::Link,
        Self::NatForgets,
        Self::NatMoves,
        Self::NatRestarts,
        Self::NatTimeouts,
        Self::Agent,
        Self::Rank,
    ];

    /// The kind's row in the table of docs/design.md.
    pub(super) fn row(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Gateway => "gateway",
            Self::Relay => "relay",
            Self::Upgrade => "gateway or relay, upgraded in place",
            Self::Cut | Self::LongCut => "network between two sites",
            Self::Link => "link that loses and delays packets",
            Self::NatForgets => "NAT that forgets its mappings",
            Self::NatMoves => "NAT that gets another address",
            Self::NatRestarts => "NAT that restarts without its state",
            Self::NatTimeouts => "NAT that forgets idle connections after seconds",
            Self::Agent => "agent",
            Self::Rank => "rank",
        }
    }

    /// How long a job waits that meets the kind of fault: its `--outlive`.
    pub(super) fn outlive(self) -> Duration {
        if self == Self::LongCut { SHORT_OUTLIVE } else { LONG_OUTLIVE }
    }

    /// What a job that the fault ends tells its user: at least one text of each list.
    pub(super) fn reasons(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Agent => &[&["lost node n1.beta"]],
            Self::LongCut => &[&["lost node n1.beta"], &["no sign of life for 5 s"]],
            // Launchers have words of their own for it.
            Self::Rank => &[&["signal 9", "SIGKILL", "KILLED BY SIGNAL: 9", "EXIT CODE: 9"]],
            _ => &[],
        }
    }

    /// A fault of this kind at a random place, for a random time.
    fn fault(self, chance: &mut Chance) -> Fault {
        let site = chance.one(&["alpha", "beta"]);
        let lasts = chance.time(FAULT_SECONDS);
        let gateway = chance.one(&[("n1.alpha", "gateway"), ("n2.beta", "gateway")]);
        let relay = chance.one(&[("hub", "relay"), ("spare", "relay")]);
        let what = match self {
            Self::Broker => What::Killed(vec![("hub", "broker")]),
            Self::Gateway => What::Killed(vec![gateway]),
            Self::Relay => What::Killed(match chance.below(3) {
                0 => vec![("hub", "relay"), ("spare", "relay")],
                _ => vec![relay],
            }),
            Self::Upgrade => What::Upgraded(chance.one(&[gateway, relay])),
            Self::Cut => What::Cut(site),
            Self::LongCut => What::Cut("beta"),
            Self::Link => {
                let loss = chance.one(&["0.1 %", "1 %", "5 %", "20 %"]);
                let delay = chance.one(&["1 ms", "20 ms", "100 ms"]);
                What::Link(site, [format!("loss={loss}"), format!("delay={delay}")])
            }
            Self::NatForgets => What::Forgets(site),
            Self::NatMoves => What::Moves(site),
            Self::NatRestarts => What::Restarts(site),
            Self::NatTimeouts => What::Timeouts(site, chance.one(&[1, 2, 4])),
            Self::Agent => What::Killed(vec![("n1.beta", "agent")]),
            Self::Rank => What::Rank("n1.beta"),
        };
        Fault { kind: self, what, lasts: if self == Self::LongCut { FOREVER } else { lasts } }
    }
}

/// Faults without end. Each kind comes once before any comes again.
pub(super) struct Faults {
    chance: Chance,
    /// The kinds that are still to come. The next kind is the last of them.
    deck: Vec<Kind>,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed), deck: Vec::new() }
    }

    /// The next fault, and how long all is well before it.
    pub(super) fn next(&mut self, quiet_seconds: (f64, f64)) -> (Duration, Fault) {
        let kind = self.deck.pop().unwrap_or_else(|| {
            self.deck = Kind::ALL.to_vec();
            self.chance.shuffle(&mut self.deck);
            self.deck.pop().unwrap_or(Kind::Cut)
        });
        (self.chance.time(quiet_seconds), kind.fault(&mut self.chance))
    }
}

#[test]
fn every_fault_has_a_row_in_the_design() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(isthmus_e2e::root().join("docs/design.md"))?;
    let rows = super::table::outcomes(&page)?;
    for kind in Kind::ALL {
        anyhow::ensure!(rows.contains_key(kind.row()), "{kind:?}: no row {:?}", kind.row());
    }
    Ok(())
}

#[test]
fn a_seed_repeats_its_faults_and_none_is_left_out() {
    let faults = |seed| {
        let mut faults = Faults::new(seed);
        (0..3 * Kind::ALL.len()).map(|_| faults.next((0.5, 2.0))).collect::<Vec<_>>()
    };
    assert_eq!(faults(7), faults(7));
    assert_ne!(faults(7), faults(8));
    let all = faults(7);
    for deck in all.chunks(Kind::ALL.len()) {
        for kind in Kind::ALL {
            assert_eq!(deck.iter().filter(|(_, fault)| fault.kind == kind).count(), 1, "{kind:?}");
        }
    }
}
