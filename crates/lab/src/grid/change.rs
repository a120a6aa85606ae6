//! Changes of a link while it runs: the keys and values of a grid file's
//! link table, and the same checks.

use toml::Spanned;

use super::error::Fault;
use super::file::LinkTable;
use super::links::{default_queue, link};
use super::{ByteSize, Link, LinkShape};

/// Keys of a link's table.
pub(crate) const LINK_KEYS: [&str; 7] = ["delay", "jitter", "rate", "queue", "loss", "burst", "black-hole"];

/// Why changes make no valid link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change isn't `KEY=VALUE`.
    #[error("{0:?} is no change: expected KEY=VALUE, such as delay=20ms or down.rate=10Mbit/s")]
    Form(String),
    /// A link has no key of this name.
    #[error("{change:?}: a link has no {key:?}; it has: {known}; each also as up.KEY or down.KEY", known = LINK_KEYS.join(", "))]
    Key {
        /// The change as it was given.
        change: String,
        /// The key, which a link doesn't have.
        key: String,
    },
    /// The value is wrong, alone or together with the link's other values.
    #[error("{change:?}: {message}")]
    Value {
        /// The change as it was given. All changes, if the fault is in what they make together.
        change: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// No change was given.
    #[error("no change given: expected KEY=VALUE, such as delay=20ms; keys: {known}; each also as up.KEY or down.KEY", known = LINK_KEYS.join(", "))]
    None,
}

impl Link {
    /// The link after `changes`. Each is `KEY=VALUE` for both directions, or `up.KEY=VALUE` or
    /// `down.KEY=VALUE` for one direction. A queue that follows from rate and delay goes on to do
    /// so. `rate=none` takes the rate away, with the queue before it. `black-hole=none` lets
    /// packets of all sizes pass.
    pub fn changed(&self, changes: &[impl AsRef<str>]) -> Result<Self, ChangeError> {
        if changes.is_empty() {
            return Err(ChangeError::None);
        }
        let mut named = Named::default();
        for (number, change) in changes.iter().enumerate() {
            named.read(number, change.as_ref())?;
        }
        let unnamed = changes.len();
        let (up, down) = (named.up.onto(&self.up, unnamed), named.down.onto(&self.down, unnamed));
        let direction = |table| Some(Spanned::new(unnamed..unnamed, Box::new(table)));
        let table = LinkTable { up: direction(up), down: direction(down), ..LinkTable::default() };
        link(&table).map_err(|Fault { at, message }| match changes.get(at.start) {
            Some(change) => ChangeError::Value { change: change.as_ref().to_owned(), message },
            // What is named makes no sense with what stays as it was.
            None => {
                let all: Vec<_> = changes.iter().map(AsRef::as_ref).collect();
                ChangeError::Value { change: all.join(" "), message }
            }
        })
    }
}

/// The values that changes name for each direction. The place (span) of a value is the number of
/// its change.
#[derive(Default)]
struct Named {
    up: DirectionChanges,
    down: DirectionChanges,
}

/// What changes say of one direction.
#[derive(Default)]
struct DirectionChanges {
    table: LinkTable,
    no_rate: bool,
    no_black_hole: bool,
}

impl Named {
    fn read(&mut self, number: usize, change: &str) -> Result<(), ChangeError> {
        let (path, value) = change.split_once('=').ok_or_else(|| ChangeError::Form(change.to_owned()))?;
        let (path, value) = (path.trim(), value.trim());
        let (directions, key): (Vec<&mut DirectionChanges>, _) = match path.split_once('.') {
            Some(("up", key)) => (vec![&mut self.up], key),
            Some(("down", key)) => (vec![&mut self.down], key),
            _ => (vec![&mut self.up, &mut self.down], path),
        };
        directions.into_iter().try_for_each(|direction| direction.read(number, change, key, value))
    }
}

impl DirectionChanges {
    fn read(&mut self, number: usize, change: &str, key: &str, value: &str) -> Result<(), ChangeError> {
        let table = &mut self.table;
        let is_none = value == "none";
        match key {
            "rate" => self.no_rate = is_none,
            "black-hole" => self.no_black_hole = is_none,
            _ => {}
        }
        let set = match key {
            "delay" => quantity(&mut table.delay, number, value),
            "jitter" => quantity(&mut table.jitter, number, value),
            "rate" if is_none => {
                table.rate = None;
                Ok(())
            }
            "black-hole" if is_none => {
                table.black_hole = None;
                Ok(())
            }
            "rate" => quantity(&mut table.rate, number, value),
            "queue" => quantity(&mut table.queue, number, value),
            "loss" => quantity(&mut table.loss, number, value),
            "burst" => quantity(&mut table.burst, number, value)
                .map_err(|_| format!("{value:?} is not a number of packets")),
            "black-hole" => quantity(&mut table.black_hole, number, value)
                .map_err(|_| format!("{value:?} is not a number of bytes")),
            _ => return Err(ChangeError::Key { change: change.to_owned(), key: key.to_owned() }),
        };
        set.map_err(|message| ChangeError::Value { change: change.to_owned(), message })
    }

