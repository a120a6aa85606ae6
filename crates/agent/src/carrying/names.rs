//! The names of both ends of handed-over sockets, by `SO_COOKIE`. A process that
//! inherited a socket over `exec` has no record of them.

use std::collections::{HashMap, VecDeque};

use isthmus_wire::shim::Endpoint;

/// Most names that are kept per job, 48 bytes each; the oldest are dropped first.
const CAPACITY: usize = 1 << 18;

/// The names of both ends of a job's sockets, by `SO_COOKIE`.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ends: HashMap<u64, Ends>,
    order: VecDeque<u64>,
}

/// Both ends of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The address and port of this node's end, as the program sees them.
    pub local: Endpoint,
    /// The address and port of the other end, as the program sees them.
    pub peer: Endpoint,
    /// Whether the program has the connection as an IPv6 socket.
    pub is_v6: bool,
}

impl Names {
    /// Adds a socket. The kernel uses no cookie twice.
    pub(crate) fn insert(&mut self, cookie: u64, ends: Ends) {
        if self.ends.insert(cookie, ends).is_none() {
            self.order.push_back(cookie);
        }
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.ends.remove(&oldest);
        }
    }

    /// Notes that the program has this socket as an IPv6 one.
    pub(crate) fn is_v6(&mut self, cookie: u64) {
        if let Some(ends) = self.ends.get_mut(&cookie) {
            ends.is_v6 = true;
        }
    }

    pub(crate) fn find(&self, cookie: u64) -> Option<Ends> {
        self.ends.get(&cookie).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_dropped_first() {
        let ends = Ends { local: Endpoint::NONE, peer: Endpoint::NONE, is_v6: false };
        let mut names = Names::default();
        for cookie in 0..=CAPACITY as u64 {
            names.insert(cookie, ends);
        }
        assert_eq!(names.find(0), None);
        assert_eq!(names.find(1), Some(ends));
        assert_eq!(names.find(CAPACITY as u64), Some(ends));
        names.is_v6(1);
        assert_eq!(names.find(1), Some(Ends { is_v6: true, ..ends }));
    }
}
