//! Ranges of ports in the configuration: "7731-7740" or "7731".

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Deserialize;

/// A range of ports, both ends included; never empty, never port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The error of a text that is no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of ports: expected FIRST-LAST, such as \"7731-7740\"")]
pub struct NotPorts(String);

impl PortRange {
    /// All ports of the range, in ascending order.
    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl FromStr for PortRange {
    type Err = NotPorts;

    fn from_str(text: &str) -> Result<Self, NotPorts> {
        let wrong = || NotPorts(text.to_owned());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port != 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for PortRange {
    type Error = NotPorts;

    fn try_from(text: String) -> Result<Self, NotPorts> {
        text.parse()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, want) in [
            ("7731-7740", Some((7731, 7740))),
            ("7731", Some((7731, 7731))),
            (" 1 - 2 ", Some((1, 2))),
            ("2-1", None),
            ("0-1", None),
            ("1-65536", None),
            ("a-b", None),
            ("", None),
        ] {
            let found = text.parse::<PortRange>().ok().map(|range| (range.first, range.last));
            assert_eq!(found, want, "{text:?}");
        }
    }
}
