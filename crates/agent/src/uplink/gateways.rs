//! The order in which an agent tries its site's gateways. First choices differ between
//! agents, so that they spread over the gateways.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Deserialize;

/// One gateway or several, in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected \"HOST:PORT\" or a list of these")]
pub enum Gateways {
    /// The address of the only gateway.
    One(String),
    /// The addresses of several gateways, in any order.
    Several(Vec<String>),
}

impl Gateways {
    /// The addresses of all gateways.
    ///
    /// # Errors If there is no gateway, or an address isn't `HOST:PORT`.
    pub fn addresses(&self) -> Result<Vec<String>, String> {
        let addresses = match self {
            Self::One(address) => vec![address.clone()],
            Self::Several(addresses) => addresses.clone(),
        };
        match addresses.iter().find(|address| !is_address(address)) {
            _ if addresses.is_empty() => {
                Err("[agent] gateway names none; leave it out or name one".to_owned())
            }
            Some(wrong) => Err(format!("[agent] gateway: {wrong:?} is not HOST:PORT")),
            None => Ok(addresses),
        }
    }
}

pub(super) fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// The gateways in the order in which the agent of this node tries them.
pub(crate) fn in_order(mut gateways: Vec<String>, node: &str) -> Vec<String> {
    gateways.dedup();
    let count = gateways.len();
    if let Some(turn) = turn(node).checked_rem(count as u64) {
        // The turn is less than the number of gateways.
        gateways.rotate_left(usize::try_from(turn).unwrap_or_default());
    }
    gateways
}

/// The number at the end of a node's name, which spreads nodes evenly; a hash if it
/// has none.
fn turn(node: &str) -> u64 {
    let digits = node.len() - node.trim_end_matches(|digit: char| digit.is_ascii_digit()).len();
    let number = node.get(node.len() - digits..).and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbered_nodes_take_turns() {
        let gateways: Vec<String> = ["a:1", "b:1", "c:1"].map(str::to_owned).into();
        for (node, want) in [
            ("n1", "b:1 c:1 a:1"),
            ("n2", "c:1 a:1 b:1"),
            ("n3", "a:1 b:1 c:1"),
            ("node0004", "b:1 c:1 a:1"),
            ("r07c12n05", "c:1 a:1 b:1"),
        ] {
            assert_eq!(in_order(gateways.clone(), node).join(" "), want, "{node}");
        }
        assert_eq!(in_order(vec!["a:1".to_owned()], "n7"), ["a:1"]);
    }

    #[test]
    fn malformed_lists_of_gateways_are_refused() {
        let parse = |text: &str| {
            let table: Result<std::collections::BTreeMap<String, Gateways>, _> = toml::from_str(text);
            table.map_err(|error| error.to_string()).and_then(|table| table["gateway"].addresses())
        };
        assert_eq!(parse("gateway = \"a:7710\"").unwrap(), ["a:7710"]);
        assert_eq!(parse("gateway = [\"a:7710\", \"[2001:db8::1]:7710\"]").unwrap().len(), 2);
        for (text, want) in [
            ("gateway = []", "names none"),
            ("gateway = \"a\"", "\"a\" is not HOST:PORT"),
            ("gateway = [\"a:7710\", \":7710\"]", "is not HOST:PORT"),
            ("gateway = \"a:0\"", "is not HOST:PORT"),
            ("gateway = 7", "or a list of these"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_node_tries_all_gateways(node in "[a-z0-9-]{0,30}", count in 1usize..9) {
            let gateways: Vec<_> = (0..count).map(|number| format!("g{number}:7710")).collect();
            let mut ordered = in_order(gateways.clone(), &node);
            ordered.sort();
            prop_assert_eq!(ordered, gateways);
        }
    }
}
