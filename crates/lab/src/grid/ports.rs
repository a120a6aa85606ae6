//! Ranges of ports as people write them: `443`, `"7000-7099"`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A range of TCP or UDP ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text is no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of ports: expected a port from 1 to 65535, or two such as \"7000-7099\"")]
pub struct PortRangeError(String);

impl PortRange {
    /// The ports from `first` to `last`. `None` if the range is empty or includes 0.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first > 0 && first <= last).then_some(Self { first, last })
    }

    /// The range's lowest port.
    pub fn first(self) -> u16 {
        self.first
    }

    /// The range's highest port.
    pub fn last(self) -> u16 {
        self.last
    }

    /// Whether `port` is in the range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Whether the two ranges have a port in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok();
        port(first)
            .zip(port(last))
            .and_then(|(first, last)| Self::new(first, last))
            .ok_or_else(|| PortRangeError(text.to_owned()))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;

        impl Visitor<'_> for NumberOrText {
            type Value = PortRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port such as 443, or a range such as \"7000-7099\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<PortRange, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<PortRange, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PortRange, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(NumberOrText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_and_print() {
        for (text, first, last, printed) in [
            ("443", 443, 443, "443"),
            ("7000-7099", 7000, 7099, "7000-7099"),
            ("1 - 65535", 1, 65535, "1-65535"),
            ("80-80", 80, 80, "80"),
        ] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!((range.first(), range.last()), (first, last), "{text}");
            assert_eq!(range.to_string(), printed, "{text}");
        }
        for bad in ["", "0", "0-5", "9-8", "65536", "-1", "1-2-3", "http", "1-"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_ports_as_well() {
        #[derive(Deserialize)]
        struct Table {
            ports: Vec<PortRange>,
        }
        let table: Table = toml::from_str("ports = [443, '7000-7099']").unwrap();
        assert_eq!(table.ports, ["443".parse().unwrap(), "7000-7099".parse().unwrap()]);
        assert!(toml::from_str::<Table>("ports = [-443]").is_err());
        assert!(toml::from_str::<Table>("ports = [0.5]").is_err());
    }

    #[test]
    fn overlaps_are_seen() {
        let range = |text: &str| text.parse::<PortRange>().unwrap();
        assert!(range("7000-7099").overlaps(range("7099-8000")));
        assert!(!range("7000-7099").overlaps(range("7100")));
        assert!(range("7000-7099").contains(7099) && !range("7000-7099").contains(6999));
    }
}
