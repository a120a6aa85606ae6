//! What breaks in the grid of a soak over three sites, where, and for how long; and what ends
//! its jobs.

use std::time::Duration;

use crate::soak::chance::Chance;
use crate::soak::faults::What;
use crate::soak::running::Spec;
use crate::soak::services::Service;

pub(super) const NODES: [&str; 5] = ["n1.alpha", "n2.alpha", "n1.beta", "n2.beta", "n1.gamma"];
const SITES: [&str; 3] = ["alpha", "beta", "gamma"];
pub(super) const GATEWAYS: [Service; 3] =
    [("n1.alpha", "gateway"), ("n2.beta", "gateway"), ("n1.gamma", "gateway")];
pub(super) const RELAYS: [Service; 2] = [("hub", "relay"), ("spare", "relay")];
/// The node that stands for its site, whose other node takes part as well.
pub(super) const LEAD: &str = "n1.beta";

/// How much longer than a job waits a cut lasts that is too long for it.
const BEYOND: Duration = Duration::from_secs(12);
/// Shortest and longest fault whose length tells nothing.
const SECONDS: (f64, f64) = (0.2, 10.0);
/// Least length of a fault in seconds in which punch is given up and a relay taken. Silence is
/// noticed after 6 s, and the step takes 10 s.
const PUNCH_GIVES_UP_SECONDS: f64 = 20.0;
/// Shortest and longest time until a killed service is back that comes back soon. Others are away
/// much longer.
const BACK_SECONDS: (f64, f64) = (0.2, 0.9);
/// Shortest and longest time for which a way swallows large packets.
const SWALLOWS_SECONDS: (f64, f64) = (6.0, 12.0);

/// What a round hits.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Hit {
    /// Something in the grid breaks.
    Grid(What),
    /// A process of the long job gets this signal.
    Process(Process, &'static str),
}

/// A process of the long job, on the named node or else at its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Process {
    Run,
    Launcher,
    Launch,
    Daemon(&'static str),
    Supervisor(&'static str),
    Rank(&'static str),
}

/// What breaks in the grid, and is mended. A job outlives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    Apart,
    Broker,
    Cut,
    Forgets,
    Gateway,
    Host,
    Link,
    Moves,
    Relays,
    Restarts,
    Swallows,
    Upgrade,
}

/// What ends a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ender {
    /// An agent is killed, and back in less than a second.
    AgentBack,
    Agent,
    Cancelled,
    Daemon,
    Launch,
    Launcher,
    LauncherTold,
    Lead,
    Nothing,
    OtherSite,
    OwnAgent,
    OwnSite,
    Rank,
    Supervisor,
}

/// The breaks in two groups: what users have met comes first, then all else. `ENDERS` has the same
/// groups.
pub(super) const BREAKS: [&[Break]; 2] = [
    &[Break::Apart, Break::Broker, Break::Cut, Break::Gateway, Break::Relays, Break::Swallows],
    &[Break::Forgets, Break::Host, Break::Link, Break::Moves, Break::Restarts, Break::Upgrade],
];
pub(super) const ENDERS: [&[Ender]; 2] = [
    &[Ender::AgentBack, Ender::Launch, Ender::LauncherTold, Ender::Lead, Ender::Nothing, Ender::OwnSite],
    &[
        Ender::Agent,
        Ender::Cancelled,
        Ender::Daemon,
        Ender::Launcher,
        Ender::Nothing,
        Ender::OtherSite,
        Ender::OwnAgent,
        Ender::Rank,
        Ender::Supervisor,
    ],
];
/// The site of a node with this name.
pub(super) fn site(node: &str) -> &str {
    node.split_once('.').map_or(node, |(_, site)| site)
}

/// The node whose agent the hit kills. `None` if it kills none.
pub(super) fn killed_agent(hit: &Hit) -> Option<&'static str> {
    let Hit::Grid(What::Killed(services)) = hit else { return None };
    services.iter().find(|(_, role)| *role == "agent").map(|(node, _)| *node)
}

/// The places that a fault takes. Two faults mustn't take the same place at a time.
pub(super) fn places(what: &What) -> Vec<(&'static str, &'static str)> {
    match what {
        What::Cut(site) | What::Apart(site) | What::Restarts(site) | What::Timeouts(site, _) => {
            vec![(site, "router")]
        }
        What::Forgets(site) | What::Moves(site) => vec![(site, "router")],
        What::Link(site, _) | What::Swallows(site, _) => vec![(site, "link")],
        What::Killed(services) => services.clone(),
        What::Upgraded(service) => vec![*service],
        What::Host(host) => vec![(host, "broker"), (host, "relay")],
        What::Rank(node) => vec![(node, "rank")],
    }
}

