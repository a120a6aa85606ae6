//! Names of sites, nodes and grid names.

use std::fmt;
use std::str::FromStr;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is no DNS label (RFC 1123 section 2.1).
    #[error(
        "{0:?} is not a valid name: use 1 to 63 letters, digits and hyphens, starting and ending with a letter or digit"
    )]
    Label(String),
    /// The text doesn't have the form `node.site`.
    #[error("{0:?} is not a grid name: expected NODE.SITE")]
    GridName(String),
}

/// Name of a site, a node, a relay or an owner. It is a single lower-case DNS label (RFC 1123), so
/// that grid names are valid host names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(String);

impl Label {
    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Label {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        let valid = bytes.len() <= 63
            && alphanumeric(bytes.first())
            && alphanumeric(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        if valid { Ok(Self(text.to_ascii_lowercase())) } else { Err(NameError::Label(text.to_owned())) }
    }
}

/// `node.site`: unique in the grid. Programs see it as their host name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GridName {
    /// The node's name, unique within its site.
    pub node: Label,
    /// The site's name, unique in the grid.
    pub site: Label,
}

impl fmt::Display for GridName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.node, self.site))
    }
}

impl FromStr for GridName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (node, site) = text.split_once('.').ok_or_else(|| NameError::GridName(text.to_owned()))?;
        Ok(Self { node: node.parse()?, site: site.parse()? })
    }
}

/// Name of a relay, unique in the grid. Relays come before gateways in its order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RelayName {
    /// A relay of its own.
    Relay(Label),
    /// A gateway that relays for other sites, by its grid name.
    Gateway(GridName),
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay(name) => name.fmt(f),
            Self::Gateway(name) => name.fmt(f),
        }
    }
}

impl FromStr for RelayName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        // A label has no dot.
        if text.contains('.') { text.parse().map(Self::Gateway) } else { text.parse().map(Self::Relay) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_of_their_own_or_gateways() {
        let name = |text: &str| text.parse::<RelayName>().unwrap();
        assert_eq!(name("r1"), RelayName::Relay("r1".parse().unwrap()));
        assert_eq!(name("login1.alpha"), RelayName::Gateway("login1.alpha".parse().unwrap()));
        for text in ["r1", "login1.alpha"] {
            assert_eq!(name(text).to_string(), text);
        }
        assert!(name("zeta") < name("login1.alpha"), "relays come first");
        for bad in ["", ".", "login1.", "login1.alpha.x", "a b"] {
            assert!(bad.parse::<RelayName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn labels_follow_rfc_1123() {
        for good in ["a", "n1", "Big-Site", "0", &"x".repeat(63)] {
            assert!(good.parse::<Label>().is_ok(), "{good:?}");
        }
        for bad in ["", "-a", "a-", "a.b", "a_b", "a b", "é", "a\n", &"x".repeat(64)] {
            assert!(bad.parse::<Label>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn grid_names_are_two_labels() {
        let name: GridName = "N1.alpha".parse().unwrap();
        assert_eq!(name.to_string(), "n1.alpha");
        for bad in ["n1", "n1.", ".alpha", "n1.alpha.x", ""] {
            assert!(bad.parse::<GridName>().is_err(), "{bad:?}");
        }
    }
}
