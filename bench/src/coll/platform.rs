//! The sites over which calls are measured, and how ranks are placed on them.

use std::fmt::{self, Write as _};

use anyhow::Context as _;
use isthmus_lab::{Grid, GridError};

use crate::grid::{Node, root};
use crate::mpi::Mpi;

/// The sites and ranks of a call. A site's ranks are spread over its nodes evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Platform {
    /// Name of the grid in bench/grids.
    pub grid: &'static str,
    /// How many of the grid's sites take part.
    pub sites: usize,
    pub ranks_per_site: u32,
    /// The platform's name in rows.
    pub name: &'static str,
}

/// The platforms of each grid. The last is that of paper 2.
pub(super) const PLATFORMS: [&[Platform]; 2] = [
    &[
        Platform { grid: "coll", sites: 4, ranks_per_site: 2, name: "" },
        Platform { grid: "coll", sites: 3, ranks_per_site: 2, name: ", three sites" },
        Platform { grid: "coll", sites: 2, ranks_per_site: 2, name: ", two sites" },
    ],
    &[Platform { grid: "coll-clusters", sites: 2, ranks_per_site: 16, name: ", 32 ranks on two clusters" }],
];

impl Platform {
    /// The grid as described, without slow motion.
    pub(super) fn described(self) -> Result<Grid, GridError> {
        Grid::load(&root().join(format!("bench/grids/{}.toml", self.grid)))
    }

    pub(super) fn ranks(self) -> u32 {
        u32::try_from(self.sites).unwrap_or(u32::MAX).saturating_mul(self.ranks_per_site)
    }

    /// The nodes in the order in which the launcher is to take them, so that ranks are placed as in
    /// `layout`.
    pub(super) fn nodes(self, grid: &Grid, all: &[Node], layout: Layout) -> Vec<Node> {
        let count = grid.sites.iter().take(self.sites).map(|site| site.nodes.len()).sum();
        let mut nodes: Vec<Node> = all.iter().take(count).cloned().collect();
        if layout == Layout::Turns {
            // The first node of each site, then the second.
            nodes.sort_by_key(|node| node.name.split('.').next().map(str::to_owned));
        }
        nodes
    }

    /// The topology that the library for MPI reads: the paths between sites as the grid describes
    /// them, as agents would measure them. So the library chooses in slow motion what it would
    /// choose otherwise. `nodes` are in the launcher's order.
    ///
    /// # Errors
    /// A link has no rate, or there is no node.
    pub(super) fn topology(self, grid: &Grid, nodes: &[Node], layout: Layout) -> anyhow::Result<String> {
        let sites = grid.sites.get(..self.sites).context("the grid has fewer sites")?;
        let mut text = "isthmus topology 1\n".to_owned();
        for site in sites {
            let _ = writeln!(text, "site {}", site.name);
        }
        for Node { name, .. } in nodes {
            let site = name.split_once('.').context("a node has no site")?.1;
            let _ = writeln!(text, "node {name} {site}");
        }
        for (at, from) in sites.iter().enumerate() {
            for to in &sites[at + 1..] {
                let [one, other] = [from, to].map(|site| site.link.up);
                let rtt = 2 * (one.delay.duration() + other.delay.duration());
                let rate = one.rate.into_iter().chain(other.rate).min().context("a link has no rate")?;
                let bytes_per_second = rate.bits_per_second() / 8;
                let _ =
                    writeln!(text, "path {} {} {} {bytes_per_second}", from.name, to.name, rtt.as_micros());
            }
        }
        let ranks = usize::try_from(self.ranks())?;
        let each = ranks.checked_div(nodes.len()).context("there is no node")?;
        for rank in 0..ranks {
            let at = if layout == Layout::Turns { rank % nodes.len() } else { rank / each };
            let node = nodes.get(at).context("the ranks don't fill the nodes evenly")?;
            let _ = writeln!(text, "rank {rank} {}", node.name);
        }
        Ok(text)
    }
}

/// How ranks are placed on the sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// The ranks of a site follow each other, as launchers place them.
    Blocks,
    /// Each rank is at the next site, in turns.
    Turns,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocks => "",
            Self::Turns => ", sites in turns",
        })
    }
}

impl Layout {
    pub(super) const ALL: [Self; 2] = [Self::Blocks, Self::Turns];

    pub(super) fn options(self, mpi: Mpi) -> Vec<String> {
        match self {
            Self::Blocks => mpi.in_blocks(),
            Self::Turns => mpi.on_shared_cores(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_the_sites_that_take_part() {
        for (platform, layout, want) in [
            (PLATFORMS[0][0], Layout::Turns, &["n1.alpha", "n1.beta", "n1.gamma", "n1.delta"][..]),
            (PLATFORMS[0][2], Layout::Blocks, &["n1.alpha", "n1.beta"]),
            (PLATFORMS[1][0], Layout::Blocks, &["n1.alpha", "n2.alpha", "n1.beta", "n2.beta"]),
            (PLATFORMS[1][0], Layout::Turns, &["n1.alpha", "n1.beta", "n2.alpha", "n2.beta"]),
        ] {
            let grid = platform.described().unwrap();
            let all: Vec<Node> = grid
                .machines()
                .filter(|(name, _)| name.contains('.'))
                .map(|(name, _)| Node { name, address: std::net::Ipv4Addr::LOCALHOST })
                .collect();
            let names: Vec<_> =
                platform.nodes(&grid, &all, layout).into_iter().map(|node| node.name).collect();
            assert_eq!(names, want, "{platform:?}, {layout:?}");
        }
    }

    #[test]
    fn the_library_is_told_the_paths_without_slow_motion() {
        let platform = PLATFORMS[1][0];
        let grid = platform.described().unwrap();
        let nodes = ["n1.alpha", "n1.beta", "n2.alpha", "n2.beta"]
            .map(|name| Node { name: name.into(), address: std::net::Ipv4Addr::LOCALHOST });
        let text = platform.topology(&grid, &nodes, Layout::Turns).unwrap();
        assert!(text.contains("path alpha beta 15600 17000000\n"), "{text}");
        assert!(text.contains("rank 3 n2.beta\nrank 4 n1.alpha\n"), "{text}");
        let mut in_blocks = nodes.to_vec();
        in_blocks.swap(1, 2);
        let text = platform.topology(&grid, &in_blocks, Layout::Blocks).unwrap();
        assert!(text.contains("rank 7 n1.alpha\nrank 8 n2.alpha\n"), "{text}");
        assert!(platform.topology(&grid, &[], Layout::Blocks).is_err());
    }
}
