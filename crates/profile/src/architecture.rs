//! Instruction sets, by the names that uname(1) has for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Architecture {
    /// x86-64.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// IBM Z.
    S390x,
    /// 64-bit POWER, little endian.
    Ppc64le,
}

/// A text names no instruction set that isthmus knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no architecture that isthmus knows: write it as `uname -m` does there, x86_64, aarch64, s390x or ppc64le"
)]
pub struct ArchitectureError(String);

impl Architecture {
    /// All instruction sets.
    pub const ALL: [Self; 4] = [Self::X86_64, Self::Aarch64, Self::S390x, Self::Ppc64le];

    /// The name that `uname -m` prints, and that nodes report.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::S390x => "s390x",
            Self::Ppc64le => "ppc64le",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Architecture {
    type Err = ArchitectureError;

    /// Reads the name of uname(1), or x86-64 in its own spelling.
    fn from_str(text: &str) -> Result<Self, ArchitectureError> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text.replace('-', "_"));
        known.ok_or_else(|| ArchitectureError(text.to_owned()))
    }
}

impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
