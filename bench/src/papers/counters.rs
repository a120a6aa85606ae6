//! What TCP counted while gathers ran, and the processor time of a trunk's ends and of programs: tables
//! 1 and 2 and figures 11 to 13 of Alter and Glück, RR-6986.

use serde::Deserialize;

use super::tables::{NOTHING, heading, line};
use crate::report::figures;

/// Gathers that the paper counts over.
const GATHERS: f64 = 200.0;
/// The link of the tables: as long a queue as the paper's network had without gateways is unknown, and
/// the shortest one loses the most.
const LINKS: [&str; 3] = ["queue BDP, loss 0 %", "queue 256 KiB, loss 0 %", "queue 64 KiB, loss 0 %"];
const WAYS: [&str; 4] = ["own CUBIC", "own BBR", "trunk without BBR", "trunk with BBR"];
/// What the paper counts over the long link without MPI5000 and with it, for so many senders and bytes
/// (tables 1 and 2): fast retransmits, timeouts.
const PAPER: [(&str, [[u32; 2]; 2]); 6] = [
    ("4 × 100 KB", [[0, 0], [0, 0]]),
    ("4 × 1 MB", [[17, 1], [1, 1]]),
    ("10 × 100 KB", [[0, 0], [0, 0]]),
    ("10 × 1 MB", [[75, 2], [0, 0]]),
    ("20 × 100 KB", [[31, 0], [1, 0]]),
    ("20 × 1 MB", [[121, 2], [1, 3]]),
];
/// Our numbers of senders and sizes, each with the paper's that is the nearest.
const ROWS: [(&str, &str); 6] = [
    ("2 × 100 KB", "4 × 100 KB"),
    ("2 × 1 MB", "4 × 1 MB"),
    ("10 × 100 KB", "10 × 100 KB"),
    ("10 × 1 MB", "10 × 1 MB"),
    ("19 × 100 KB", "20 × 100 KB"),
    ("19 × 1 MB", "20 × 1 MB"),
];
const SENDERS: [u32; 3] = [2, 10, 19];
const SIZES: [&str; 5] = ["1 KB", "10 KB", "100 KB", "1 MB", "10 MB"];
const NONE: &str = "not measured";

/// A way's counts of a gather, as `trunk-counts.json` has them.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Counted {
    what: String,
    way: String,
    gathers: f64,
    bytes: f64,
    senders: Tcp,
    /// Processor seconds of the end beside the senders, and of the one beside the receiver.
    ends_seconds: [f64; 2],
    /// Processor seconds of the senders together, and of the receiver. Earlier counts lack them.
    programs_seconds: Option<[f64; 2]>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Tcp {
    fast_retransmits: f64,
    timeouts: f64,
}

/// What a table counts: the number in the paper's pairs, and how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// Table 1.
    FastRetransmits,
    /// Table 2.
    Timeouts,
}

fn found<'a>(counted: &'a [Counted], gather: &str, link: &str, way: &str) -> Option<&'a Counted> {
    let what = format!("gather {gather}, {link}");
    counted.iter().find(|one| one.what == what && one.way == way && one.gathers > 0.0)
}

/// The paper's table and ours: counts for 200 gathers, by way.
pub(super) fn counts(counted: Option<&[Counted]>, count: Count) -> String {
    let Some(counted) = counted else { return NOTHING.to_owned() };
    let paper = ["paper: without MPI5000", "with it"];
    let columns: Vec<_> = ["senders × size", "link"].into_iter().chain(WAYS).chain(paper).collect();
    let mut table = heading(&columns);
    for (gather, nearest) in ROWS {
        for link in LINKS {
            let cell = |way| match found(counted, gather, link, way) {
                None => NONE.to_owned(),
                Some(one) => {
                    let number = match count {
                        Count::FastRetransmits => one.senders.fast_retransmits,
                        Count::Timeouts => one.senders.timeouts,
                    };
                    format!("{:.0}", number * GATHERS / one.gathers)
                }
            };
            let theirs =
                PAPER.iter().find(|(name, _)| *name == nearest).map(|(_, pairs)| pairs[count as usize]);
            let theirs = theirs.map(|pair| pair.map(|number| format!("{number} ({nearest})")));
            let first = [gather.to_owned(), link.to_owned()];
            let ours = WAYS.map(cell);
            line(&mut table, &[&first[..], &ours, &theirs.unwrap_or_default()].concat());
        }
    }
    table
}

