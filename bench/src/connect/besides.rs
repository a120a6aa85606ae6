//! What Coti et al. (CCGRID 2008) have besides their ways: a relay at one site, for whose far pair it is
//! a detour; and MPICH-G2, in whose place stands what makes several sites one network today, plain MPI
//! over nebula and over wireguard-go. Small messages between sites 10 ms apart (the paper's table 2).

use isthmus_lab::grid::Slow;

use super::{BAR, GRIDS, MPIS, PLAIN, SIZES, nodes, ping_pong, until_known};
use crate::confine::Running;
use crate::grid::{Bench, Node};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{Case, Experiment};
use crate::verdict::Bar;
use crate::{nebula, wireguard};

const GRID: &str = "connect-besides";
/// The nodes whose only way is the relay at a third site.
const FAR_PAIR: [&str; 2] = ["n1.sym-a", "n1.sym-b"];
/// Microseconds from one of them to the other over the relay: three links, one of them twice.
const DETOUR_MICROSECONDS: f64 = 17_950.0;
/// What the relay may add to its way.
const OF_DETOUR: Bar = BAR;

/// What stands between the two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    RelayAtOneSite,
    Nebula,
    WireGuard,
}

impl Beside {
    pub(crate) const ALL: [Self; 3] = [Self::RelayAtOneSite, Self::Nebula, Self::WireGuard];

    /// What rows call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RelayAtOneSite => "relay at one site",
            Self::Nebula => "plain MPI over nebula",
            Self::WireGuard => "plain MPI over wireguard-go",
        }
    }
}

/// Something that is measured with an MPI.
#[derive(Debug, Clone, Copy)]
pub(super) struct Besides {
    beside: Beside,
    mpi: Mpi,
}

/// Name of a row.
pub(crate) fn what(beside: Beside, mpi: &str) -> String {
    format!("{}, {mpi}, ping-pong {} B, {}", beside.name(), SIZES[0], GRIDS[1].1)
}

pub(super) fn cases(mpis: &[Mpi], slow: Slow) -> Vec<Case<Besides>> {
    let all = Beside::ALL.into_iter().flat_map(|beside| {
        MPIS.into_iter().filter(|mpi| mpis.contains(mpi)).map(move |mpi| Besides { beside, mpi })
    });
    let case = |besides: Besides| {
        let row = |against: &str| Comparison::new(what(besides.beside, besides.mpi.title()), "µs", against);
        let detour =
            (besides.beside == Beside::RelayAtOneSite).then(|| row("the way over it").bar(OF_DETOUR));
        let rows = std::iter::once(row("plain")).chain(detour);
        Case::new(besides, rows.collect()).slowed(slow)
    };
    all.map(case).collect()
}

/// The sites, with both tools between the nodes of two of them.
pub(super) struct Sites {
    seconds: f64,
    _tools: Vec<Running>,
    bench: Bench,
}

impl Sites {
    pub(super) fn up(slow: Slow, seconds: f64) -> anyhow::Result<Self> {
        let bench = Bench::up(GRID, slow)?;
        until_known(&bench, "relay", FAR_PAIR)?;
        let plain = nodes(&bench, PLAIN)?;
        let ends = [&plain[0], &plain[1]];
        let mut tools = wireguard::link(&bench, ends)?;
        tools.extend(nebula::link(&bench, ends)?);
        Ok(Self { seconds, _tools: tools, bench })
    }

    /// The nodes of the reference at their addresses within a tool's network.
    fn within(&self, addresses: [&str; 2]) -> anyhow::Result<Vec<Node>> {
        let plain = nodes(&self.bench, PLAIN)?.into_iter().zip(addresses);
        plain.map(|(node, address)| Ok(Node { address: address.parse()?, ..node })).collect()
    }
}

impl Experiment for Sites {
    type Case = Besides;

    fn polling(&self) -> &'static [&'static str] {
        &["pingpong"]
    }

    fn measure(&mut self, Besides { beside, mpi }: &Besides, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let (bench, mpi) = (&self.bench, *mpi);
        let far = *beside == Beside::RelayAtOneSite;
        let first = if far { FAR_PAIR[0] } else { PLAIN[0] };
        let [ours, plain] = ping_pong(bench, self.seconds, (mpi, SIZES[0]), round, first, |arguments| {
            let words = match beside {
                Beside::RelayAtOneSite => bench.ours(mpi, &[], &nodes(bench, FAR_PAIR)?, arguments),
                Beside::Nebula => bench.plain(mpi, &self.within(nebula::ENDS)?, 1, arguments),
                Beside::WireGuard => bench.plain(mpi, &self.within(wireguard::ENDS)?, 1, arguments),
            };
            Ok(words)
        })?;
        let detour = far.then_some([ours, DETOUR_MICROSECONDS]);
        Ok(std::iter::once([ours, plain]).chain(detour).collect())
    }
}
