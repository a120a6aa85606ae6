//! Versions of the control plane's protocol: the range that a process speaks, and
//! the one version that two of them take.
//!
//! Each end names its range in words like `isthmus/0.1.0 protocol/1-2`. Both take
//! the highest version that both speak.

use std::fmt;
use std::str::FromStr;

use crate::DecodeError;

/// The versions of `proto/isthmus.proto` that this build speaks. Version 1 starts
/// with the first release.
pub const SPOKEN: Versions = Versions { min: 1, max: 1 };

/// Most bytes of the words that are read.
const LONGEST: usize = 256;

/// A range of versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The lowest version of the range.
    pub min: u32,
    /// The highest version of the range.
    pub max: u32,
}

/// What an end of a connection speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// The version of isthmus at this end, as `0.1.0`.
    pub isthmus: String,
    /// The versions of the protocol that this end speaks.
    pub versions: Versions,
}

/// Two ends have no version in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no common version of the protocol: {own} (isthmus {}) speaks {}, {other} (isthmus {}) speaks {}; \
     upgrade isthmus at {}",
    .speakers[0].isthmus, .speakers[0].versions, .speakers[1].isthmus, .speakers[1].versions, self.older()
)]
pub struct NoCommonVersion {
    own: String,
    other: String,
    speakers: [Speaker; 2],
}

impl NoCommonVersion {
    /// The name of the end that needs an upgrade.
    fn older(&self) -> &str {
        let [own, other] = &self.speakers;
        if own.versions.max < other.versions.min { &self.own } else { &self.other }
    }
}

impl Speaker {
    /// The version that this end, called `own`, and the end called `other` take: the highest that
    /// both speak.
    ///
    /// # Errors
    /// If there is none. The error has both ends' ranges and versions of isthmus, and says which
    /// end to upgrade.
    pub fn agree(&self, own: &str, other: &str, with: &Self) -> Result<u32, NoCommonVersion> {
        let highest = self.versions.max.min(with.versions.max);
        if highest >= self.versions.min.max(with.versions.min) {
            return Ok(highest);
        }
        let speakers = [self.clone(), with.clone()];
        Err(NoCommonVersion { own: own.to_owned(), other: other.to_owned(), speakers })
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { min, max } if min == max => write!(f, "version {min}"),
            Self { min, max } => write!(f, "versions {min} to {max}"),
        }
    }
}

impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { min, max } = self.versions;
        write!(f, "isthmus/{} protocol/{min}-{max}", self.isthmus)
    }
}

impl FromStr for Speaker {
    type Err = DecodeError;

    /// Reads the two words `isthmus/VERSION protocol/RANGE`. Other words may follow, as in HTTP's
    /// `user-agent`.
    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let wrong = || DecodeError::new("protocol versions", "not like `isthmus/0.1.0 protocol/1-1`");
        let mut words = Some(text).filter(|text| text.len() <= LONGEST).ok_or_else(wrong)?.split(' ');
        let isthmus = words.next().and_then(|word| word.strip_prefix("isthmus/")).ok_or_else(wrong)?;
        let range = words.next().and_then(|word| word.strip_prefix("protocol/"));
        let (min, max) = range.and_then(|range| range.split_once('-')).ok_or_else(wrong)?;
        let versions = match (min.parse(), max.parse()) {
            (Ok(min), Ok(max)) if min <= max => Versions { min, max },
            _ => return Err(wrong()),
        };
        Ok(Self { isthmus: isthmus.to_owned(), versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speaker(isthmus: &str, min: u32, max: u32) -> Speaker {
        Speaker { isthmus: isthmus.to_owned(), versions: Versions { min, max } }
    }

    #[test]
    fn both_take_the_highest_common_version() {
        for (own, other, want) in [
            ((1, 1), (1, 1), Ok(1)),
            ((1, 3), (2, 5), Ok(3)),
            ((2, 5), (1, 3), Ok(3)),
            ((1, 2), (2, 2), Ok(2)),
            (
                (1, 1),
                (2, 3),
                Err(
                    "no common version of the protocol: the broker (isthmus 0.1.0) speaks version 1, relay r1 \
                     (isthmus 0.9.0) speaks versions 2 to 3; upgrade isthmus at the broker",
                ),
            ),
            (
                (4, 4),
                (2, 3),
                Err(
                    "no common version of the protocol: the broker (isthmus 0.1.0) speaks version 4, relay r1 \
                     (isthmus 0.9.0) speaks versions 2 to 3; upgrade isthmus at relay r1",
                ),
            ),
        ] {
            let (own, other) = (speaker("0.1.0", own.0, own.1), speaker("0.9.0", other.0, other.1));
            let found = own.agree("the broker", "relay r1", &other);
            assert_eq!(found.map_err(|error| error.to_string()), want.map_err(str::to_owned));
        }
    }

    #[test]
    fn words_are_read_and_nothing_else() {
        let one = speaker("0.1.0", 1, 12);
        assert_eq!(one.to_string().parse(), Ok(one.clone()));
        assert_eq!(format!("{one} tonic/0.14.2").parse(), Ok(one));
        for text in
            ["", "tonic/0.14.2", "isthmus/0.1.0", "isthmus/0.1.0 protocol/2-1", "isthmus/1 protocol/1"]
        {
            assert!(text.parse::<Speaker>().is_err(), "{text:?}");
        }
        assert!(format!("isthmus/{} protocol/1-1", "0".repeat(LONGEST)).parse::<Speaker>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in ".{0,64}") {
            let _ = text.parse::<Speaker>();
        }
    }
}
