//! The platforms of Coti, Herault and Cappello, *MPI Applications on Grids: A Topology Aware
//! Approach*, section 4.1, and a larger one of the same links.

use std::time::Duration;

use super::platform::{Order, Platform, PlatformLink};

const fn link(micros: u64, megabits_per_second: f64) -> PlatformLink {
    PlatformLink { delay: Duration::from_micros(micros), bytes_per_second: megabits_per_second * 1e6 / 8.0 }
}

/// A node's link within a cluster of Grid'5000. Two of them make the paper's 0.1 ms between ranks
/// of a cluster. Together with two of [`WIDE`], they make its 7.8 ms between ranks of two clusters.
const ETHERNET: PlatformLink = link(50, 894.39);
const WIDE: PlatformLink = link(3850, 136.08);
/// The link between ranks of a node of the QCG cluster. The paper has no figure for nodes of
/// Grid'5000.
const MEMORY: PlatformLink = link(20, 3979.46);
/// A node's link in the QCG cluster. Two of them make 0.1 ms between ranks.
const FAST_ETHERNET: PlatformLink = link(50, 89.61);
const NOTHING: PlatformLink = link(0, 1e6);

/// A platform of Grid'5000 clusters. Rates are those that programs had, not those of wires.
pub(crate) fn grid5000(sites: usize, nodes: usize, slots: usize, order: Order) -> Platform {
    Platform {
        name: format!("{} ranks on {sites} sites{order}", sites * nodes * slots),
        sites,
        nodes,
        slots,
        order,
        access: WIDE,
        lan: ETHERNET,
        memory: MEMORY,
        share: 1.0,
        beside: 0,
        processors: None,
    }
}

/// The QCG cluster: four nodes of eight ranks. A node counts as a site of the platform.
fn qcg() -> Platform {
    Platform {
        name: "4 nodes of 8 ranks".into(),
        sites: 4,
        nodes: 1,
        slots: 8,
        order: Order::BySite,
        access: FAST_ETHERNET,
        lan: NOTHING,
        memory: MEMORY,
        share: 1.0,
        beside: 0,
        processors: None,
    }
}

/// All platforms, in the order of the results.
pub(super) fn all() -> Vec<Platform> {
    vec![
        grid5000(2, 16, 1, Order::BySite),
        grid5000(2, 16, 1, Order::InTurns),
        qcg(),
        grid5000(3, 30, 2, Order::BySite),
        grid5000(4, 63, 2, Order::BySite),
        grid5000(10, 100, 2, Order::BySite),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_the_papers_ranks() {
        let ranks: Vec<usize> = all().iter().map(Platform::ranks).collect();
        assert_eq!(ranks, [32, 32, 32, 180, 504, 2000]);
    }
}
