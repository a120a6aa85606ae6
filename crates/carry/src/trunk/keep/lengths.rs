//! How long the segments of carriers may be. Where a carrier opens, and falls silent before a
//! large frame has passed in each direction, large packets seem to vanish on the way (a PMTU
//! black hole, RFC 2923): the next one is dialed with shorter segments. Plain data; the
//! caller passes the time.

use std::time::{Duration, Instant};

/// The longest segments that are tried one after another, in bytes: the kernel's choice, then those
/// of IPv4 packets of 1280 and 540 bytes.
const SEGMENTS: [Option<u16>; 3] = [None, Some(1240), Some(500)];
/// For how long shorter segments are used before the longest are tried again, the first time. It
/// doubles each further time, up to [`HOLDS_MOST`].
const HOLDS: Duration = Duration::from_secs(600);
/// The longest time for which shorter segments are used before the longest are tried again.
const HOLDS_MOST: Duration = Duration::from_secs(86_400);

/// The longest segments to dial with, by rail.
#[derive(Debug, Default)]
pub(super) struct Lengths(Vec<Length>);

#[derive(Debug, Clone, Default)]
struct Length {
    /// The place in [`SEGMENTS`] of what the next carrier is dialed with.
    at: usize,
    /// Until when `at` holds; `None` if no shorter segments are used.
    until: Option<Instant>,
    /// How often the longest segments have vanished.
    found: u32,
    /// How many carriers in a row have fallen silent before large frames had passed, whichever end
    /// dialed them.
    vain: usize,
}

impl Length {
    fn place(&self, now: Instant) -> usize {
        if self.until.is_some_and(|until| until <= now) { 0 } else { self.at }
    }
}

impl Lengths {
    fn of(&mut self, rail: usize) -> &mut Length {
        if self.0.len() <= rail {
            self.0.resize(rail + 1, Length::default());
        }
        &mut self.0[rail]
    }

    /// The longest segment for a carrier that is dialed on this rail now; `None` leaves that to the
    /// kernel.
    pub(super) fn next(&self, rail: usize, now: Instant) -> Option<u16> {
        self.0.get(rail).and_then(|length| SEGMENTS[length.place(now)])
    }

    /// Notes that a carrier has fallen silent before large frames had passed. `dialed` is its
    /// longest segment, if this end has dialed it. Returns whether a shorter one is tried next.
    pub(super) fn swallowed(&mut self, rail: usize, dialed: Option<Option<u16>>, now: Instant) -> bool {
        let length = self.of(rail);
        length.vain = length.vain.saturating_add(1);
        let place = length.place(now);
        // Several may fall silent at once.
        if dialed != Some(SEGMENTS[place]) {
            return place > 0;
        }
        if place == 0 {
            let holds = HOLDS.saturating_mul(1 << length.found.min(16)).min(HOLDS_MOST);
            length.until = Some(now + holds);
            length.found = length.found.saturating_add(1);
        }
        length.at = (place + 1) % SEGMENTS.len();
        length.at > 0
    }

    /// Notes that large frames have passed over a carrier. `dialed` is its longest segment, if this
    /// end has dialed it.
    pub(super) fn passed(&mut self, rail: usize, dialed: Option<Option<u16>>) {
        let length = self.of(rail);
        length.vain = 0;
        if dialed == Some(None) {
            *length = Length::default();
        }
    }

    /// Whether no length has helped on the first rail.
    pub(super) fn none_helps(&self) -> bool {
        self.0.first().is_some_and(|length| length.vain >= SEGMENTS.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to the next carrier, in a test.
    #[derive(Debug, Clone, Copy)]
    enum Fate {
        /// The carrier falls silent.
        Vain,
        /// Large frames pass over the carrier.
        Passed,
        /// So many seconds go by.
        Seconds(u64),
    }
    use Fate::{Passed, Seconds, Vain};

    #[test]
    fn segments_are_shortened_until_large_frames_pass_and_lengthened_after_a_while() {
        for (name, fates, next, none_helps) in [
            ("at first", &[][..], None, false),
            ("a carrier is swallowed", &[Vain], Some(1240), false),
            ("that helps", &[Vain, Passed], Some(1240), false),
            ("for ten minutes", &[Vain, Passed, Seconds(599)], Some(1240), false),
            ("then longer ones are tried", &[Vain, Passed, Seconds(600)], None, false),
            ("which pass", &[Vain, Passed, Seconds(600), Passed], None, false),
            ("or don't", &[Vain, Passed, Seconds(600), Vain, Passed, Seconds(1199)], Some(1240), false),
            ("and again", &[Vain, Passed, Seconds(600), Vain, Passed, Seconds(1200)], None, false),
            ("shorter yet", &[Vain, Vain], Some(500), false),
            ("nothing helps: from the beginning", &[Vain, Vain, Vain], None, true),
            ("it helps after all", &[Vain, Vain, Vain, Passed], None, false),
        ] {
            let (mut lengths, mut now) = (Lengths::default(), Instant::now());
            for fate in fates {
                let dialed = Some(lengths.next(0, now));
                match fate {
                    Vain => {
                        let shorter = lengths.swallowed(0, dialed, now);
                        assert_eq!(shorter, lengths.next(0, now).is_some(), "{name}");
                    }
                    Passed => lengths.passed(0, dialed),
                    Seconds(seconds) => now += Duration::from_secs(*seconds),
                }
            }
            assert_eq!((lengths.next(0, now), lengths.none_helps()), (next, none_helps), "{name}");
            assert_eq!(lengths.next(1, now), None, "{name}: another rail");
        }
    }

    #[test]
    fn carriers_that_fall_silent_at_once_shorten_segments_once() {
        let (mut lengths, now) = (Lengths::default(), Instant::now());
        for dialed in [Some(None), Some(None), None] {
            assert!(lengths.swallowed(2, dialed, now));
            assert_eq!(lengths.next(2, now), Some(1240));
        }
        // What the other end dials it shortens itself.
        assert!(!lengths.swallowed(0, None, now));
        assert_eq!(lengths.next(0, now), None);
    }
}
