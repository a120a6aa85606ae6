//! Which of the site's nodes may connect for which stream. A ticket admits only the node that the
//! broker gave it to, not a node that has a copy. Plain data; the caller has the clock.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use isthmus_wire::ConnectionId;

/// How long a node is expected: as long as the broker's tickets are valid.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most streams that are expected at once. Beyond that, the oldest are dropped: most likely their
/// nodes have connected.
const MAX: usize = 1 << 16;

/// The nodes that are expected, by connection.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    nodes: HashMap<ConnectionId, (IpAddr, Instant)>,
    oldest_first: VecDeque<(ConnectionId, Instant)>,
}

impl Expected {
    /// Notes that the node at this address may connect for this connection's stream.
    pub(crate) fn add(&mut self, connection: ConnectionId, node: IpAddr, now: Instant) {
        while let Some((oldest, since)) = self.oldest_first.front().copied() {
            if now.saturating_duration_since(since) < PATIENCE && self.nodes.len() < MAX {
                break;
            }
            self.oldest_first.pop_front();
            if self.nodes.get(&oldest).is_some_and(|(_, at)| *at == since) {
                self.nodes.remove(&oldest);
            }
        }
        self.nodes.insert(connection, (node.to_canonical(), now));
        self.oldest_first.push_back((connection, now));
    }

    /// Whether a peer at this address may connect for this connection's stream. The ticket limits
    /// how often.
    pub(crate) fn allows(&self, connection: ConnectionId, from: IpAddr, now: Instant) -> bool {
        self.nodes.get(&connection).is_some_and(|(node, since)| {
            *node == from.to_canonical() && now.saturating_duration_since(*since) < PATIENCE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_for_one_node_and_for_a_while() {
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        let connection = |id: u8| ConnectionId([id; 16]);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut expected = Expected::default();
        expected.add(connection(1), ip(1), at(0));
        assert!(!expected.allows(connection(2), ip(1), at(1)), "no node is expected");
        assert!(!expected.allows(connection(1), ip(2), at(1)), "another node");
        assert!(expected.allows(connection(1), "::ffff:10.0.0.1".parse().unwrap(), at(1)));
        expected.add(connection(3), ip(1), at(2));
        assert!(!expected.allows(connection(3), ip(1), at(62)), "too late");
        expected.add(connection(4), ip(1), at(70));
        assert_eq!((expected.nodes.len(), expected.oldest_first.len()), (1, 1), "an old one is dropped");
    }

    #[test]
    fn their_number_is_bounded() {
        let now = Instant::now();
        let mut expected = Expected::default();
        for number in 0..MAX as u128 + 10 {
            expected.add(ConnectionId(number.to_be_bytes()), IpAddr::from([10, 0, 0, 1]), now);
        }
        assert_eq!(expected.nodes.len(), MAX);
        assert!(!expected.allows(ConnectionId(0u128.to_be_bytes()), IpAddr::from([10, 0, 0, 1]), now));
    }
}