impl Break {
    /// All faults of this kind: where it may happen, and how.
    pub(super) fn all(self) -> Vec<What> {
        let sites = |what: fn(&'static str) -> What| SITES.into_iter().map(what).collect();
        match self {
            Self::Apart => sites(What::Apart),
            Self::Broker => vec![What::Killed(vec![("hub", "broker")])],
            Self::Cut => sites(What::Cut),
            Self::Forgets => sites(What::Forgets),
            Self::Gateway => GATEWAYS.map(|service| What::Killed(vec![service])).to_vec(),
            Self::Host => vec![What::Host("hub")],
            Self::Link => {
                let of =
                    |site, loss, delay| What::Link(site, [format!("loss={loss}"), format!("delay={delay}")]);
                let ways = [("1 %", "20 ms"), ("5 %", "1 ms"), ("0.1 %", "100 ms"), ("20 %", "20 ms")];
                SITES.into_iter().flat_map(|site| ways.map(|(loss, delay)| of(site, loss, delay))).collect()
            }
            Self::Moves => sites(What::Moves),
            Self::Relays => vec![
                What::Killed(vec![RELAYS[0]]),
                What::Killed(vec![RELAYS[1]]),
                What::Killed(RELAYS.to_vec()),
            ],
            Self::Restarts => sites(What::Restarts),
            Self::Swallows => {
                let of = |site| ["up", "down"].map(|direction| What::Swallows(site, direction));
                SITES.into_iter().flat_map(of).collect()
            }
            Self::Upgrade => GATEWAYS.into_iter().chain(RELAYS).map(What::Upgraded).collect(),
        }
    }

    /// How long a fault of this kind lasts.
    pub(super) fn lasts(self, chance: &mut Chance, longest: Duration) -> Duration {
        let longest = longest.as_secs_f64();
        match self {
            Self::Apart => chance.time((PUNCH_GIVES_UP_SECONDS, longest)),
            Self::Cut if chance.below(2) == 0 => chance.time((SECONDS.1, longest)),
            Self::Broker | Self::Gateway if chance.below(2) == 0 => chance.time(BACK_SECONDS),
            Self::Swallows => chance.time(SWALLOWS_SECONDS),
            Self::Forgets | Self::Moves | Self::Upgrade => Duration::ZERO,
            _ => chance.time(SECONDS),
        }
    }
}

impl Ender {
    pub(super) fn is_cut(self) -> bool {
        matches!(self, Self::OtherSite | Self::OwnSite)
    }

    /// The hit that ends a job so, and how long it lasts. `None` if nothing ends the job.
    pub(super) fn hit(self, spec: &Spec, chance: &mut Chance) -> Option<(Hit, Duration)> {
        let head = spec.head();
        let other = |chance: &mut Chance| chance.one(spec.nodes.get(1..).unwrap_or_default());
        let agent = |node| Hit::Grid(What::Killed(vec![(node, "agent")]));
        let cut = |site| (Hit::Grid(What::Cut(site)), spec.outlive + BEYOND);
        let process = |process, signal| (Hit::Process(process, signal), Duration::ZERO);
        Some(match self {
            Self::Nothing => return None,
            Self::AgentBack => (agent(other(chance)), chance.time(BACK_SECONDS)),
            Self::Agent => (agent(other(chance)), chance.time(SECONDS)),
            Self::Lead => (agent(LEAD), chance.time(SECONDS)),
            Self::OwnAgent => (agent(head), chance.time(SECONDS)),
            Self::OwnSite => cut(site(head)),
            Self::OtherSite => {
                let others: Vec<_> = SITES.into_iter().filter(|other| *other != site(head)).collect();
                cut(chance.one(&others))
            }
            Self::Cancelled => process(Process::Run, "TERM"),
            Self::Launcher => process(Process::Launcher, "KILL"),
            Self::LauncherTold => process(Process::Launcher, "TERM"),
            Self::Launch => process(Process::Launch, "KILL"),
            Self::Daemon => process(Process::Daemon(other(chance)), "KILL"),
            Self::Supervisor => process(Process::Supervisor(other(chance)), "KILL"),
            Self::Rank => process(Process::Rank(chance.one(&spec.nodes)), "KILL"),
        })
    }
}
