//! What the grid's configuration says of sites and pairs of sites, as far as plans, rendezvous and
//! measurements depend on it.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_plan::policy::{Forbidden, UnknownWord, Word};
use isthmus_plan::ways::Pin;
use isthmus_wire::{Label, NameError};
use serde::Deserialize;

use crate::places::Places;

/// The part of the configuration that plans and rendezvous depend on.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Pairs of sites between which data goes unencrypted.
    pub trusted: TrustedPairs,
    /// Dials and routes that some pairs of sites may not use.
    pub forbidden: ForbiddenPairs,
    /// Pairs of sites for which it is said whether connections share trunks.
    pub pins: TrunkPins,
    /// The places of sites at the named levels.
    pub places: Places,
    /// How the relay for two nodes is chosen.
    pub relays: RelayChoice,
    /// Whether gateways may relay for other sites.
    pub gateways_relay: bool,
    /// Whether paths between sites are measured in the background.
    pub measure: Measure,
}

/// Whether round trips and bandwidths between sites are measured in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// They are measured in the background.
    #[default]
    Auto,
    /// They are measured on request only.
    Off,
}

/// How the relay for two nodes is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayChoice {
    /// The relay with the shortest round trip between the two nodes, as these have measured it.
    /// About equally good relays take turns.
    #[default]
    Nearest,
    /// All relays take turns.
    RoundRobin,
}

/// The dials and routes that two sites may use. The entry allows none that the networks don't let
/// through.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairConfig {
    /// The two sites, in either order.
    pub sites: [String; 2],
    /// If given, only these dials and routes may be used.
    #[serde(default)]
    pub only: Option<Vec<String>>,
    /// None of these dials and routes may be used.
    #[serde(default)]
    pub never: Vec<String>,
    /// Whether connections share trunks of the nodes' agents; `None` lets measurements decide.
    #[serde(default)]
    pub trunk: Option<TrunkUse>,
}

/// Whether connections between two sites share trunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrunkUse {
    /// Connections share trunks, also where data needn't be encrypted.
    Always,
    /// Each connection has a socket of its own where data needn't be encrypted.
    Never,
}

/// Why the configured policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A text isn't a site's name.
    #[error("[broker] {0}: {1}")]
    Site(&'static str, NameError),
    /// A word is neither a dial nor a route.
    #[error("[[broker.pairs]] for {sites}: {error}")]
    Way {
        /// The two sites of the entry.
        sites: String,
        /// Why the word is refused.
        error: UnknownWord,
    },
}

/// Unordered pairs of sites that trust the network between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedPairs(BTreeSet<(Label, Label)>);

impl TrustedPairs {
    /// Reads the pairs of the configuration.
    ///
    /// # Errors
    /// If a text isn't a site's name.
    pub fn new(pairs: &[[String; 2]]) -> Result<Self, NameError> {
        let mut trusted = BTreeSet::new();
        for [a, b] in pairs {
            let (a, b): (Label, Label) = (a.parse()?, b.parse()?);
            trusted.insert((a.clone(), b.clone()));
            trusted.insert((b, a));
        }
        Ok(Self(trusted))
    }

    /// Whether two sites trust the network between them.
    pub(crate) fn contains(&self, a: &Label, b: &Label) -> bool {
        self.0.contains(&(a.clone(), b.clone()))
    }

    /// The sites that trust the network between them and this site.
    pub(crate) fn of<'a>(&'a self, site: &'a Label) -> impl Iterator<Item = &'a Label> {
        self.0.iter().filter(move |(a, _)| a == site).map(|(_, b)| b)
    }
}

/// The pairs of sites for which the configuration says whether connections share trunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrunkPins(BTreeMap<(Label, Label), Pin>);

impl TrunkPins {
    /// Reads the pairs of the configuration. Of several entries for two sites, `never` counts.
    ///
    /// # Errors
    /// If a text isn't a site's name.
    pub fn new(pairs: &[PairConfig]) -> Result<Self, NameError> {
        let mut pins = BTreeMap::new();
        for PairConfig { sites: [a, b], trunk, .. } in pairs {
            let Some(trunk) = trunk else { continue };
            let (a, b): (Label, Label) = (a.parse()?, b.parse()?);
            for key in [(a.clone(), b.clone()), (b, a)] {
                match trunk {
                    TrunkUse::Always => drop(pins.entry(key).or_insert(Pin::Always)),
                    TrunkUse::Never => drop(pins.insert(key, Pin::Never)),
                }
            }
        }
        Ok(Self(pins))
    }

    /// What the configuration says of two sites; `None` if it says nothing.
    pub(crate) fn between(&self, a: &Label, b: &Label) -> Option<Pin> {
        self.0.get(&(a.clone(), b.clone())).copied()
    }
}

