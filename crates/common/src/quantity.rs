//! Quantities with their units as people write them: `"2.5 ms"`,
//! `"1 Gbit/s"`, `"256 KiB"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}: expected a number and a unit, such as {example:?}; units: {units}")]
pub struct QuantityError {
    text: String,
    what: &'static str,
    example: &'static str,
    units: String,
}

/// Name and units of a kind of quantity.
struct Kind {
    what: &'static str,
    example: &'static str,
    /// Each unit with its size in the base unit.
    units: &'static [(&'static str, f64)],
    /// Largest value that is allowed, in the base unit.
    maximum: f64,
}

const DELAY: Kind = Kind {
    what: "a delay",
    example: "2.5 ms",
    units: &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)],
    maximum: 60e9,
};

const RATE: Kind = Kind {
    what: "a rate",
    example: "1 Gbit/s",
    units: &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)],
    maximum: 1e13,
};

const SIZE: Kind = Kind {
    what: "a size",
    example: "256 KiB",
    units: &[
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
    ],
    maximum: 1e12,
};

const SHARE: Kind = Kind {
    what: "a share",
    example: "0.1 %",
    units: &[("ppb", 1.0), ("ppm", 1e3), ("%", 1e7)],
    maximum: 1e9,
};

impl Kind {
    /// The value of `text` in the base unit, rounded to a whole number.
    fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor = self.units.iter().find(|(name, _)| *name == unit.trim()).map(|(_, factor)| *factor);
        match (number.parse::<f64>(), factor) {
            (Ok(number), Some(factor)) if number * factor <= self.maximum => {
                Ok((number * factor).round() as u64)
            }
            _ => Err(QuantityError {
                text: text.to_owned(),
                what: self.what,
                example: self.example,
                units: self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// Writes `value` in the largest unit that gives a number of at least 1. Its form is the
    /// shortest that reads back as the same value.
    fn format(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |factor: f64| {
            let number = value as f64 / factor;
            number >= 1.0 && ((number * 1e3).round() / 1e3 * factor).round() as u64 == value
        };
        let largest =
            self.units.iter().filter(|(_, factor)| exact(*factor)).max_by(|a, b| a.1.total_cmp(&b.1));
        let (unit, factor) = largest.unwrap_or(&self.units[0]);
        let number = (value as f64 / factor * 1e3).round() / 1e3;
        f.pad(&format!("{number} {unit}"))
    }
}

macro_rules! quantity {
    ($name:ident, $kind:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub struct $name(pub u64);

        impl FromStr for $name {
            type Err = QuantityError;

            fn from_str(text: &str) -> Result<Self, QuantityError> {
                $kind.parse(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $kind.format(self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

quantity!(Delay, DELAY, "A time in nanoseconds, written `2.5 ms`; at most a minute.");
quantity!(BitRate, RATE, "A rate in bits per second, written `1 Gbit/s`.");
quantity!(ByteSize, SIZE, "A size in bytes, written `256 KiB`.");
quantity!(Share, SHARE, "A share in parts per billion, written `0.1 %`; at most all of it.");

impl Delay {
    /// The delay as a duration.
    #[inline]
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Share {
    /// The share as a probability, from 0 to 1.
    #[inline]
    pub fn probability(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl BitRate {
    /// The rate in bits per second.
    #[inline]
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// How long `bytes` take at this rate.
    // For every packet of an emulated link, and that in another crate.
    #[inline]
    pub fn time_for(self, bytes: u64) -> Duration {
        const NANOSECONDS_PER_BYTE_AT_1_BIT_PER_SECOND: u64 = 8_000_000_000;
        Duration::from_nanos(multiply_divide(bytes, NANOSECONDS_PER_BYTE_AT_1_BIT_PER_SECOND, self.0.max(1)))
    }

    /// How many bytes pass in `time` at this rate.
    #[inline]
    pub fn bytes_in(self, time: Duration) -> u64 {
        multiply_divide(self.0, time.as_nanos().min(u128::from(u64::MAX)) as u64, 8_000_000_000)
    }
}

/// `a * b / c` without overflow in between. It avoids the slow division of wide numbers where the
/// product is small, as this is done for every packet.
#[inline]
fn multiply_divide(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (u128::from(a) * u128::from(b) / u128::from(c)).min(u128::from(u64::MAX)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_and_print() {
        for (text, nanoseconds, printed) in [
            ("2.5 ms", 2_500_000, "2.5 ms"),
            ("10ms", 10_000_000, "10 ms"),
            ("0 s", 0, "0 ns"),
            ("300 us", 300_000, "300 µs"),
            ("1.5 s", 1_500_000_000, "1.5 s"),
        ] {
            let delay: Delay = text.parse().unwrap();
            assert_eq!(delay.0, nanoseconds, "{text}");
            assert_eq!(delay.to_string(), printed, "{text}");
        }
        for (text, parts_per_billion, printed) in [
            ("0.01 %", 100_000, "100 ppm"),
            ("1%", 10_000_000, "1 %"),
            ("0.5 ppm", 500, "500 ppb"),
            ("100 %", 1_000_000_000, "100 %"),
        ] {
            let share: Share = text.parse().unwrap();
            assert_eq!(share.0, parts_per_billion, "{text}");
            assert_eq!(share.to_string(), printed, "{text}");
        }
        assert!("101 %".parse::<Share>().is_err());
        assert_eq!("1 Gbit/s".parse(), Ok(BitRate(1_000_000_000)));
        assert_eq!("256 KiB".parse(), Ok(ByteSize(262_144)));
        assert_eq!(ByteSize(262_144).to_string(), "256 KiB");
        assert_eq!(ByteSize(1_250_000).to_string(), "1.25 MB");
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for bad in ["", "ms", "5", "-1 ms", "1 Ms", "1e3 ms", "1..2 ms", "999 s", "1 ms 2"] {
            assert!(bad.parse::<Delay>().is_err(), "{bad:?}");
        }
        let error = "1 gigabit".parse::<BitRate>().unwrap_err().to_string();
        assert!(error.contains("\"1 gigabit\" is not a rate") && error.contains("Gbit/s"), "{error}");
    }

    #[test]
    fn printed_quantities_read_back() {
        for value in [0, 1, 999, 1000, 1024, 1500, 262_144, 1_250_000, 123_456_789, 1_000_000_001] {
            assert_eq!(ByteSize(value).to_string().parse(), Ok(ByteSize(value)));
        }
    }

    #[test]
    fn rates_and_times() {
        let rate: BitRate = "100 Mbit/s".parse().unwrap();
        assert_eq!(rate.time_for(1500), Duration::from_micros(120));
        assert_eq!(rate.bytes_in(Duration::from_millis(10)), 125_000);
        assert_eq!(rate.time_for(125_000_000_000), Duration::from_secs(10_000));
        assert_eq!(rate.bytes_in(Duration::from_secs(10_000)), 125_000_000_000);
    }
}
