//! The lines that can be cut: every line between two machines, by its name.

use super::record::{Line, LineEnd};
use crate::topology::{Machine, MachineKind, Port, Topology, WAN};

/// All lines of a lab with this topology.
pub(crate) fn lines(topology: &Topology) -> Vec<Line> {
    let machine = |port: &Port| &topology.machines[port.machine];
    let end =
        |port: &Port| LineEnd { machine: machine(port).name.clone(), interface: port.interface.clone() };
    let emulated = topology.links.iter().map(|link| Line {
        name: link.name.clone(),
        to_wan: true,
        emulated: true,
        near: end(&link.near),
        far: end(&link.far),
    });
    let wires_of =
        |port: &Port| topology.wires.iter().flatten().filter(|p| p.machine == port.machine).count();
    let wires = topology.wires.iter().map(|[a, b]| {
        // In a site's wires to its nodes the router comes first.
        let (near, far) = if machine(b).kind == MachineKind::Node { (b, a) } else { (a, b) };
        let to_wan = far.machine == WAN;
        let name = wire_name(machine(near), &near.interface, to_wan, wires_of(near) == 1);
        Line { name, to_wan, emulated: false, near: end(near), far: end(far) }
    });
    let mut lines: Vec<Line> = emulated.chain(wires).collect();
    lines.sort_by(|a, b| (!a.to_wan, &a.name).cmp(&(!b.to_wan, &b.name)));
    lines
}

/// The name of a line. A link is called like its site or host, a rail's link SITE/RAIL as in the
/// emulator. A node's `only` line is called like the node. Any other line has its interface behind
/// the machine's name.
fn wire_name(near: &Machine, interface: &str, to_wan: bool, only: bool) -> String {
    let site = near.name.split_once('.').map(|(_, site)| site);
    match (near.kind, site, interface.strip_prefix("wan-")) {
        (MachineKind::Router | MachineKind::Carrier, Some(site), None) if to_wan => site.to_owned(),
        (MachineKind::Router | MachineKind::Carrier, Some(site), Some(rail)) if to_wan => {
            format!("{site}/{rail}")
        }
        (MachineKind::Host, ..) => near.name.clone(),
        (MachineKind::Node, ..) if only => near.name.clone(),
        _ => format!("{}/{interface}", near.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::topology::topology;

    #[test]
    fn every_line_has_the_name_that_people_use() {
        let text = r#"
            [[host]]
            name = "hub"
            [[site]]
            name = "alpha"
            kind = "nat"
            subnet = "192.168.1.0/24"
            link = { delay = "1 ms" }
            nodes = [{ name = "n1" }]
            [[site]]
            name = "beta"
            kind = "nat"
            subnet = "192.168.1.0/24"
            nodes = [{ name = "n1" }, { name = "n2" }]
            [[site]]
            name = "gamma"
            kind = "carrier-nat"
            subnet = "192.168.1.0/24"
            [[site]]
            name = "delta"
            kind = "nat"
            subnet = "192.168.1.0/24"
            rails = [
              { name = "ib", subnet = "192.168.2.0/24", link = { delay = "1 ms" } },
              { name = "ether", subnet = "192.168.3.0/24", link = {} },
            ]
            nodes = [{ name = "n1" }]
        "#;
        let lines = lines(&topology(&Grid::parse(text, "test", "test").unwrap()));
        let seen: Vec<_> = lines
            .iter()
            .map(|line| {
                (line.name.as_str(), line.emulated, line.near.machine.as_str(), line.far.machine.as_str())
            })
            .collect();
        let expected = [
            ("alpha", true, "router.alpha", "wan"),
            ("beta", false, "router.beta", "wan"),
            ("delta", false, "router.delta", "wan"),
            ("delta/ether", false, "router.delta", "wan"),
            ("delta/ib", true, "router.delta", "wan"),
            ("gamma", false, "carrier.gamma", "wan"),
            ("hub", false, "hub", "wan"),
            ("n1.alpha", false, "n1.alpha", "router.alpha"),
            ("n1.beta", false, "n1.beta", "router.beta"),
            ("n1.delta/eth0", false, "n1.delta", "router.delta"),
            ("n1.delta/ether", false, "n1.delta", "router.delta"),
            ("n1.delta/ib", false, "n1.delta", "router.delta"),
            ("n2.beta", false, "n2.beta", "router.beta"),
            ("router.gamma/wan", false, "router.gamma", "carrier.gamma"),
        ];
        assert_eq!(seen, expected);
    }
}
