//! Numbers of ranks as people write them: `4`, or `"4-16"` as for Slurm's `--nodes`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Ranks;

/// Why a text is no number of ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RanksError {
    /// It is neither a number nor two.
    #[error(
        "{0} is no number of ranks: write a number, such as 4, or the least and the most that are of use, such as \"4-16\""
    )]
    Other(String),
    /// It is 0, or begins with 0.
    #[error("a group has at least 1 rank")]
    None,
    /// The larger number comes first.
    #[error("\"{0}-{1}\" goes from more ranks to fewer: write \"{1}-{0}\"")]
    Reversed(u32, u32),
}

impl Ranks {
    /// From `least` to `most` ranks.
    ///
    /// # Errors
    /// If `least` is 0 or more than `most`.
    pub fn new(least: u32, most: u32) -> Result<Self, RanksError> {
        match least {
            0 => Err(RanksError::None),
            _ if least > most => Err(RanksError::Reversed(least, most)),
            _ => Ok(Self { least, most }),
        }
    }

    /// Whether this number of ranks is of use.
    pub fn contains(self, ranks: u32) -> bool {
        (self.least..=self.most).contains(&ranks)
    }
}

impl FromStr for Ranks {
    type Err = RanksError;

    fn from_str(text: &str) -> Result<Self, RanksError> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>();
        match (number(least), number(most)) {
            (Ok(least), Ok(most)) => Self::new(least, most),
            _ => Err(RanksError::Other(format!("{text:?}"))),
        }
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { least, most } if least == most => write!(f, "{least}"),
            Self { least, most } => write!(f, "{least}-{most}"),
        }
    }
}

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;

        impl Visitor<'_> for NumberOrText {
            type Value = Ranks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of ranks such as 4, or a range such as \"4-16\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ranks, E> {
                let ranks = u32::try_from(number).map_err(|_| RanksError::Other(number.to_string()));
                ranks.and_then(|ranks| Ranks::new(ranks, ranks)).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Ranks, E> {
                let ranks = u32::try_from(number).map_err(|_| RanksError::Other(number.to_string()));
                ranks.and_then(|ranks| Ranks::new(ranks, ranks)).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ranks, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(NumberOrText)
    }
}
