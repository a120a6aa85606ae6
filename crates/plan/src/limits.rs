//! Time limits that grow with the way. A limit that was chosen for short ways would end connections
//! over a round trip of seconds that only take their time.

use std::time::Duration;

/// The limit of a step between sites, over ways of up to half a second: the rendezvous, the
/// dial, TLS and the introduction together.
pub const BETWEEN_SITES: Duration = Duration::from_secs(10);
/// How long a connection over a trunk waits while the trunk is cut: as long as a kernel tries to
/// connect (tcp(7), `tcp_syn_retries`).
pub const OVER_TRUNK: Duration = Duration::from_secs(127);
/// How many round trips a step or a part of a step may take. A step needs some eight. As many again
/// are for segments that are lost and sent again, for which TCP waits longer each time (RFC 6298).
const ROUND_TRIPS: u32 = 20;
/// The longest limit that a measured round trip leads to.
const MOST: Duration = Duration::from_secs(120);

/// The limit for a way with this round trip. It is at least `fixed`, the limit for a way of usual
/// or unknown length.
pub fn grown(fixed: Duration, round_trip: Option<Duration>) -> Duration {
    let long = round_trip.unwrap_or_default().saturating_mul(ROUND_TRIPS).min(MOST);
    fixed.max(long)
}

/// The limit for a part of a step whose whole limit is `step`. The part has `fixed` where the whole
/// step has [`BETWEEN_SITES`], and grows as the step's limit has.
pub fn part(fixed: Duration, step: Duration) -> Duration {
    fixed.mul_f64(step.div_duration_f64(BETWEEN_SITES).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_the_round_trip() {
        for (fixed_ms, round_trip_ms, want_ms) in [
            (10_000, None, 10_000),
            (10_000, Some(0), 10_000),
            (10_000, Some(500), 10_000),
            (10_000, Some(1_000), 20_000),
            (10_000, Some(3_000), 60_000),
            (10_000, Some(60_000), 120_000),
            (127_000, Some(60_000), 127_000),
        ] {
            let round_trip = round_trip_ms.map(Duration::from_millis);
            let grown = grown(Duration::from_millis(fixed_ms), round_trip);
            assert_eq!(grown, Duration::from_millis(want_ms), "{fixed_ms} {round_trip_ms:?}");
        }
    }

    #[test]
    fn parts_of_a_step_grow_with_it() {
        for (fixed_ms, step_ms, want_ms) in
            [(4_000, 10_000, 4_000), (4_000, 20_000, 8_000), (6_000, 25_000, 15_000), (4_000, 1_000, 4_000)]
        {
            let [fixed, step, want] = [fixed_ms, step_ms, want_ms].map(Duration::from_millis);
            assert_eq!(part(fixed, step), want);
        }
    }
}
