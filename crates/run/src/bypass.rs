//! Connections between a job's nodes past isthmus, found in what the agents saw
//! of its processes: a pure decision.

use std::net::{IpAddr, SocketAddr};

use isthmus_front::format::site;
use isthmus_wire::proto::{Links, Node};
use serde::Serialize;

/// A connection past isthmus, between two nodes or of one node with an unknown other end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Bypass {
    /// The nodes' grid names; only one if the other is unknown.
    pub nodes: Vec<String>,
    /// By what the nodes are joined: "TCP", "RDMA" or "shared memory".
    pub means: &'static str,
    /// What was seen: two addresses, a device, or a file.
    pub seen: String,
    /// A process that uses the connection, "name (pid)".
    pub process: String,
}

/// Connections past isthmus, one of each kind per pair of nodes. Connections to other machines,
/// such as a licence server, don't count.
pub(super) fn bypasses(links: &[Links], nodes: &[Node]) -> Vec<Bypass> {
    let mut found: Vec<Bypass> = Vec::new();
    let mut add = |mut nodes: Vec<String>, means, seen: String, process: &str| {
        nodes.sort();
        if !found.iter().any(|other| other.nodes == nodes && other.means == means) {
            found.push(Bypass { nodes, means, seen, process: process.to_owned() });
        }
    };
    for (index, here) in links.iter().enumerate() {
        for connection in &here.connections {
            let across = |there: &&Links| {
                let mirrored = |other: &isthmus_wire::proto::Connection| {
                    (&other.local, &other.remote) == (&connection.remote, &connection.local)
                };
                there.node != here.node && there.connections.iter().any(mirrored)
            };
            // Both ends were seen, or the address is that of a node here.
            let other = links.iter().find(across).map(|there| there.node.clone());
            let other = other.or_else(|| at(&connection.remote, &here.node, nodes));
            if let Some(other) = other {
                let seen = format!("{} – {}", connection.local, connection.remote);
                add(vec![here.node.clone(), other], "TCP", seen, &connection.process);
            }
        }
        for device in &here.devices {
            add(vec![here.node.clone()], "RDMA", device.path.clone(), &device.process);
        }
        for memory in &here.memory {
            for there in links.iter().skip(index + 1) {
                if there.memory.iter().any(|other| other.key == memory.key) {
                    let nodes = vec![here.node.clone(), there.node.clone()];
                    add(nodes, "shared memory", memory.path.clone(), &memory.process);
                }
            }
        }
    }
    found
}

/// The grid name of the other node of the same site that has this address.
fn at(remote: &str, own: &str, nodes: &[Node]) -> Option<String> {
    let remote: IpAddr = remote.parse::<SocketAddr>().ok()?.ip();
    let has = |node: &&Node| {
        let address = node.address.parse::<SocketAddr>().ok();
        node.name != own && site(&node.name) == site(own) && address.is_some_and(|at| at.ip() == remote)
    };
    nodes.iter().find(has).map(|node| node.name.clone())
}

impl Bypass {
    pub(crate) fn text(&self) -> String {
        let Self { means, seen, process, .. } = self;
        let joined = match &self.nodes[..] {
            [one, other] => format!("{one} and {other} were joined past isthmus by {means}"),
            nodes => format!("{} used {means} past isthmus", nodes.join(", ")),
        };
        format!("{joined}: {seen}, process {process}; see \"Past isthmus\" in docs/mpi.md")
    }
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::{Connection, DeviceUse, SharedMemory};

    use super::*;

    fn links(node: &str, connections: &[(&str, &str)], memory: &[&str], devices: &[&str]) -> Links {
        let process = || "app (7)".to_owned();
        Links {
            node: node.to_owned(),
            connections: connections
                .iter()
                .map(|(local, remote)| Connection {
                    local: (*local).to_owned(),
                    remote: (*remote).to_owned(),
                    process: process(),
                })
                .collect(),
            devices: devices
                .iter()
                .map(|path| DeviceUse { path: (*path).to_owned(), process: process() })
                .collect(),
            memory: memory
                .iter()
                .map(|key| SharedMemory {
                    key: (*key).to_owned(),
                    path: "/dev/shm/x".to_owned(),
                    process: process(),
                })
                .collect(),
        }
    }

    #[test]
    fn what_counts_as_past_isthmus() {
        let node = |name: &str, address: &str| Node {
            name: name.to_owned(),
            address: address.to_owned(),
            ..Node::default()
        };
        let nodes =
            [node("n1.a", "10.0.0.1:7730"), node("n2.a", "10.0.0.2:7730"), node("n1.b", "10.0.0.2:7730")];
        for (name, seen, want) in [
            ("a licence server", vec![links("n1.a", &[("10.0.0.1:5", "192.0.2.1:80")], &[], &[])], ""),
            (
                "a node's real address",
                vec![links("n1.a", &[("10.0.0.1:5", "10.0.0.2:80")], &[], &[])],
                "n1.a n2.a TCP",
            ),
            ("its own address", vec![links("n1.a", &[("10.0.0.1:5", "10.0.0.1:80")], &[], &[])], ""),
            (
                "both ends, over a network that isthmus doesn't know",
                vec![
                    links("n1.a", &[("172.16.0.1:5", "172.16.0.2:6")], &[], &[]),
                    links("n2.a", &[("172.16.0.2:6", "172.16.0.1:5")], &[], &[]),
                ],
                "n1.a n2.a TCP",
            ),
            (
                "memory of one node",
                vec![links("n1.a", &[], &["k"], &[]), links("n2.a", &[], &["j"], &[])],
                "",
            ),
            (
                "memory of two nodes",
                vec![links("n1.b", &[], &["k"], &[]), links("n1.a", &[], &["k"], &[])],
                "n1.a n1.b shared memory",
            ),
            ("RDMA", vec![links("n1.a", &[], &[], &["/dev/infiniband/uverbs0"])], "n1.a RDMA"),
        ] {
            let got: Vec<_> = bypasses(&seen, &nodes)
                .into_iter()
                .map(|bypass| format!("{} {}", bypass.nodes.join(" "), bypass.means))
                .collect();
            assert_eq!(got.join(", "), want, "{name}");
        }
    }
}