/// Which dials and routes are forbidden between which sites.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForbiddenPairs(BTreeMap<(Label, Label), Forbidden>);

impl ForbiddenPairs {
    /// Reads the pairs of the configuration.
    ///
    /// # Errors
    /// If a word is not a site's name, a dial or a route.
    pub fn new(pairs: &[PairConfig]) -> Result<Self, PolicyError> {
        let mut forbidden = BTreeMap::new();
        for pair in pairs {
            let [a, b] = &pair.sites;
            let site =
                |text: &String| text.parse::<Label>().map_err(|error| PolicyError::Site("pairs", error));
            let read = |words: &[String]| {
                let wrong = |error| PolicyError::Way { sites: format!("{a} and {b}"), error };
                words.iter().map(|word| word.parse::<Word>().map_err(wrong)).collect::<Result<Vec<_>, _>>()
            };
            let never = Forbidden::never(&read(&pair.never)?);
            let others = match &pair.only {
                Some(only) => Forbidden::all_but(&read(only)?),
                None => Forbidden::NOTHING,
            };
            let (a, b) = (site(a)?, site(b)?);
            for key in [(a.clone(), b.clone()), (b, a)] {
                let both = forbidden.entry(key).or_insert(Forbidden::NOTHING);
                *both = both.and(never).and(others);
            }
        }
        Ok(Self(forbidden))
    }

    /// The dials and routes that are forbidden between two sites.
    pub(crate) fn between(&self, a: &Label, b: &Label) -> Forbidden {
        self.0.get(&(a.clone(), b.clone())).copied().unwrap_or(Forbidden::NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of the configuration that has pairs of sites.
    #[derive(Deserialize)]
    struct Section {
        #[serde(default)]
        pairs: Vec<PairConfig>,
    }

    fn forbidden(text: &str) -> Result<String, String> {
        let config: Section = toml::from_str(text).map_err(|error| error.to_string())?;
        let forbidden = ForbiddenPairs::new(&config.pairs).map_err(|error| error.to_string())?;
        let (alpha, beta) = ("alpha".parse().unwrap(), "beta".parse().unwrap());
        let between = forbidden.between(&beta, &alpha);
        assert_eq!(between, forbidden.between(&alpha, &beta));
        let dials = between.dials.each().map(|dial| dial.to_string());
        let routes = between.routes.each().map(|route| route.to_string());
        Ok(dials.chain(routes).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn pairs_are_read() {
        for (text, want) in [
            ("", Ok("")),
            ("[[pairs]]\nsites = ['alpha', 'beta']\nnever = ['punch']", Ok("punch")),
            (
                "[[pairs]]\nsites = ['beta', 'alpha']\nonly = ['relay']",
                Ok("direct port-range reverse punch traverse trunk"),
            ),
            ("[[pairs]]\nsites = ['alpha', 'gamma']\nnever = ['relay']", Ok("")),
            ("[[pairs]]\nsites = ['alpha', 'beta']\nnever = ['two-gateway']", Ok("two-gateway")),
            (
                "[[pairs]]\nsites = ['beta', 'alpha']\nonly = ['two-gateway']",
                Ok("end-to-end one-gateway gateway-out"),
            ),
            (
                "[[pairs]]\nsites = ['alpha', 'beta']\nnever = ['beam']",
                Err("[[broker.pairs]] for alpha and beta: \"beam\" is no way; \
                     there are the dials direct, port-range, reverse, punch, traverse, relay, trunk and the routes \
                     end-to-end, one-gateway, gateway-out, two-gateway"),
            ),
        ] {
            assert_eq!(forbidden(text), want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert!(
            forbidden("[[pairs]]\nsites = ['al pha', 'beta']").unwrap_err().starts_with("[broker] pairs: ")
        );
        assert!(forbidden("[[pairs]]\nsites = ['a']").is_err());
    }

    #[test]
    fn trunks_are_pinned() {
        let pair = |sites: [&str; 2], word: &str| format!("[[pairs]]\nsites = {sites:?}\ntrunk = '{word}'\n");
        let (always, never) = (pair(["beta", "alpha"], "always"), pair(["alpha", "beta"], "never"));
        for (text, want) in [
            (String::new(), None),
            (always.clone(), Some(Pin::Always)),
            (never.clone(), Some(Pin::Never)),
            (format!("{always}{never}"), Some(Pin::Never)),
            (format!("{never}{always}"), Some(Pin::Never)),
            (pair(["alpha", "gamma"], "never"), None),
        ] {
            let config: Section = toml::from_str(&text).unwrap();
            let pins = TrunkPins::new(&config.pairs).unwrap();
            assert_eq!(pins.between(&"alpha".parse().unwrap(), &"beta".parse().unwrap()), want, "{text}");
        }
        assert!(toml::from_str::<Section>(&pair(["alpha", "beta"], "often")).is_err());
    }
}
