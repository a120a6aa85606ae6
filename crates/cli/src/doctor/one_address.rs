//! Nodes of a site that say that they are at the same address, as containers do whose networks are
//! their own: a pure decision.

use std::collections::BTreeMap;

use isthmus_wire::proto;
use isthmus_wire::text::first;

use super::findings::Finding;

/// Most nodes that a finding names.
const NAMED: usize = 3;

/// A problem for each address that several nodes have; `nodes` are those of a site that are up.
pub(super) fn shared(nodes: &[&proto::Node]) -> Vec<Finding> {
    let mut at: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !node.address.is_empty()) {
        at.entry(&node.address).or_default().push(&node.name);
    }
    at.retain(|_, names| names.len() > 1);
    at.iter().map(|(address, names)| Finding { problem: true, text: text(address, names) }).collect()
}

fn text(address: &str, names: &[&str]) -> String {
    let port = address.rsplit_once(':').map_or("7730", |(_, port)| port);
    let who = first(names.iter(), 0, NAMED);
    format!(
        "{who} say that they are at the same address, {address}, as containers with networks of their own do: none \
         can connect to another; publish port {port} of each container, and set address = \"HOST:{port}\" in its \
         section [agent], where HOST is its machine's address"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_at_one_address_are_a_problem() {
        const SLIRP: &str = "10.0.2.100:7730";
        let cases: [(&[&str], &[&str]); 8] = [
            (&[], &[]),
            (&[SLIRP], &[]),
            (&["192.168.1.3:7730", "192.168.1.4:7730"], &[]),
            // Agents of two users.
            (&["192.168.1.3:7730", "192.168.1.3:7731"], &[]),
            (&["", ""], &[]),
            (&[SLIRP, "192.168.1.3:7730", SLIRP], &["n1.alpha, n3.alpha say "]),
            (&[SLIRP; 5], &["n1.alpha, n2.alpha, n3.alpha and 2 more say "]),
            (
                &[SLIRP, SLIRP, "10.0.2.15:7731", "10.0.2.15:7731"],
                &["n1.alpha, n2.alpha say ", "n3.alpha, n4.alpha say "],
            ),
        ];
        for (addresses, want) in cases {
            let node = |(index, address): (usize, &&str)| proto::Node {
                name: format!("n{}.alpha", index + 1),
                address: (*address).to_owned(),
                ..proto::Node::default()
            };
            let nodes: Vec<_> = addresses.iter().enumerate().map(node).collect();
            let found = shared(&nodes.iter().collect::<Vec<_>>());
            let right = found.len() == want.len()
                && found.iter().zip(want).all(|(found, want)| found.problem && found.text.starts_with(want));
            assert!(right, "{addresses:?}: {found:#?}");
        }
    }
}
