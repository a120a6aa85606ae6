//! Makes a [`Link`] of the tables that describe it. A table holds for both
//! directions; `up` and `down` in it hold for one.

use std::time::Duration;

use isthmus_common::quantity::{BitRate, ByteSize, Delay, Share};
use toml::Spanned;

use super::error::{Fault, fault};
use super::file::LinkTable;
use super::model::{Link, LinkShape, Loss};

/// Least default queue of a link. By default a queue has a bandwidth-delay product of a round trip
/// over this link and another like it.
const LEAST_DEFAULT_QUEUE: ByteSize = ByteSize(256 * 1024);

/// Smallest queue that lets a packet of full size through.
const LEAST_QUEUE: ByteSize = ByteSize(1500);

/// Smallest limit that a black hole may have. Packets of up to this size pass every network (RFC
/// 791).
const LEAST_PACKET: u32 = 576;

/// Smallest rate of a link. At a smaller rate, a packet would take more than a second.
pub(super) const LEAST_RATE: BitRate = BitRate(8_000);

/// The link that a link table describes.
pub(super) fn link(table: &LinkTable) -> Result<Link, Fault> {
    Ok(Link { up: direction(table, table.up.as_ref())?, down: direction(table, table.down.as_ref())? })
}

fn direction(both: &LinkTable, one: Option<&Spanned<Box<LinkTable>>>) -> Result<LinkShape, Fault> {
    let Some(one) = one else { return shape(&[both]) };
    if one.get_ref().up.is_some() || one.get_ref().down.is_some() {
        return fault(one, "a direction has no directions of its own");
    }
    shape(&[one.get_ref(), both])
}

/// The shape that `tables` describe. The first table that has a key decides it.
fn shape(tables: &[&LinkTable]) -> Result<LinkShape, Fault> {
    let delay = first(tables, |table| table.delay.as_ref());
    let jitter = first(tables, |table| table.jitter.as_ref());
    let queue = first(tables, |table| table.queue.as_ref());
    let delay = delay.map_or(Delay(0), |delay| *delay.get_ref());
    if let Some(jitter) = jitter
        && *jitter.get_ref() > delay
    {
        return fault(
            jitter,
            format!(
                "jitter {} is more than the delay, {delay}: packets can't arrive early",
                jitter.get_ref()
            ),
        );
    }
    let rate = rate(first(tables, |table| table.rate.as_ref()))?;
    let queue = match (queue, rate) {
        (Some(queue), None) => {
            return fault(queue, "a queue needs a rate: without one, packets never wait");
        }
        (Some(queue), Some(_)) if *queue.get_ref() < LEAST_QUEUE => {
            return fault(queue, format!("queue {} is smaller than one packet of 1500 B", queue.get_ref()));
        }
        (Some(queue), Some(_)) => *queue.get_ref(),
        (None, rate) => default_queue(delay, rate),
    };
    let (loss, black_hole) = (loss(tables)?, black_hole(tables)?);
    let jitter = jitter.map_or(Delay(0), |jitter| *jitter.get_ref());
    Ok(LinkShape { delay, jitter, rate, queue, loss, black_hole })
}

/// The given rate, checked not to be too small. `None` if none is given.
pub(super) fn rate(given: Option<&Spanned<BitRate>>) -> Result<Option<BitRate>, Fault> {
    match given {
        Some(rate) if *rate.get_ref() < LEAST_RATE => {
            fault(rate, format!("rate {} is below the smallest, {LEAST_RATE}", rate.get_ref()))
        }
        given => Ok(given.map(|rate| *rate.get_ref())),
    }
}

