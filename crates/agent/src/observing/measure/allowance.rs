//! How often one node may measure the way to another. Plain data; the caller passes
//! the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Most measurements by one node within [`WINDOW`]: as often as the broker has one
/// pair of nodes measured at most.
const MOST: u32 = 12;
const WINDOW: Duration = Duration::from_secs(60);
/// Most nodes that are kept. At this number, nodes of former windows are dropped; if
/// that frees no place, new nodes are refused.
const MOST_NODES: usize = 4096;

/// The begin of each node's window, and its measurements since.
#[derive(Debug, Default)]
pub(super) struct Allowance(HashMap<String, (Instant, u32)>);

impl Allowance {
    /// Whether a node may measure now; counts it if so.
    pub(super) fn allow(&mut self, node: &str, now: Instant) -> bool {
        let over = |since: &Instant| now.saturating_duration_since(*since) >= WINDOW;
        if !self.0.contains_key(node) && self.0.len() >= MOST_NODES {
            self.0.retain(|_, (since, _)| !over(since));
            if self.0.len() >= MOST_NODES {
                return false;
            }
        }
        let (since, count) = self.0.entry(node.to_owned()).or_insert((now, 0));
        if over(since) {
            (*since, *count) = (now, 0);
        }
        let allowed = *count < MOST;
        *count += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_may_measure_12_times_in_a_minute() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let allowed = (0..100).filter(|_| allowance.allow("n1.alpha", start)).count();
        assert_eq!(allowed, 12);
        assert!(allowance.allow("n2.alpha", start), "another one");
        assert!(!allowance.allow("n1.alpha", start + WINDOW - Duration::from_secs(1)));
        assert!(allowance.allow("n1.alpha", start + WINDOW));
    }

    #[test]
    fn many_nodes_do_not_fill_the_memory() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let allowed = (0..MOST_NODES + 10).filter(|n| allowance.allow(&n.to_string(), start)).count();
        assert_eq!(allowed, MOST_NODES);
        assert!(allowance.allow("1", start), "one that is known");
        assert!(allowance.allow("n1.alpha", start + WINDOW));
        assert_eq!(allowance.0.len(), 1);
    }
}
