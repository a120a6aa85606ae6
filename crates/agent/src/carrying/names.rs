//! What the ends of handed-over sockets are called, by `SO_COOKIE`: for
//! processes that inherited a socket over `exec` and know nothing of it.

use std::collections::{HashMap, VecDeque};

use isthmus_wire::shim::End;

/// Names kept at most per job; the oldest go first. 48 bytes each.
const CAPACITY: usize = 1 << 18;

/// The names.
#[derive(Debug, Default)]
pub struct Names {
    ends: HashMap<u64, Ends>,
    order: VecDeque<u64>,
}

/// Both ends of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// This node's end.
    pub local: End,
    /// The other one.
    pub peer: End,
}

impl Names {
    /// Remembers a socket. The kernel uses no cookie twice.
    pub fn insert(&mut self, cookie: u64, ends: Ends) {
        if self.ends.insert(cookie, ends).is_none() {
            self.order.push_back(cookie);
        }
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.ends.remove(&oldest);
        }
    }

    /// The ends of a socket.
    pub fn find(&self, cookie: u64) -> Option<Ends> {
        self.ends.get(&cookie).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let ends = Ends { local: End::NONE, peer: End::NONE };
        let mut names = Names::default();
        for cookie in 0..=CAPACITY as u64 {
            names.insert(cookie, ends);
        }
        assert_eq!(names.find(0), None);
        assert_eq!(names.find(1), Some(ends));
        assert_eq!(names.find(CAPACITY as u64), Some(ends));
    }
}
