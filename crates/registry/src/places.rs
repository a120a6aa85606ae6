//! Where sites are at the levels that the grid's configuration names, such as campus and
//! region. Programs are told of them (paper 2, section 3).

use std::collections::BTreeMap;

use isthmus_wire::topology::LEVELS_MAX;
use isthmus_wire::{Label, proto};

/// Why the configured levels are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacesError {
    /// A level, place or site has no fit name.
    #[error("[broker] levels and places: {0:?} is no name: {1}")]
    Name(String, isthmus_wire::NameError),
    /// There are more levels than programs can be told of.
    #[error("[broker] levels: {0} are too many, {LEVELS_MAX} may be named")]
    TooMany(usize),
    /// A level's name is used twice, or stands for something else.
    #[error("[broker] levels: {0:?} is there twice, or stands for something else")]
    Taken(String),
    /// A site has a place at a level that isn't named.
    #[error("[broker.places.{site}]: {level:?} is none of the levels {}", .levels.join(", "))]
    NoSuchLevel {
        /// The site as the configuration names it.
        site: String,
        /// The level that isn't named.
        level: String,
        /// The levels that are named, the widest first.
        levels: Vec<String>,
    },
    /// A site has no place at a level.
    #[error("[broker.places.{site}]: where it is at level {level:?} is missing")]
    Missing {
        /// The site as the configuration names it.
        site: String,
        /// The level at which its place is missing.
        level: String,
    },
}

/// The places of the sites that have places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<Label, Vec<proto::Place>>);

impl Places {
    /// Reads the levels, the widest first, and the place of each site at each level. Sites that
    /// aren't named are by themselves at each level.
    ///
    /// # Errors
    /// [`PlacesError`] says why levels or places are refused.
    pub fn new(
        levels: &[String],
        places: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<Self, PlacesError> {
        let named =
            |name: &String| name.parse::<Label>().map_err(|error| PlacesError::Name(name.clone(), error));
        if levels.len() > LEVELS_MAX {
            return Err(PlacesError::TooMany(levels.len()));
        }
        for (index, level) in levels.iter().enumerate() {
            named(level)?;
            let before = levels.get(..index).unwrap_or_default();
            if ["grid", "site", "node", "group"].contains(&level.as_str()) || before.contains(level) {
                return Err(PlacesError::Taken(level.clone()));
            }
        }
        let mut read = BTreeMap::new();
        for (site, at) in places {
            if let Some(level) = at.keys().find(|level| !levels.contains(level)) {
                let (site, level, levels) = (site.clone(), level.clone(), levels.to_vec());
                return Err(PlacesError::NoSuchLevel { site, level, levels });
            }
            let place = |level: &String| {
                let missing = || PlacesError::Missing { site: site.clone(), level: level.clone() };
                let name = named(at.get(level).ok_or_else(missing)?)?;
                Ok(proto::Place { level: level.clone(), name: name.to_string() })
            };
            read.insert(named(site)?, levels.iter().map(place).collect::<Result<_, _>>()?);
        }
        Ok(Self(read))
    }

    /// The places of a site, one per level; empty if nothing is configured for the site.
    pub(crate) fn of(&self, site: &Label) -> Vec<proto::Place> {
        self.0.get(site).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// The part of the configuration that names levels and places.
    #[derive(Deserialize)]
    struct Section {
        #[serde(default)]
        levels: Vec<String>,
        #[serde(default)]
        places: BTreeMap<String, BTreeMap<String, String>>,
    }

    fn read(text: &str) -> Result<String, String> {
        let config: Section = toml::from_str(text).map_err(|error| error.to_string())?;
        let places = Places::new(&config.levels, &config.places).map_err(|error| error.to_string())?;
        let of = places.of(&"alpha".parse().unwrap());
        Ok(of.iter().map(|place| format!("{}={}", place.level, place.name)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn places_are_read() {
        let levels = "levels = ['region', 'campus']\n";
        for (text, want) in [
            ("[places]", Ok("")),
            ("[places.alpha]\ncampus = 'orsay'\nregion = 'eu'", Ok("region=eu campus=orsay")),
            ("[places.beta]\ncampus = 'orsay'\nregion = 'eu'", Ok("")),
            (
                "[places.alpha]\nregion = 'eu'",
                Err("[broker.places.alpha]: where it is at level \"campus\" is missing"),
            ),
            (
                "[places.alpha]\ncity = 'x'",
                Err("[broker.places.alpha]: \"city\" is none of the levels region, campus"),
            ),
        ] {
            assert_eq!(
                read(&format!("{levels}{text}")),
                want.map(str::to_owned).map_err(str::to_owned),
                "{text}"
            );
        }
        for text in [
            "levels = ['site']",
            "levels = ['a', 'a']",
            "levels = ['a b']",
            "levels = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']",
            "levels = ['a']\n[places.alpha]\na = 'x y'",
            "levels = ['a']\n[places.'al pha']\na = 'x'",
        ] {
            assert!(read(text).unwrap_err().starts_with("[broker] levels"), "{text}");
        }
    }
}
