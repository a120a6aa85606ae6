use isthmus_lab::grid::{BitRate, LinkBuilder, Site as GridSite, Slow};

use super::*;
use crate::grid::root;

/// The sites of a grid of bench/grids.
fn sites(grid: &str, slow: u32, count: usize, ranks: u32) -> Sites {
    let grid = Grid::load(&root().join(format!("bench/grids/{grid}.toml"))).unwrap();
    Sites::of(&grid.slowed(Slow::try_from(slow).unwrap()).unwrap(), count, ranks).unwrap()
}

fn assert_bounds(sites: &Sites, rows: &[(Operation, usize, u64, f64, f64)]) {
    for (operation, root, bytes, needed, least) in rows {
        let found = sites.bound(*operation, *root, *bytes);
        for (name, found, want) in [("needed", found.needed, needed), ("least", found.least, least)] {
            let found = found.as_secs_f64() * 1e3;
            assert!((found - want).abs() < 1e-3, "{operation:?}, {bytes} B, {name}: {found} ms, not {want}");
        }
    }
}

/// 106 ms and 10 Mb/s: N is 0.0064 ms for 8 B, 3.2768 ms for 4 KiB, 26.2144 ms for 32 KiB, 52.4288
/// ms for 64 KiB, and 209.7152 ms for 256 KiB.
#[test]
fn four_sites_in_slow_motion() {
    use Operation::*;
    assert_bounds(
        &sites("coll", 20, 4, 2),
        &[
            (Barrier, 0, 8, 106.0, 106.0),
            // One crossing to three sites: 106 + 3 N. Six ranks are elsewhere: 106 + 6 N.
            (Bcast, 0, 8, 106.0192, 106.0192),
            (Reduce, 0, 8, 106.0192, 106.0192),
            (Allreduce, 0, 8, 106.0192, 106.0192),
            (Gather, 0, 8, 106.0384, 106.0384),
            (Scatter, 0, 8, 106.0384, 106.0384),
            (Allgather, 0, 8, 106.0384, 106.0384),
            (Allreduce, 0, 4 << 10, 115.8304, 115.8304),
            (Bcast, 0, 32 << 10, 184.6432, 184.6432),
            (Allreduce, 0, 32 << 10, 184.6432, 184.6432),
            // One crossing still needs less: 106 + 3 N is less than 212 + N. Some bytes of a Bcast can
            // cross once and others twice: 212 + N - 106 / 3.
            (Bcast, 0, 64 << 10, 263.2864, 229.0955),
            // Two crossings: 212 + N.
            (Bcast, 0, 256 << 10, 421.7152, 386.3819),
            (Reduce, 0, 256 << 10, 421.7152, 386.3819),
            // 212 + 1.5 N. The links can be busy while results cross: 106 + 1.5 N.
            (Allreduce, 0, 256 << 10, 526.5728, 420.5728),
            (Allgather, 0, 256 << 10, 1364.2912, 1364.2912),
            (Gather, 0, 256 << 10, 1364.2912, 1364.2912),
            (Scatter, 3, 256 << 10, 1364.2912, 1364.2912),
        ],
    );
}

#[test]
fn two_sites_cross_once() {
    use Operation::*;
    // 106 + N, and 106 + 2 N.
    assert_bounds(
        &sites("coll", 20, 2, 2),
        &[
            (Bcast, 0, 256 << 10, 315.7152, 315.7152),
            (Reduce, 1, 256 << 10, 315.7152, 315.7152),
            (Allreduce, 0, 256 << 10, 315.7152, 315.7152),
            (Allgather, 0, 256 << 10, 525.4304, 525.4304),
        ],
    );
    // 7.8 ms and 136 Mb/s, so 17 MB/s: N is 61.6809 ms for 1 MiB.
    assert_bounds(
        &sites("coll-clusters", 1, 2, 16),
        &[
            (Barrier, 0, 8, 7.8, 7.8),
            (Bcast, 0, 1 << 20, 69.4809, 69.4809),
            (Reduce, 0, 1 << 20, 69.4809, 69.4809),
            // 16 ranks are elsewhere.
            (Gather, 0, 1 << 20, 994.6951, 994.6951),
        ],
    );
}

/// Sites named a, b and so on.
fn grid(links: Vec<LinkBuilder>) -> Grid {
    let names = ["a", "b", "c"].into_iter();
    let sites = names.zip(links).map(|(name, link)| GridSite::open(name).nodes(1).link(link));
    sites.fold(Grid::build("sites"), isthmus_lab::grid::GridBuilder::site).grid().unwrap()
}

fn link(milliseconds: u64) -> LinkBuilder {
    Link::build().delay(Duration::from_millis(milliseconds))
}

/// Sites with 1 MB/s, 2 MB/s, and no rate. From a to b it takes 3 ms, from a to c 5, from b to c 6,
/// from c to a 4, from c to b 5.
#[test]
fn sites_that_differ() {
    use Operation::*;
    let links = vec![
        link(1).rate(BitRate(8_000_000)),
        link(2).rate(BitRate(16_000_000)),
        Link::build().up(link(3)).down(link(4)),
    ];
    assert_bounds(
        &Sites::of(&grid(links), 3, 2).unwrap(),
        &[
            (Barrier, 0, 0, 6.0, 6.0),
            // a's link carries the bytes in 10 ms. The shortest ways are 3 ms, and 5 ms from c to b.
            (Bcast, 0, 10_000, 18.0, 15.5),
            (Reduce, 0, 10_000, 18.0, 15.5),
            // b's link takes 5 ms, but a's takes 10.
            (Reduce, 1, 10_000, 13.0, 13.0),
            // c's link is no limit to the sum: a Bcast from a takes longest.
            (Allreduce, 0, 10_000, 15.5, 15.5),
            (Scatter, 0, 10_000, 43.0, 43.0),
            (Allgather, 0, 10_000, 43.0, 43.0),
        ],
    );
}

#[test]
fn more_than_a_link_for_each_site_has_no_bound() {
    let jittered = grid(vec![link(1), link(2).jitter(Duration::from_millis(1))]);
    let plain = grid(vec![link(1), link(2)]);
    for (name, grid, sites, want) in [
        ("plain", &plain, 2, true),
        ("one site", &plain, 1, false),
        ("too many sites", &plain, 3, false),
        ("jitter", &jittered, 2, false),
    ] {
        assert_eq!(Sites::of(grid, sites, 1).is_ok(), want, "{name}");
    }
}
