//! What can be cut: every line that joins two machines, by its name.

use serde::{Deserialize, Serialize};

use super::FaultError;
use crate::state::Record;
use crate::topology::{Machine, MachineKind, Port, Topology};

/// What carries packets between two machines of a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// A link's name, which is that of its site or host; for a wire within a
    /// site the machine at its end.
    pub name: String,
    /// Whether it leads to the wide area's router.
    pub to_wan: bool,
    /// Whether packets pass the emulator.
    pub emulated: bool,
    /// The end at the site's router, the host or the node.
    pub near: End,
    /// The other end.
    pub far: End,
}

/// One end of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Name of the machine.
    pub machine: String,
    /// Name of the interface there.
    pub interface: String,
}

/// The wide area's router is the first of the machines.
const WAN: usize = 0;

/// All lines that will be in a lab.
pub(crate) fn lines(topology: &Topology) -> Vec<Line> {
    let end = |port: &Port| End {
        machine: topology.machines[port.machine].name.clone(),
        interface: port.interface.clone(),
    };
    let emulated = topology.links.iter().map(|link| Line {
        name: link.name.clone(),
        to_wan: true,
        emulated: true,
        near: end(&link.near),
        far: end(&link.far),
    });
    let wires = topology.wires.iter().map(|[a, b]| {
        // Routers come first in a site's wires, the near end in links.
        let (near, far) = if b.machine == WAN { (a, b) } else { (b, a) };
        Line {
            name: wire_name(&topology.machines[near.machine], far.machine == WAN),
            to_wan: far.machine == WAN,
            emulated: false,
            near: end(near),
            far: end(far),
        }
    });
    let mut lines: Vec<Line> = emulated.chain(wires).collect();
    lines.sort_by(|a, b| (!a.to_wan, &a.name).cmp(&(!b.to_wan, &b.name)));
    lines
}

/// A site's link is called like the site, everything else like its machine.
fn wire_name(near: &Machine, to_wan: bool) -> String {
    match near.kind {
        MachineKind::Router if to_wan => match near.name.split_once('.') {
            Some((_, site)) => site.to_owned(),
            None => near.name.clone(),
        },
        MachineKind::Wan | MachineKind::Router | MachineKind::Host | MachineKind::Node => near.name.clone(),
    }
}

/// The lines that a link's or machine's name stands for: a machine's are all
/// that end there.
pub(crate) fn find<'a>(record: &'a Record, name: &str) -> Result<Vec<&'a Line>, FaultError> {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    let named: Vec<&Line> = record.lines.iter().filter(|line| same(&line.name)).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let ending: Vec<&Line> =
        record.lines.iter().filter(|line| same(&line.near.machine) || same(&line.far.machine)).collect();
    if !ending.is_empty() {
        return Ok(ending);
    }
    let mut known: Vec<String> = Vec::new();
    let machines = record.machines.iter().map(|machine| machine.name.clone());
    for name in record.lines.iter().map(|line| line.name.clone()).chain(machines) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    Err(FaultError::UnknownTarget { lab: record.grid.name.clone(), name: name.to_owned(), known })
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
            ("hub", false, "hub", "wan"),
            ("n1.alpha", false, "n1.alpha", "router.alpha"),
            ("n1.beta", false, "n1.beta", "router.beta"),
            ("n2.beta", false, "n2.beta", "router.beta"),
        ];
        assert_eq!(seen, expected);
    }
}