fn loss(tables: &[&LinkTable]) -> Result<Loss, Fault> {
    let share = first(tables, |table| table.loss.as_ref()).map_or(Share(0), |share| *share.get_ref());
    let Some(burst) = first(tables, |table| table.burst.as_ref()) else {
        return Ok(Loss { share, burst: 1 });
    };
    if share == Share(0) {
        return fault(burst, "a burst needs a loss: give the share of packets that is lost");
    }
    match *burst.get_ref() {
        0 => fault(burst, "a burst is at least 1 packet"),
        length if length > 1 && share.probability() > 0.5 => {
            fault(burst, format!("bursts of {length} packets need a loss of at most 50 %, not {share}"))
        }
        burst => Ok(Loss { share, burst }),
    }
}

fn black_hole(tables: &[&LinkTable]) -> Result<Option<u32>, Fault> {
    match first(tables, |table| table.black_hole.as_ref()) {
        Some(most) if *most.get_ref() < LEAST_PACKET => {
            fault(most, format!("packets of up to {LEAST_PACKET} bytes pass every network (RFC 791)"))
        }
        most => Ok(most.map(|most| *most.get_ref())),
    }
}

fn first<'a, T>(
    tables: &[&'a LinkTable],
    key: impl Fn(&'a LinkTable) -> Option<&'a Spanned<T>>,
) -> Option<&'a Spanned<T>> {
    tables.iter().find_map(|table| key(table))
}

/// Default queue of a link with this delay and rate.
pub(super) fn default_queue(delay: Delay, rate: Option<BitRate>) -> ByteSize {
    let round_trip: Duration = delay.duration() * 4;
    let product = rate.map_or(0, |rate| rate.bytes_in(round_trip));
    ByteSize(product).max(LEAST_DEFAULT_QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Link, String> {
        let table: LinkTable = toml::from_str(text).map_err(|error| error.to_string())?;
        link(&table).map_err(|fault| fault.message)
    }

    #[test]
    fn a_direction_overrides_what_holds_for_both() {
        let link = read(
            r#"
            delay = "10 ms"
            rate = "100 Mbit/s"
            loss = "0.1 %"
            down = { rate = "1 Gbit/s", queue = "64 KiB" }
            up = { delay = "20 ms", jitter = "2 ms", burst = 5 }
        "#,
        )
        .unwrap();
        assert_eq!((link.up.delay, link.down.delay), (Delay(20_000_000), Delay(10_000_000)));
        assert_eq!(
            (link.up.rate, link.down.rate),
            (Some(BitRate(100_000_000)), Some(BitRate(1_000_000_000)))
        );
        assert_eq!(link.down.queue, ByteSize(65_536));
        assert_eq!(link.up.jitter, Delay(2_000_000));
        assert_eq!(link.up.loss, Loss { share: Share(1_000_000), burst: 5 });
        assert_eq!(link.down.loss, Loss { share: Share(1_000_000), burst: 1 });
    }

    #[test]
    fn what_makes_no_link_is_refused() {
        for (text, message) in [
            ("jitter = '1 ms'", "more than the delay"),
            ("rate = '1 kbit/s'", "below the smallest"),
            ("queue = '64 KiB'", "needs a rate"),
            ("rate = '1 Mbit/s'\nqueue = '1 kB'", "smaller than one packet"),
            ("burst = 3", "needs a loss"),
            ("loss = '1 %'\nburst = 0", "at least 1"),
            ("loss = '60 %'\nburst = 2", "at most 50 %"),
            ("black-hole = 100", "pass every network"),
            ("up = { down = { delay = '1 ms' } }", "no directions of its own"),
            ("up = { speed = '1 ms' }", "unknown field"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn a_queue_that_is_not_given_holds_a_round_trip() {
        let link = read("delay = '25 ms'\nrate = '1 Gbit/s'").unwrap();
        assert_eq!(link.up.queue, ByteSize(12_500_000));
        assert_eq!(read("rate = '1 Mbit/s'").unwrap().up.queue, LEAST_DEFAULT_QUEUE);
        assert!(read("").unwrap().is_plain());
        assert!(!read("up = { loss = '1 ppm' }").unwrap().is_plain());
        assert!(!read("black-hole = 1300").unwrap().is_plain());
    }
}
