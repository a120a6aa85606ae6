//! Which calls are measured by default. Pure.
//!
//! Every operation over every platform, with every size and layout, under every MPI would take a
//! night. What another row shows already is left out. `--all` measures it.

use std::time::Duration;

use super::platform::{Layout, Platform};
use crate::mpi::Mpi;

/// How much is measured of an MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Full,
    Sample,
}

/// An MPI of each family in full: those whose algorithms the library's costs and the simulation
/// know. Their other versions differ in few algorithms, and the library is the same.
const WIDTHS: [(Mpi, Width); 4] = [
    (Mpi::Openmpi, Width::Full),
    (Mpi::Mpich, Width::Full),
    (Mpi::Openmpi5, Width::Sample),
    (Mpi::Mpich4, Width::Sample),
];

/// The places of the full width, by the sites of a platform. Numbers of sites that are powers of two
/// show what the other layout changes. Three sites show what another number changes.
const LAYOUTS: [(usize, &[Layout]); 3] = [(4, &Layout::ALL), (3, &[Layout::Blocks]), (2, &Layout::ALL)];

/// The place of a sample: most sites, and the layout that launchers choose.
const SAMPLE_PLACE: (&str, usize, Layout) = ("coll", 4, Layout::Blocks);
/// Sizes in bytes of a sample: one that crossings decide, and one that the links' rates decide.
const SAMPLE_SIZES: [u64; 2] = [8, 256 << 10];

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
        let width = WIDTHS.iter().find(|(one, _)| *one == mpi).map(|(_, width)| *width);
        let is_there = match width {
            Some(Width::Full) => {
                LAYOUTS.iter().any(|(sites, layouts)| *sites == platform.sites && layouts.contains(&layout))
            }
            Some(Width::Sample) => {
                (platform.grid, platform.sites, layout) == SAMPLE_PLACE && SAMPLE_SIZES.contains(&bytes)
            }
            None => false,
        };
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
            (Mpi::Mpich, clusters, turns, 4 << 20, 260, true),
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