/// Processor seconds per GB of a trunk's two ends, by size and senders (figure 12). The first link
/// of the tables counts.
pub(super) fn processors(counted: Option<&[Counted]>) -> String {
    let Some(counted) = counted else { return NOTHING.to_owned() };
    let columns: Vec<_> = ["senders", "which end"].into_iter().chain(SIZES).collect();
    let mut table = heading(&columns);
    for senders in SENDERS {
        for (end, name) in ["beside the senders", "beside the receiver"].into_iter().enumerate() {
            let cell = |size| {
                let gather = format!("{senders} × {size}");
                let one = found(counted, &gather, LINKS[0], "trunk with BBR");
                let per_gb = one.map(|one| one.ends_seconds[end] / one.bytes * 1e9);
                per_gb.map_or_else(|| NONE.to_owned(), |seconds| format!("{} s", figures(seconds)))
            };
            line(&mut table, &[&[senders.to_string(), name.to_owned()][..], &SIZES.map(cell)].concat());
        }
    }
    table
}

/// Processor seconds per GB on the nodes of the senders and on that of the receiver, by size and senders:
/// those of the programs with connections of their own (figure 11), and those of the programs and the
/// trunk's ends (figure 13). The first link of the tables counts.
pub(super) fn nodes(counted: Option<&[Counted]>) -> String {
    let Some(counted) = counted else { return NOTHING.to_owned() };
    let columns: Vec<_> = ["senders", "where", "by"].into_iter().chain(SIZES).collect();
    let mut table = heading(&columns);
    for senders in SENDERS {
        for (end, place) in ["senders' nodes", "receiver's node"].into_iter().enumerate() {
            for way in ["own CUBIC", "trunk with BBR"] {
                let cell = |size| {
                    let one = found(counted, &format!("{senders} × {size}"), LINKS[0], way)?;
                    let ends = if way == "own CUBIC" { 0.0 } else { one.ends_seconds[end] };
                    Some((one.programs_seconds?[end] + ends) / one.bytes * 1e9)
                };
                let cells = SIZES.map(|size| {
                    cell(size).map_or_else(|| NONE.to_owned(), |seconds| format!("{} s", figures(seconds)))
                });
                let first = [senders.to_string(), place.to_owned(), way.to_owned()];
                line(&mut table, &[&first[..], &cells].concat());
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_for_200_gathers() {
        let counted = Counted {
            what: "gather 10 × 1 MB, queue BDP, loss 0 %".into(),
            way: "own CUBIC".into(),
            gathers: 50.0,
            bytes: 500e6,
            senders: Tcp { fast_retransmits: 20.0, timeouts: 1.0 },
            ends_seconds: [0.0, 0.0],
            programs_seconds: Some([0.25, 0.5]),
        };
        let trunk = Counted { way: "trunk with BBR".into(), ends_seconds: [1.0, 2.0], ..counted.clone() };
        let both = [counted, trunk];
        let table = counts(Some(&both), Count::FastRetransmits);
        let want = "| 10 × 1 MB | queue BDP, loss 0 % | 80 | not measured | not measured | 80 | 75 (10 × 1 MB) | 2 (10 × 1 MB) |";
        assert!(table.contains(want), "{table}");
        assert!(
            counts(Some(&both), Count::Timeouts)
                .contains("| 4 | not measured | not measured | 4 | 0 (10 × 1 MB) | 0")
        );
        let table = processors(Some(&both));
        assert!(
            table.contains(
                "| 10 | beside the receiver | not measured | not measured | not measured | 4.00 s |"
            ),
            "{table}"
        );
        assert_eq!(processors(None), NOTHING);
        let table = nodes(Some(&both));
        for (place, way, want) in [
            ("senders' nodes", "own CUBIC", "0.500"),
            ("receiver's node", "own CUBIC", "1.00"),
            ("senders' nodes", "trunk with BBR", "2.50"),
            ("receiver's node", "trunk with BBR", "5.00"),
        ] {
            let want =
                format!("| 10 | {place} | {way} | not measured | not measured | not measured | {want} s |");
            assert!(table.contains(&want), "{want} {table}");
        }
    }
}
