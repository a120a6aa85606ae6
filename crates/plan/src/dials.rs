//! Several dials together.

use std::str::FromStr;

use crate::Dial;

impl Dial {
    /// All of them, cheapest first.
    pub const ALL: [Self; 6] =
        [Self::Direct, Self::PortRange, Self::Reverse, Self::Punch, Self::Traverse, Self::Relay];
}

/// A set of dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dials(u8);

impl Dials {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// These.
    pub fn of(dials: &[Dial]) -> Self {
        Self(dials.iter().fold(0, |bits, dial| bits | bit(*dial)))
    }

    /// All others.
    pub fn all_but(dials: &[Dial]) -> Self {
        Self(Self::of(&Dial::ALL).0 & !Self::of(dials).0)
    }

    /// Those of either.
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether it is one of them.
    pub fn contains(self, dial: Dial) -> bool {
        self.0 & bit(dial) != 0
    }

    /// Each of them, cheapest first.
    pub fn each(self) -> impl Iterator<Item = Dial> {
        Dial::ALL.into_iter().filter(move |dial| self.contains(*dial))
    }
}

fn bit(dial: Dial) -> u8 {
    1 << dial as u8
}

/// A word that is no dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDial(pub String);

impl std::fmt::Display for UnknownDial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = Dial::ALL.map(|dial| dial.to_string()).join(", ");
        write!(f, "{:?} is no dial; there are {known}", self.0)
    }
}

impl std::error::Error for UnknownDial {}

impl FromStr for Dial {
    type Err = UnknownDial;

    fn from_str(text: &str) -> Result<Self, UnknownDial> {
        let found = Self::ALL.into_iter().find(|dial| dial.to_string() == text);
        found.ok_or_else(|| UnknownDial(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let some = Dials::of(&[Dial::Relay, Dial::Direct]);
        assert_eq!(some.each().collect::<Vec<_>>(), [Dial::Direct, Dial::Relay]);
        assert!(!some.contains(Dial::Punch));
        assert_eq!(Dials::all_but(&[Dial::Punch]).each().count(), 5);
        assert_eq!(Dials::all_but(&Dial::ALL), Dials::NONE);
        assert_eq!(some.and(Dials::of(&[Dial::Punch])).each().count(), 3);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for dial in Dial::ALL {
            assert_eq!(dial.to_string().parse(), Ok(dial));
        }
        let unknown = "teleport".parse::<Dial>().unwrap_err().to_string();
        assert_eq!(
            unknown,
            "\"teleport\" is no dial; there are direct, port-range, reverse, punch, traverse, relay"
        );
    }
}
