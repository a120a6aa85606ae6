//! Entries by the source that they came from, at most a fixed number in all. Does no
//! I/O and reads no clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// The addresses that count as a single sender: an IPv4 address, or the /64 of an IPv6 address,
/// because a host has a whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => write!(f, "{ip}"),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

/// Names an entry of a [`BySource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    source: Source,
    number: u64,
}

/// An entry that was removed to make room.
#[derive(Debug, PartialEq, Eq)]
pub struct Evicted<T> {
    /// The sender of the entry.
    pub source: Source,
    /// The value of the entry.
    pub value: T,
}

/// Entries by source. An entry beyond the capacity evicts the oldest entry of the source that has
/// the most. Among sources with equally many, the source with the oldest entry loses it. So a
/// source with few entries loses none to a source with many.
#[derive(Debug)]
pub struct BySource<T> {
    capacity: usize,
    entered: u64,
    sources: HashMap<Source, BTreeMap<u64, T>>,
    /// Number of entries, oldest entry and source. The source of the last element loses the next
    /// entry.
    ranks: BTreeSet<(usize, Reverse<u64>, Source)>,
    len: usize,
}

impl<T> BySource<T> {
    /// Holds at most `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entered: 0, sources: HashMap::new(), ranks: BTreeSet::new(), len: 0 }
    }

    /// Adds an entry. Returns its key, and the entry that was evicted.
    pub fn enter(&mut self, source: Source, value: T) -> (Key, Option<Evicted<T>>) {
        let number = self.entered;
        self.entered += 1;
        self.change(source, |entries| entries.insert(number, value));
        self.len += 1;
        let evicted = if self.len > self.capacity { self.evict() } else { None };
        (Key { source, number }, evicted)
    }

    /// Removes an entry; `None` if it was evicted or removed before.
    pub fn leave(&mut self, key: Key) -> Option<T> {
        let left = self.change(key.source, |entries| entries.remove(&key.number));
        self.len -= usize::from(left.is_some());
        left
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn evict(&mut self) -> Option<Evicted<T>> {
        let (_, Reverse(number), source) = self.ranks.last().copied()?;
        self.leave(Key { source, number }).map(|value| Evicted { source, value })
    }

    /// Changes the entries of a source, and the source's rank with them.
    fn change<R>(&mut self, source: Source, change: impl FnOnce(&mut BTreeMap<u64, T>) -> R) -> R {
        let entries = self.sources.entry(source).or_default();
        let rank = |entries: &BTreeMap<u64, T>| {
            entries.first_key_value().map(|(oldest, _)| (entries.len(), Reverse(*oldest), source))
        };
        let former = rank(entries);
        let result = change(entries);
        let new = rank(entries);
        if let Some(former) = former {
            self.ranks.remove(&former);
        }
        match new {
            Some(new) => drop(self.ranks.insert(new)),
            None => drop(self.sources.remove(&source)),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(text: &str) -> Source {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn one_host_is_one_source() {
        for (one, other, same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:0:0:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(source(one) == source(other), same, "{one} {other}");
        }
        assert_eq!(source("2001:db8::1").to_string(), "2001:db8::/64");
    }

    #[test]
    fn the_oldest_entry_of_the_source_with_the_most_is_evicted() {
        let [flood, other, far] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(source);
        // (entries in their order, the evicted one by its index)
        let table: [(&[Source], Option<usize>); 6] = [
            (&[far, flood, flood], None),
            (&[far, flood, flood, flood], Some(1)),
            (&[far, flood, other, flood], Some(1)),
            // A new source takes the place of the flood, not that of another.
            (&[far, flood, flood, other], Some(1)),
            // The newest entry of a source with many makes its own oldest one leave.
            (&[flood, flood, far, flood], Some(0)),
            // Nobody has more than another.
            (&[far, flood, other, source("192.0.2.4")], Some(0)),
        ];
        for (index, (entries, want)) in table.into_iter().enumerate() {
            let mut by_source = BySource::new(3);
            let mut evicted = None;
            for (value, source) in entries.iter().enumerate() {
                evicted = by_source.enter(*source, value).1;
            }
            let want = want.map(|value| Evicted { source: entries[value], value });
            assert_eq!(evicted, want, "case {index}");
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Enter(u8),
        Leave(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        // Source 0 is a flood.
        prop_oneof![
            3 => Just(Op::Enter(0)),
            2 => (1..6_u8).prop_map(Op::Enter),
            2 => (0..64_usize).prop_map(Op::Leave),
        ]
    }

    proptest! {
        /// Compares with a plain list: the capacity holds, each entry leaves once, and only the
        /// oldest entry of a source with the most is evicted.
        #[test]
        fn only_the_greediest_source_loses(ops in prop::collection::vec(op(), 1..300), capacity in 1..12_usize) {
            let mut by_source = BySource::new(capacity);
            let mut list: Vec<(Source, Key, u32)> = Vec::new();
            for (value, op) in (0..).zip(ops) {
                match op {
                    Op::Enter(number) => {
                        let source = Source(IpAddr::from([192, 0, 2, number]));
                        let (key, evicted) = by_source.enter(source, value);
                        list.push((source, key, value));
                        prop_assert_eq!(evicted.is_some(), list.len() > capacity);
                        if let Some(Evicted { source, value }) = evicted {
                            let count = |of| list.iter().filter(|(source, ..)| *source == of).count();
                            let most = list.iter().map(|(source, ..)| count(*source)).max();
                            prop_assert_eq!(Some(count(source)), most);
                            let oldest = list.iter().position(|(of, ..)| *of == source).unwrap();
                            let (_, key, was) = list.remove(oldest);
                            prop_assert_eq!(was, value);
                            prop_assert_eq!(by_source.leave(key), None);
                        }
                    }
                    Op::Leave(index) if !list.is_empty() => {
                        let (_, key, value) = list.remove(index % list.len());
                        prop_assert_eq!(by_source.leave(key), Some(value));
                        prop_assert_eq!(by_source.leave(key), None);
                    }
                    Op::Leave(_) => {}
                }
                prop_assert_eq!(by_source.len(), list.len());
                prop_assert_eq!(by_source.is_empty(), by_source.sources.is_empty());
                prop_assert_eq!(by_source.ranks.len(), by_source.sources.len());
            }
        }
    }
}
