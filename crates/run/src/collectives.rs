//! What the account of a job says of its collectives.

use std::collections::BTreeMap;

use isthmus_front::format::{bytes, count};
use isthmus_wire::proto;
use serde::Serialize;

/// Most operations, or pairs of sites, on one line.
const NAMED_MAX: usize = 16;

/// What the MPI library has done in the ranks that have ended in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Collectives {
    /// How many ranks have reported.
    pub ranks: u32,
    /// Calls of each operation with each algorithm, of all ranks together.
    pub calls: Vec<Calls>,
    /// Messages of the library itself between sites. Messages of the MPI's own collectives aren't
    /// among them.
    pub between_sites: Vec<Crossing>,
    /// Messages that any algorithm would have had to send between sites for the same calls.
    pub least_messages: u64,
    /// Bytes that any algorithm would have had to send between sites for the same calls.
    pub least_bytes: u64,
    /// Topologies whose ranks could have been put into a better order; absent if there are none.
    pub reorderable: Option<Reordering>,
    /// Topologies whose ranks were put into a better order; absent if there are none.
    pub reordered: Option<Reordering>,
}

/// Topologies that the program has made with `reorder`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reordering {
    pub topologies: u64,
    /// Weight of their edges between sites, with the ranks as the program has them.
    pub weight: u64,
    /// Weight of their edges between sites, with the ranks in the better order.
    pub weight_reordered: u64,
}

impl From<proto::Reordering> for Reordering {
    fn from(told: proto::Reordering) -> Self {
        let proto::Reordering { topologies, weight, weight_reordered } = told;
        Self { topologies, weight, weight_reordered }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Calls {
    pub operation: String,
    /// The algorithm's name; `native` for the MPI's own.
    pub algorithm: String,
    pub calls: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Crossing {
    pub from: String,
    pub to: String,
    pub messages: u64,
    pub bytes: u64,
}

impl Collectives {
    pub(super) fn new(told: &proto::Collectives) -> Self {
        let calls = told.taken.iter().map(|taken| Calls {
            operation: taken.operation.clone(),
            algorithm: taken.algorithm.clone(),
            calls: taken.calls,
        });
        let crossings = told.crossings.iter().map(|crossing| Crossing {
            from: crossing.from.clone(),
            to: crossing.to.clone(),
            messages: crossing.messages,
            bytes: crossing.bytes,
        });
        Self {
            ranks: told.processes,
            calls: calls.collect(),
            between_sites: crossings.collect(),
            least_messages: told.least_messages,
            least_bytes: told.least_bytes,
            reorderable: told.reorderable.map(Reordering::from),
            reordered: told.reordered.map(Reordering::from),
        }
    }

    /// Lines on the program's topologies with `reorder`.
    fn reordering(&self) -> String {
        let whose = |of: &Reordering| match of.topologies {
            1 => "1 topology with `reorder`: its edges between sites weigh".to_owned(),
            number => format!("{number} topologies with `reorder`: their edges between sites weigh"),
        };
        let mut text = String::new();
        if let Some(of) = &self.reorderable {
            text.push_str(&format!(
                "  {} {}, with --reorder {}\n",
                whose(of),
                of.weight,
                of.weight_reordered
            ));
        }
        if let Some(of) = &self.reordered {
            text.push_str(&format!("  {} {} instead of {}\n", whose(of), of.weight_reordered, of.weight));
        }
        text
    }

    /// The account's lines on collectives. `expected` says that ranks have run to their ends, at
    /// several sites.
    pub(super) fn text(&self, expected: bool) -> String {
        if self.ranks == 0 {
            let line = "  collectives: no rank has used MPI through isthmus' library; if the program links its MPI \
                        statically, they are the MPI's own\n";
            return if expected { line.to_owned() } else { String::new() };
        }
        if self.calls.is_empty() {
            return self.reordering();
        }
        let mut by_operation: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for Calls { operation, algorithm, calls } in &self.calls {
            by_operation.entry(operation).or_default().push(format!("{calls} {algorithm}"));
        }
        let operations = by_operation
            .iter()
            .take(NAMED_MAX)
            .map(|(operation, taken)| format!("{operation} {}", taken.join(" and ")));
        let mut text =
            format!("  collectives, calls of all ranks: {}\n", operations.collect::<Vec<_>>().join(", "));
        let crossings = self.between_sites.iter().take(NAMED_MAX).map(|crossing| {
            let Crossing { from, to, messages, bytes: volume } = crossing;
            format!("{from} → {to} {}, {}", count(*messages, "message"), bytes(*volume))
        });
        let crossings: Vec<_> = crossings.collect();
        if !crossings.is_empty() {
            text.push_str(&format!("  their messages between sites: {}\n", crossings.join("; ")));
        }
        if self.least_messages > 0 {
            let sum = |figure: fn(&Crossing) -> u64| self.between_sites.iter().map(figure).sum();
            text.push_str(&format!(
                "  in all {}, {}; at least {}, {} had to cross\n",
                count(sum(|crossing| crossing.messages), "message"),
                bytes(sum(|crossing| crossing.bytes)),
                count(self.least_messages, "message"),
                bytes(self.least_bytes),
            ));
        }
        text + &self.reordering()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_names_algorithms_and_crossings() {
        let taken = |operation: &str, algorithm: &str, calls| proto::Taken {
            operation: operation.to_owned(),
            algorithm: algorithm.to_owned(),
            calls,
        };
        let told = proto::Collectives {
            processes: 4,
            taken: vec![
                taken("bcast", "leaders", 12),
                taken("bcast", "native", 4),
                taken("barrier", "leaders", 1),
            ],
            crossings: vec![proto::Crossing {
                from: "a".to_owned(),
                to: "b".to_owned(),
                messages: 1,
                bytes: 96,
            }],
            least_messages: 1,
            least_bytes: 48,
            reorderable: Some(proto::Reordering { topologies: 2, weight: 24, weight_reordered: 10 }),
            reordered: None,
        };
        assert_eq!(
            Collectives::new(&told).text(true),
            "  collectives, calls of all ranks: barrier 1 leaders, bcast 12 leaders and 4 native\n  \
             their messages between sites: a → b 1 message, 96 B\n  \
             in all 1 message, 96 B; at least 1 message, 48 B had to cross\n  \
             2 topologies with `reorder`: their edges between sites weigh 24, with --reorder 10\n"
        );
        let reordered = proto::Collectives {
            processes: 4,
            reordered: Some(proto::Reordering { topologies: 1, weight: 12, weight_reordered: 4 }),
            ..proto::Collectives::default()
        };
        assert_eq!(
            Collectives::new(&reordered).text(true),
            "  1 topology with `reorder`: its edges between sites weigh 4 instead of 12\n"
        );
        let none = Collectives::new(&proto::Collectives::default());
        assert_eq!(none.text(false), "");
        assert!(none.text(true).contains("no rank has used MPI"));
    }
}
