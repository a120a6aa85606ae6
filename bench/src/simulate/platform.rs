//! Platforms, as the simulated grid, SimGrid's launcher and the library for MPI read them. Pure.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isthmus_lab::Grid;

use crate::conditions::cores;

/// The share of a link's rate that TCP leaves for data: 1,448 of a packet's 1,500 bytes.
const TCP_SHARE: f64 = 1448.0 / 1500.0;
/// The link between ranks of a lab's node, which share its memory.
const MEMORY: PlatformLink = PlatformLink { delay: Duration::from_micros(1), bytes_per_second: 5e9 };
/// The link between a site's only node and the site's own link, as nothing is between them.
const NOTHING: PlatformLink = PlatformLink { delay: Duration::ZERO, bytes_per_second: 1e12 };

/// A link, which is the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlatformLink {
    /// How long a bit takes in one direction.
    pub delay: Duration,
    pub bytes_per_second: f64,
}

/// How ranks are placed on the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Ranks fill one node after another.
    BySite,
    /// Each rank is at another site than the rank before.
    InTurns,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BySite => "",
            Self::InTurns => ", in turns",
        })
    }
}

/// Sites that are alike, each with a link to all others. A message between sites crosses four
/// links: its node's, its site's, the other site's and the other node's. Messages of one rank to
/// another cross one after the other, as on a connection of TCP (mpi/smpi/grid.cpp).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Platform {
    /// The platform's name in the results.
    pub name: String,
    pub sites: usize,
    /// How many nodes each site has.
    pub nodes: usize,
    /// How many ranks each node has.
    pub slots: usize,
    pub order: Order,
    /// The link of a site to all others.
    pub access: PlatformLink,
    /// The link of a node within its site.
    pub lan: PlatformLink,
    /// The link between ranks of a node.
    pub memory: PlatformLink,
    /// The share of links' rates that programs get.
    pub share: f64,
    /// Further ranks at each site, on its first node beside those that fill it.
    pub beside: usize,
    /// How many processors all ranks share, which the library's choice depends on. `None` if each
    /// rank has one.
    pub processors: Option<usize>,
}

impl Platform {
    /// The platform of a lab's grid with so many ranks.
    ///
    /// # Errors
    /// The grid's sites aren't alike or have several nodes, or the ranks don't fill them evenly.
    pub(crate) fn of_lab(grid: &Grid, ranks: usize, order: Order) -> anyhow::Result<Self> {
        let first = grid.sites.first().context("the grid has no site")?;
        let alike = |site: &isthmus_lab::grid::Site| {
            site.link == first.link && site.link.up == site.link.down && site.nodes.len() == 1
        };
        ensure!(grid.sites.iter().all(alike), "the sites of {} differ, or have several nodes", grid.name);
        ensure!(ranks.is_multiple_of(grid.sites.len()), "{ranks} ranks don't fill the sites evenly");
        let rate = first.link.up.rate.context("the sites' links have no rate")?;
        Ok(Self {
            name: format!("the lab's {} sites", grid.sites.len()),
            sites: grid.sites.len(),
            nodes: 1,
            slots: ranks / grid.sites.len(),
            order,
            access: PlatformLink {
                delay: first.link.up.delay.duration(),
                bytes_per_second: rate.bits_per_second() as f64 / 8.0,
            },
            lan: NOTHING,
            memory: MEMORY,
            share: TCP_SHARE,
            beside: 0,
            processors: Some(cores()),
        })
    }

    /// How many ranks the platform has.
    pub(crate) fn ranks(&self) -> usize {
        self.filling() + self.sites * self.beside
    }

    /// How many ranks fill all nodes.
    fn filling(&self) -> usize {
        self.sites * self.nodes * self.slots
    }

    /// The site and the node of each rank.
    fn places(&self) -> Vec<(usize, usize)> {
        let (nodes, slots) = (self.nodes, self.slots);
        let place = |rank: usize| match self.order {
            Order::BySite => (rank / slots / nodes, rank / slots % nodes),
            Order::InTurns => (rank % self.sites, rank / self.sites % nodes),
        };
        let beside = (0..self.sites * self.beside).map(|rank| (rank % self.sites, 0));
        (0..self.filling()).map(place).chain(beside).collect()
    }

    /// The platform as mpi/smpi/grid.cpp reads it.
    pub(crate) fn grid(&self) -> String {
        let link = |what: &str, link: PlatformLink| {
            format!("{what} {:.9} {:.0}\n", link.delay.as_secs_f64(), link.bytes_per_second)
        };
        format!("ranks {} {} {}\n", self.sites, self.nodes, self.slots)
            + &link("access", self.access)
            + &link("lan", self.lan)
            + &link("memory", self.memory)
    }

