//! Since when a trunk is cut: a pure decision. What counts is whether what was sent arrives,
//! not whether carriers open: a way may open connections, and swallow what they carry, in
//! either direction.

use std::time::Instant;

use crate::trunk::Waits;

/// What the carriers of a trunk show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carriers {
    /// None of the carriers works.
    Dead,
    /// A carrier has opened, as did others before that carried nothing.
    Open,
    /// At least one carrier works.
    Live,
}

/// What may cut a trunk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why<'a> {
    /// The trunk's last carrier broke, or can't join.
    Broken(&'a str),
    /// The trunk carries nothing, and no carrier says why.
    Silent(&'static str),
}

/// The reason of a trunk on which sent data waits for too long.
pub(super) const LATE: Why<'_> = Why::Silent("what was sent doesn't arrive");

impl<'a> Why<'a> {
    pub(super) fn text(self) -> &'a str {
        let (Self::Broken(why) | Self::Silent(why)) = self;
        why
    }

    /// How the last carrier broke; `None` if it didn't.
    pub(super) fn broken(self) -> Option<String> {
        match self {
            Self::Broken(why) => Some(why.to_owned()),
            Self::Silent(_) => None,
        }
    }
}

/// Since when the trunk is cut; `None` if it works.
///
/// `before` is what this returned last. `waits` is what is known of sent data that hasn't arrived.
/// `unheard` is since when nothing is heard of the last carrier.
pub(super) fn cut(
    before: Option<Instant>,
    carriers: Carriers,
    waits: Option<Waits>,
    unheard: Instant,
) -> Option<Instant> {
    use Carriers::{Dead, Live, Open};
    match (carriers, before, waits) {
        (Dead | Open, Some(since), _) => Some(since),
        (Dead, None, waits) => Some(waits.map_or(unheard, |waits| waits.since.min(unheard))),
        // What was sent before the cut still hasn't arrived.
        (Live, Some(since), Some(waits)) if waits.since <= since => Some(since),
        (Live | Open, None, Some(waits)) if waits.too_long => Some(waits.since),
        (Live | Open, _, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Carriers::{Dead, Live, Open};
    use super::*;

    #[test]
    fn a_trunk_is_cut_until_what_was_sent_before_has_arrived() {
        let begun = Instant::now();
        let at = |second: u64| begun + Duration::from_secs(second);
        // Since when it was cut; what carriers show; since when data waits, and whether for too
        // long; since when it is cut, if nothing is heard since 9 s.
        for (name, before, carriers, waits, want) in [
            ("it works", None, Live, None, None),
            ("data is under way", None, Live, Some((9, false)), None),
            ("it opens, and nothing arrives", None, Live, Some((7, true)), Some(7)),
            ("the only carrier is gone", None, Dead, None, Some(9)),
            ("and data with it", None, Dead, Some((8, false)), Some(8)),
            ("data was sent over it in vain", None, Dead, Some((10, false)), Some(9)),
            ("no carrier is dialed", Some(3), Dead, None, Some(3)),
            ("another opens, and the data waits", Some(8), Live, Some((8, false)), Some(8)),
            ("for ever", Some(3), Live, Some((3, true)), Some(3)),
            ("it has arrived", Some(3), Live, None, None),
            ("and more follows", Some(3), Live, Some((9, false)), None),
            ("nothing comes from the peer over one after another", Some(3), Open, None, Some(3)),
            ("nor arrives", Some(3), Open, Some((9, false)), Some(3)),
            ("carriers were in doubt while another one worked", None, Open, None, None),
        ] {
            let waits = waits.map(|(second, too_long)| Waits { since: at(second), too_long });
            let got = cut(before.map(at), carriers, waits, at(9));
            assert_eq!(got, want.map(at), "{name}");
        }
    }
}
