//! Which calls are measured by default. Pure.
//!
//! Every operation over every platform, with every size and layout, under every MPI would take a
//! night. What another row shows already is left out. `--all` measures it.

use std::time::Duration;

use super::platform::{Layout, Platform};
use crate::mpi::Mpi;

/// A place: the platform's grid, its number of sites, and the layout of ranks.
type Place = (&'static str, usize, Layout);

const FOUR: Place = ("coll", 4, Layout::Blocks);
const FOUR_IN_TURNS: Place = ("coll", 4, Layout::Turns);
const THREE: Place = ("coll", 3, Layout::Blocks);
const TWO: Place = ("coll", 2, Layout::Blocks);
const TWO_IN_TURNS: Place = ("coll", 2, Layout::Turns);
const CLUSTERS: Place = ("coll-clusters", 2, Layout::Blocks);
const CLUSTERS_IN_TURNS: Place = ("coll-clusters", 2, Layout::Turns);

/// Which sizes are measured of an MPI where.
struct Scope {
    mpi: Mpi,
    places: &'static [Place],
    sizes: &'static [u64],
}

/// Messages that crossings decide.
const SMALL: &[u64] = &[8, 4 << 10, 32 << 10];
/// Messages that the links' rates decide.
const LARGE: &[u64] = &[256 << 10, 1 << 20, 4 << 20];

/// An MPI of each family in full: those whose algorithms the library's costs and the simulation
/// know. Their other versions differ in few algorithms, and the library is the same.
///
/// Numbers of sites that are powers of two show what the other layout changes. Three sites show what
/// another number changes. A large call takes a minute, and its links don't know which MPI fills them:
/// so each place has them under one MPI, and four sites under both.
const SCOPES: [Scope; 6] = [
    Scope {
        mpi: Mpi::Openmpi,
        places: &[FOUR, FOUR_IN_TURNS, THREE, TWO, TWO_IN_TURNS, CLUSTERS, CLUSTERS_IN_TURNS],
        sizes: SMALL,
    },
    Scope { mpi: Mpi::Openmpi, places: &[FOUR, TWO_IN_TURNS, CLUSTERS, CLUSTERS_IN_TURNS], sizes: LARGE },
    Scope {
        mpi: Mpi::Mpich,
        places: &[FOUR, FOUR_IN_TURNS, THREE, TWO, TWO_IN_TURNS, CLUSTERS, CLUSTERS_IN_TURNS],
        sizes: SMALL,
    },
    Scope { mpi: Mpi::Mpich, places: &[FOUR, FOUR_IN_TURNS, THREE, TWO], sizes: LARGE },
    Scope { mpi: Mpi::Openmpi5, places: &[FOUR], sizes: SAMPLE },
    Scope { mpi: Mpi::Mpich4, places: &[FOUR], sizes: SAMPLE },
];
/// Of other versions: one size of each kind, at the place with most sites in the layout that launchers
/// choose.
const SAMPLE: &[u64] = &[8, 256 << 10];

/// Longest time that a call may need, as described. Above it, the busiest link carries bytes for at
/// least 30 crossings, and further bytes only prolong that.
const LONGEST: Duration = Duration::from_millis(500);

/// A size of a call, and the time that its bound gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub mpi: Mpi,
    pub platform: Platform,
    pub layout: Layout,
    pub bytes: u64,
    pub needed: Duration,
}

impl Call {
    /// Whether the call is measured by default.
    pub(super) fn is_needed(&self) -> bool {
        let Self { mpi, platform, layout, bytes, needed } = *self;
        let place = (platform.grid, platform.sites, layout);
        let is_there = SCOPES
            .iter()
            .any(|scope| scope.mpi == mpi && scope.places.contains(&place) && scope.sizes.contains(&bytes));
        is_there && needed <= LONGEST
    }
}

/// Whether an MPI can be measured on so many cores. Ranks that can't but poll share no core.
pub(super) fn fits(mpi: Mpi, platform: Platform, cores: usize) -> bool {
    mpi.can_yield() || usize::try_from(platform.ranks()).is_ok_and(|ranks| ranks <= cores)
}

#[cfg(test)]
mod tests {
    use super::super::platform::PLATFORMS;
    use super::*;

    #[test]
    fn what_is_measured_by_default() {
        let [[four, three, two], [clusters]] = PLATFORMS else { panic!("other platforms: {PLATFORMS:?}") };
        let (blocks, turns) = (Layout::Blocks, Layout::Turns);
        for (mpi, platform, layout, bytes, needed_ms, want) in [
            (Mpi::Openmpi, four, turns, 4096, 20, true),
            (Mpi::Openmpi, clusters, turns, 4 << 20, 260, true),
            (Mpi::Mpich, clusters, turns, 32 << 10, 26, true),
            // Under the other MPI.
            (Mpi::Mpich, clusters, turns, 4 << 20, 260, false),
            (Mpi::Openmpi, three, blocks, 256 << 10, 26, false),
            (Mpi::Mpich, two, turns, 8, 5, true),
            (Mpi::Openmpi, three, blocks, 8, 5, true),
            (Mpi::Openmpi, three, turns, 8, 5, false),
            // The busiest link carries too much.
            (Mpi::Openmpi, four, blocks, 4 << 20, 1000, false),
            (Mpi::Openmpi5, four, blocks, 8, 5, true),
            (Mpi::Openmpi5, four, blocks, 256 << 10, 20, true),
            (Mpi::Openmpi5, four, blocks, 4096, 20, false),
            (Mpi::Openmpi5, four, turns, 8, 5, false),
            (Mpi::Mpich4, two, blocks, 8, 5, false),
        ] {
            let needed = Duration::from_millis(needed_ms);
            let call = Call { mpi, platform: *platform, layout, bytes, needed };
            assert_eq!(call.is_needed(), want, "{call:?}");
        }
    }

    #[test]
    fn ranks_that_poll_share_no_core() {
        let two = PLATFORMS[0][2];
        for (mpi, cores, want) in
            [(Mpi::Mpich4, 2, false), (Mpi::Mpich4, 4, true), (Mpi::Mpich, 2, true), (Mpi::Openmpi, 2, true)]
        {
            assert_eq!(fits(mpi, two, cores), want, "{mpi:?} on {cores} cores");
        }
    }
}