    /// The whole table of a direction: the named values, and otherwise those of `shape`. The latter
    /// have the place `unnamed`.
    fn onto(self, shape: &LinkShape, unnamed: usize) -> LinkTable {
        fn kept<T>(named: Option<Spanned<T>>, value: T, unnamed: usize) -> Option<Spanned<T>> {
            Some(named.unwrap_or_else(|| Spanned::new(unnamed..unnamed, value)))
        }
        /// The named value of a limit, or else the present one, unless `is_taken` says that the
        /// limit is taken away.
        fn kept_unless<T>(
            is_taken: bool,
            named: Option<Spanned<T>>,
            value: Option<T>,
            unnamed: usize,
        ) -> Option<Spanned<T>> {
            match value.filter(|_| !is_taken) {
                Some(value) => kept(named, value, unnamed),
                None => named,
            }
        }
        let Self { table, no_rate, no_black_hole } = self;
        let black_hole = kept_unless(no_black_hole, table.black_hole, shape.black_hole, unnamed);
        let rate = kept_unless(no_rate, table.rate, shape.rate, unnamed);
        // Without a rate a queue has no meaning, and a default one was
        // not chosen.
        let chosen = shape.rate.is_some() && shape.queue != default_queue(shape.delay, shape.rate);
        let queue: Option<Spanned<ByteSize>> = match table.queue {
            None if chosen && rate.is_some() => kept(None, shape.queue, unnamed),
            named => named,
        };
        let loss = kept(table.loss, shape.loss.share, unnamed);
        // Bursts of nothing are none.
        let lossless = loss.as_ref().is_some_and(|loss| loss.get_ref().0 == 0);
        let burst = match table.burst {
            None if lossless => None,
            named => kept(named, shape.loss.burst, unnamed),
        };
        LinkTable {
            delay: kept(table.delay, shape.delay, unnamed),
            jitter: kept(table.jitter, shape.jitter, unnamed),
            rate,
            queue,
            loss,
            burst,
            black_hole,
            ..LinkTable::default()
        }
    }
}

fn quantity<T: std::str::FromStr<Err: std::fmt::Display>>(
    place: &mut Option<Spanned<T>>,
    number: usize,
    value: &str,
) -> Result<(), String> {
    let value = value.parse().map_err(|error: T::Err| error.to_string())?;
    *place = Some(Spanned::new(number..number, value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{BitRate, Delay, Loss, Share};
    use super::*;

    fn link_of(text: &str) -> Link {
        link(&toml::from_str(text).unwrap()).unwrap()
    }

    const LINK: &str =
        "delay = '10 ms'\njitter = '1 ms'\nrate = '100 Mbit/s'\nqueue = '64 KiB'\nloss = '1 %'\nburst = 4";

    #[test]
    fn what_is_not_named_stays() {
        let before = link_of(LINK);
        let after = before.changed(&["delay=20ms", "down.rate=10Mbit/s"]).unwrap();
        assert_eq!((after.up.delay, after.down.delay), (Delay(20_000_000), Delay(20_000_000)));
        assert_eq!(after.down.rate, Some(BitRate(10_000_000)));
        let up = LinkShape { delay: after.up.delay, ..before.up };
        assert_eq!(after.up, up);
        assert_eq!(after.down, LinkShape { rate: after.down.rate, ..up });
    }

    #[test]
    fn later_changes_win_and_nothing_is_left_of_what_was_taken_away() {
        let link = link_of(LINK).changed(&["rate=none", "loss=0%", "up.loss=2%"]).unwrap();
        assert_eq!((link.up.rate, link.down.rate), (None, None));
        assert_eq!(link.up.loss, Loss { share: Share(20_000_000), burst: 4 });
        assert_eq!(link.down.loss, Loss::NONE);
        let link = link.changed(&["rate=1Mbit/s", "rate=2Mbit/s"]).unwrap();
        assert_eq!(link.up.rate, Some(BitRate(2_000_000)));
        assert_eq!(
            link.up.queue,
            default_queue(link.up.delay, link.up.rate),
            "the one chosen went with its rate"
        );
    }

    #[test]
    fn a_black_hole_stays_until_it_is_taken_away() {
        let link = link_of(LINK).changed(&["up.black-hole=1300"]).unwrap().changed(&["delay=20ms"]).unwrap();
        assert_eq!((link.up.black_hole, link.down.black_hole), (Some(1300), None));
        assert!(link.up.swallows(1301) && !link.up.swallows(1300) && !link.down.swallows(1500));
        assert_eq!(link.changed(&["black-hole=none"]).unwrap().up.black_hole, None);
    }

    #[test]
    fn a_default_queue_follows_rate_and_delay() {
        let link = link_of("delay = '25 ms'\nrate = '1 Gbit/s'").changed(&["rate=2Gbit/s"]).unwrap();
        assert_eq!(link.up.queue, ByteSize(25_000_000));
        assert_eq!(link.changed(&["queue=1MB"]).unwrap().down.queue, ByteSize(1_000_000));
    }

    #[test]
    fn what_makes_no_link_is_refused_with_the_change_that_is_wrong() {
        let plain = link_of("");
        for (changes, message) in [
            (vec![], "no change given"),
            (vec!["delay"], "expected KEY=VALUE"),
            (vec!["speed=1ms"], "\"speed=1ms\": a link has no \"speed\"; it has: delay, jitter"),
            (vec!["left.delay=1ms"], "no \"left.delay\""),
            (vec!["delay=1"], "\"delay=1\": \"1\" is not a delay"),
            (vec!["burst=many"], "not a number of packets"),
            (vec!["delay=1ms", "jitter=2ms"], "\"jitter=2ms\": jitter 2 ms is more than the delay"),
            (vec!["queue=1MB"], "needs a rate"),
            (vec!["black-hole=big"], "not a number of bytes"),
            (vec!["loss=1%", "up.burst=0"], "\"up.burst=0\": a burst is at least 1"),
            (vec!["loss=101%"], "not a share"),
        ] {
            let error = plain.changed(&changes).unwrap_err().to_string();
            assert!(error.contains(message), "{changes:?}: {error}");
        }
        let error = link_of(LINK).changed(&["delay=0ms"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "\"delay=0ms\": jitter 1 ms is more than the delay, 0 ns: packets can't arrive early"
        );
    }
}