    /// The host of each rank, as smpirun reads it.
    pub(crate) fn hostfile(&self) -> String {
        let mut taken = BTreeMap::new();
        let mut text = String::new();
        for (site, node) in self.places() {
            let slot = taken.entry((site, node)).or_insert(0_usize);
            let _ = writeln!(text, "r{}.n{node}.s{site}", *slot % self.slots);
            *slot += 1;
        }
        text
    }

    /// The topology that the library for MPI reads: places, and paths as agents would have measured
    /// them.
    pub(crate) fn topology(&self) -> String {
        let mut text = "isthmus topology 1\n".to_owned();
        for site in 0..self.sites {
            let _ = writeln!(text, "site s{site}");
        }
        for (site, node) in (0..self.sites).flat_map(|site| (0..self.nodes).map(move |node| (site, node))) {
            let _ = writeln!(text, "node n{node}.s{site} s{site}");
        }
        let within = if self.nodes > 1 { self.between_nodes() } else { self.memory };
        let between = PlatformLink {
            delay: 2 * (self.access.delay + self.lan.delay),
            bytes_per_second: self.access.bytes_per_second.min(self.lan.bytes_per_second),
        };
        for site in 0..self.sites {
            text += &self.path(site, site, within);
        }
        for (from, to) in pairs(self.sites).filter(|(from, to)| from < to) {
            text += &self.path(from, to, between);
        }
        for (rank, (site, node)) in self.places().iter().enumerate() {
            let _ = writeln!(text, "rank {rank} n{node}.s{site}");
        }
        text
    }

    fn between_nodes(&self) -> PlatformLink {
        PlatformLink { delay: 2 * self.lan.delay, ..self.lan }
    }

    fn path(&self, from: usize, to: usize, link: PlatformLink) -> String {
        let microseconds = 2e6 * link.delay.as_secs_f64();
        format!("path s{from} s{to} {microseconds:.3} {:.0}\n", link.bytes_per_second * self.share)
    }
}

/// All pairs of different sites, each in both orders.
fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |from| (0..sites).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::root;

    fn small(order: Order) -> Platform {
        let link = |micros, bytes_per_second| PlatformLink {
            delay: Duration::from_micros(micros),
            bytes_per_second,
        };
        Platform {
            name: "small".into(),
            sites: 2,
            nodes: 2,
            slots: 2,
            order,
            access: link(1000, 25e6),
            lan: link(50, 125e6),
            memory: link(1, 1e9),
            share: 0.5,
            beside: 0,
            processors: None,
        }
    }

    #[test]
    fn further_ranks_share_the_first_node() {
        let platform = Platform { beside: 1, ..small(Order::BySite) };
        assert_eq!(platform.ranks(), 10);
        assert!(platform.hostfile().ends_with("r0.n0.s0\nr0.n0.s1\n"), "{}", platform.hostfile());
        assert!(platform.topology().contains("rank 8 n0.s0\nrank 9 n0.s1\n"));
    }

    #[test]
    fn ranks_are_in_order() {
        for (order, want) in [
            (Order::BySite, "r0.n0.s0 r1.n0.s0 r0.n1.s0 r1.n1.s0 r0.n0.s1 r1.n0.s1 r0.n1.s1 r1.n1.s1"),
            (Order::InTurns, "r0.n0.s0 r0.n0.s1 r0.n1.s0 r0.n1.s1 r1.n0.s0 r1.n0.s1 r1.n1.s0 r1.n1.s1"),
        ] {
            let hosts = small(order).hostfile();
            assert_eq!(hosts.lines().collect::<Vec<_>>().join(" "), want, "{order:?}");
        }
    }

    #[test]
    fn the_topology_has_round_trips_and_what_programs_get() {
        let text = small(Order::BySite).topology();
        for line in ["path s0 s1 4200.000 12500000", "path s1 s1 200.000 62500000", "rank 4 n0.s1"] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in {text}");
        }
    }

    #[test]
    fn the_grid_has_its_shape_and_its_links() {
        let want = "ranks 2 2 2\naccess 0.001000000 25000000\nlan 0.000050000 125000000\n\
                    memory 0.000001000 1000000000\n";
        assert_eq!(small(Order::BySite).grid(), want);
    }

    /// The platform of the lab has what bench/grids/coll.toml says about its links.
    #[test]
    fn the_lab_is_what_its_grid_says() {
        let grid = Grid::load(&root().join("bench/grids/coll.toml")).unwrap();
        let platform = Platform::of_lab(&grid, 16, Order::InTurns).unwrap();
        assert_eq!((platform.ranks(), platform.sites, platform.slots), (16, 4, 4));
        assert_eq!(
            platform.access,
            PlatformLink { delay: Duration::from_micros(2650), bytes_per_second: 25e6 }
        );
        assert!(platform.topology().contains("path s0 s1 10600.000 24133333\n"), "{}", platform.topology());
        assert!(Platform::of_lab(&grid, 18, Order::InTurns).is_err());
    }
}
