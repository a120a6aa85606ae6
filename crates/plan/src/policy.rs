//! The dials and routes that a grid's policy forbids two sites, by their names.

use std::fmt;
use std::str::FromStr;

pub use crate::set::{Choice, Set};
use crate::{Dial, Route};

impl Choice for Route {
    /// All routes, shortest first.
    const ALL: &'static [Self] = &[Self::EndToEnd, Self::OneGateway, Self::GatewayOut, Self::TwoGateway];
}

/// A dial or a route, as configuration files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The word names how a connection is opened.
    Dial(Dial),
    /// The word names which parties dial.
    Route(Route),
}

/// The ways that are forbidden between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forbidden {
    /// The dials that are forbidden with every route.
    pub dials: Set<Dial>,
    /// The routes that are forbidden with every dial.
    pub routes: Set<Route>,
}

impl Forbidden {
    /// Forbids no dial and no route.
    pub const NOTHING: Self = Self { dials: Set::NONE, routes: Set::NONE };

    /// Forbids these dials and these routes.
    pub fn never(words: &[Word]) -> Self {
        let (dials, routes) = sorted(words);
        Self { dials: Set::of(&dials), routes: Set::of(&routes) }
    }

    /// Forbids all dials and all routes but these. If only dials are given, every route stays
    /// allowed. If only routes are given, every dial stays allowed. Without a word, all is
    /// forbidden.
    pub fn all_but(words: &[Word]) -> Self {
        let (dials, routes) = sorted(words);
        Self {
            dials: if dials.is_empty() && !routes.is_empty() { Set::NONE } else { Set::all_but(&dials) },
            routes: if routes.is_empty() { Set::NONE } else { Set::all_but(&routes) },
        }
    }

    /// What either of the two policies forbids.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { dials: self.dials.and(other.dials), routes: self.routes.and(other.routes) }
    }

    /// Whether a way is forbidden, by its route or by its dial.
    pub fn contains(self, route: Route, dial: Dial) -> bool {
        self.routes.contains(route) || self.dials.contains(dial)
    }
}

fn sorted(words: &[Word]) -> (Vec<Dial>, Vec<Route>) {
    let (mut dials, mut routes) = (Vec::new(), Vec::new());
    for word in words {
        match word {
            Word::Dial(dial) => dials.push(*dial),
            Word::Route(route) => routes.push(*route),
        }
    }
    (dials, routes)
}

/// The error for a word that is neither a dial nor a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord(pub String);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dials = Dial::ALL.iter().map(Dial::to_string).collect::<Vec<_>>().join(", ");
        let routes = Route::ALL.iter().map(Route::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{:?} is no way; there are the dials {dials} and the routes {routes}", self.0)
    }
}

impl std::error::Error for UnknownWord {}

impl FromStr for Word {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let dial = Dial::ALL.iter().find(|dial| dial.to_string() == text).map(|dial| Self::Dial(*dial));
        let route = || Route::ALL.iter().find(|route| route.to_string() == text);
        dial.or_else(|| route().map(|route| Self::Route(*route))).ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let some = Set::of(&[Dial::Relay, Dial::Direct]);
        assert_eq!(some.each().collect::<Vec<_>>(), [Dial::Direct, Dial::Relay]);
        assert!(!some.contains(Dial::Punch));
        assert_eq!(Set::all_but(&[Dial::Punch]).each().count(), 6);
        assert_eq!(Set::all_but(Dial::ALL), Set::NONE);
        assert_eq!(some.and(Set::of(&[Dial::Punch])).each().count(), 3);
        assert_eq!(Set::all_but(&[Route::EndToEnd]).each().count(), 3);
    }

    #[test]
    fn ways_are_forbidden_by_dial_or_by_route() {
        let read = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>();
        let never = |text| Forbidden::never(&read(text));
        let only = |text| Forbidden::all_but(&read(text));
        for (what, forbidden, route, dial, want) in [
            ("a dial", never("punch"), Route::EndToEnd, Dial::Punch, true),
            ("another dial", never("punch"), Route::EndToEnd, Dial::Relay, false),
            ("a route", never("two-gateway"), Route::TwoGateway, Dial::Direct, true),
            ("the dial elsewhere", never("two-gateway"), Route::OneGateway, Dial::Direct, false),
            ("only a dial", only("relay"), Route::TwoGateway, Dial::Relay, false),
            ("others", only("relay"), Route::TwoGateway, Dial::Direct, true),
            ("only a route", only("end-to-end"), Route::EndToEnd, Dial::Punch, false),
            ("others", only("end-to-end"), Route::OneGateway, Dial::Direct, true),
            ("both", only("relay end-to-end"), Route::EndToEnd, Dial::Relay, false),
            ("one of both", only("relay end-to-end"), Route::EndToEnd, Dial::Direct, true),
            ("the other", only("relay end-to-end"), Route::OneGateway, Dial::Relay, true),
            ("the trunk", never("trunk"), Route::TwoGateway, Dial::Trunk, true),
            ("its route", never("two-gateway"), Route::TwoGateway, Dial::Trunk, true),
            ("others", only("relay"), Route::TwoGateway, Dial::Trunk, true),
            ("no way at all", only(""), Route::EndToEnd, Dial::Relay, true),
            ("either policy", never("punch").and(never("relay")), Route::EndToEnd, Dial::Relay, true),
        ] {
            assert_eq!(forbidden.contains(route, dial), want, "{what}");
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for dial in Dial::ALL {
            assert_eq!(dial.to_string().parse(), Ok(Word::Dial(*dial)));
        }
        for route in Route::ALL {
            assert_eq!(route.to_string().parse(), Ok(Word::Route(*route)));
        }
        assert_eq!(
            "teleport".parse::<Word>().unwrap_err().to_string(),
            "\"teleport\" is no way; there are the dials direct, port-range, reverse, punch, traverse, relay, trunk \
             and the routes end-to-end, one-gateway, gateway-out, two-gateway"
        );
    }
}
