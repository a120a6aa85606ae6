//! What can't be met, in words for who wrote the profile.

use std::fmt;
use std::time::Duration;

use isthmus_profile::Architecture;

use crate::impossible::{Conflict, Impossible, Remedy};
use crate::requirement::{Among, Requirement};

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sites = match self.sites {
            1 => "the 1 site".to_owned(),
            sites => format!("the {sites} sites"),
        };
        match self.conflicts.as_slice() {
            [only] => {
                write!(f, "{sites} on offer can't meet this: {}", only.requirement)?;
                write!(f, "; {}", Instead { conflict: only, others: false })?;
            }
            all => {
                write!(f, "{sites} on offer can't meet these {} together:", all.len())?;
                for conflict in all {
                    write!(f, "\n- {}", conflict.requirement)?;
                    write!(f, "; {}", Instead { conflict, others: true })?;
                }
                write!(f, "\nChange one of them as it says, or find another site")?;
            }
        }
        if !self.smallest {
            write!(f, "\n(Time ran out: perhaps fewer requirements are to blame)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Among {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside(group) => write!(f, "within {group}"),
            Self::Between([a, b]) => write!(f, "between {a} and {b}"),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks { group, least } => {
                write!(f, "{group} needs {least} rank{}", if *least == 1 { "" } else { "s" })
            }
            Self::OneSite { group } => write!(f, "{group} must be at one site"),
            Self::Cores { group, each } => write!(f, "each rank of {group} needs {each} cores"),
            Self::Memory { group, bytes } => {
                write!(f, "each rank of {group} needs {} of memory", Bytes(*bytes))
            }
            Self::Architecture { group, architecture } => {
                write!(f, "{group} needs nodes of architecture {}", name(*architecture))
            }
            Self::Tag { group, tag } => write!(f, "{group} needs nodes with the tag {tag}"),
            Self::Rtt { groups, most } => {
                write!(f, "the round trip {groups} must be {} at most", Time(*most))
            }
            Self::Rate { groups, bytes_per_second } => {
                write!(f, "the rate {groups} must be {} at least", Rate(*bytes_per_second))
            }
        }
    }
}

/// What would do instead.
struct Instead<'a> {
    conflict: &'a Conflict,
    /// Whether other requirements play a part.
    others: bool,
}

impl fmt::Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { requirement, remedy } = self.conflict;
        let rest = if self.others { " with the rest" } else { "" };
        match (remedy, requirement) {
            (Remedy::Unknown, _) => write!(f, "it isn't known how much less would do"),
            (Remedy::Weaker(Requirement::Ranks { least, .. }), _) => {
                write!(f, "there is room for {least} at most{rest}")
            }
            (Remedy::Weaker(Requirement::Cores { each, .. }), _) => {
                write!(f, "{each} would do{rest}")
            }
            (Remedy::Weaker(Requirement::Memory { bytes, .. }), _) => {
                write!(f, "{} at most would do{rest}", Bytes(*bytes))
            }
            (Remedy::Weaker(Requirement::Rtt { most, .. }), _) => {
                write!(f, "the shortest that goes{rest} is {}", Time(*most))
            }
            (Remedy::Weaker(Requirement::Rate { bytes_per_second, .. }), _) => {
                write!(f, "the highest that goes{rest} is {}", Rate(*bytes_per_second))
            }
            (Remedy::Without, Requirement::Ranks { .. }) => {
                write!(f, "there is room for none{rest}")
            }
            (Remedy::Without, Requirement::OneSite { .. }) => {
                write!(f, "split over sites it has room")
            }
            (Remedy::Without, Requirement::Rtt { groups, .. } | Requirement::Rate { groups, .. }) => {
                let pair = if groups.is_inside() { "network" } else { "pair of sites" };
                write!(f, "no {pair} that goes{rest} was measured")
            }
            (Remedy::Without | Remedy::Weaker(_), _) => write!(f, "others would do{rest}"),
        }
    }
}

fn name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "x86_64",
        Architecture::Aarch64 => "aarch64",
        Architecture::S390x => "s390x",
        Architecture::Ppc64le => "ppc64le",
    }
}

/// A number of bytes, in binary units.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) => write!(f, "{} {unit}", Decimal(self.0, *size)),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Bytes per second, in decimal units.
struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GB/s", 1_000_000_000), ("MB/s", 1_000_000), ("kB/s", 1_000)];
        match units.iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) => write!(f, "{} {unit}", Decimal(self.0, *size)),
            None => write!(f, "{} B/s", self.0),
        }
    }
}

/// A time, in milliseconds or seconds.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        if micros >= 1_000_000 {
            write!(f, "{} s", Decimal(micros, 1_000_000))
        } else {
            write!(f, "{} ms", Decimal(micros, 1_000))
        }
    }
}

/// A number of units of a size, with at most three digits behind the point.
struct Decimal(u64, u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, size) = *self;
        let thousandths = u128::from(number % size) * 1000 / u128::from(size);
        let text = format!("{}.{thousandths:03}", number / size);
        write!(f, "{}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        let time = |micros| Time(Duration::from_micros(micros)).to_string();
        assert_eq!(
            [2_000, 7_800, 45, 1_500_000, 0].map(time),
            ["2 ms", "7.8 ms", "0.045 ms", "1.5 s", "0 ms"]
        );
        assert_eq!(
            [999, 1_000, 12_500_000, 1_250_000_000].map(|rate| Rate(rate).to_string()),
            ["999 B/s", "1 kB/s", "12.5 MB/s", "1.25 GB/s"]
        );
        assert_eq!(
            [0, 7, 1 << 10, 2047, 3 << 30, 5 << 39].map(|bytes| Bytes(bytes).to_string()),
            ["0 bytes", "7 bytes", "1 KiB", "1.999 KiB", "3 GiB", "2.5 TiB"]
        );
    }
}
