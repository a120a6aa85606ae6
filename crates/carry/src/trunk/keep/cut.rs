//! Since when a trunk is cut: a pure decision. What counts is whether what was sent arrives,
//! not whether carriers open: a way may open connections, and swallow what they carry.

use std::time::Instant;

use crate::trunk::Waits;

/// Since when the trunk is cut, if it is. `before`: the same so far. `is_live`: a carrier
/// works. `waits`: what was sent and hasn't arrived.
pub(super) fn cut(
    before: Option<Instant>,
    is_live: bool,
    waits: Option<Waits>,
    now: Instant,
) -> Option<Instant> {
    match (is_live, before, waits) {
        (false, Some(since), _) => Some(since),
        (false, None, waits) => Some(waits.map_or(now, |waits| waits.since)),
        // What was sent before the cut still hasn't arrived.
        (true, Some(since), Some(waits)) if waits.since <= since => Some(since),
        (true, None, Some(waits)) if waits.too_long => Some(waits.since),
        (true, _, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_trunk_is_cut_until_what_was_sent_before_has_arrived() {
        let begun = Instant::now();
        let at = |second: u64| begun + Duration::from_secs(second);
        // Since when it was cut; whether a carrier works; since when data waits, and whether
        // for too long; since when it is cut at 10 s.
        for (name, before, is_live, waits, want) in [
            ("it works", None, true, None, None),
            ("data is under way", None, true, Some((9, false)), None),
            ("it opens, and nothing arrives", None, true, Some((7, true)), Some(7)),
            ("the only carrier is gone", None, false, None, Some(10)),
            ("and data with it", None, false, Some((8, false)), Some(8)),
            ("no carrier is dialed", Some(3), false, None, Some(3)),
            ("another opens, and the data waits", Some(8), true, Some((8, false)), Some(8)),
            ("for ever", Some(3), true, Some((3, true)), Some(3)),
            ("it has arrived", Some(3), true, None, None),
            ("and more follows", Some(3), true, Some((9, false)), None),
        ] {
            let waits = waits.map(|(second, too_long)| Waits { since: at(second), too_long });
            let got = cut(before.map(at), is_live, waits, at(10));
            assert_eq!(got, want.map(at), "{name}");
        }
    }
}
