//! Which sites are near enough to each other for what a profile asks.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use fixedbitset::FixedBitSet;
use isthmus_profile::Link;

use crate::offer::Offer;

/// For each site the sites, itself among them, to which the network is as asked.
pub(crate) type Rows = Vec<FixedBitSet>;

/// Whether what is known of a network is as asked. What isn't known meets nothing.
pub(crate) fn meets(asked: Link, known: Link) -> bool {
    asked.rtt.is_none_or(|most| known.rtt.is_some_and(|rtt| rtt <= most))
        && asked.bytes_per_second.is_none_or(|least| known.bytes_per_second.is_some_and(|rate| rate >= least))
}

/// The rows for each requirement, made once: for 1,000 sites that is a look at half a million
/// pairs.
pub(crate) struct Meets<'a> {
    offer: &'a Offer,
    made: HashMap<(Option<Duration>, Option<u64>), Rc<Rows>>,
}

impl<'a> Meets<'a> {
    pub(crate) fn new(offer: &'a Offer) -> Self {
        Self { offer, made: HashMap::new() }
    }

    /// The rows for what is asked; `None` if nothing is asked.
    pub(crate) fn rows(&mut self, asked: Link) -> Option<Rc<Rows>> {
        let key = (asked.rtt, asked.bytes_per_second);
        if key == (None, None) {
            return None;
        }
        let offer = self.offer;
        Some(Rc::clone(self.made.entry(key).or_insert_with(|| Rc::new(rows(offer, asked)))))
    }
}

fn rows(offer: &Offer, asked: Link) -> Rows {
    let sites = offer.sites.len();
    let mut rows = vec![FixedBitSet::with_capacity(sites); sites];
    for a in 0..sites {
        for b in a..sites {
            if meets(asked, offer.link(a, b)) {
                rows[a].insert(b);
                rows[b].insert(a);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_meets_only_what_is_not_asked() {
        let link =
            |ms: Option<u64>, bytes_per_second| Link { rtt: ms.map(Duration::from_millis), bytes_per_second };
        for (asked, known, met) in [
            (link(None, None), link(None, None), true),
            (link(Some(2), None), link(None, Some(9)), false),
            (link(Some(2), None), link(Some(2), None), true),
            (link(Some(2), None), link(Some(3), None), false),
            (link(None, Some(5)), link(Some(0), None), false),
            (link(None, Some(5)), link(None, Some(5)), true),
            (link(None, Some(5)), link(None, Some(4)), false),
            (link(Some(2), Some(5)), link(Some(1), Some(4)), false),
            (link(Some(2), Some(5)), link(Some(1), Some(6)), true),
        ] {
            assert_eq!(meets(asked, known), met, "{asked:?} {known:?}");
        }
    }
}
