//! The wide area's router, public hosts, and what joins both to the rest.

use std::net::Ipv4Addr;

use super::{Builder, EmulatedLink, Machine, MachineKind, Port, interface};
use crate::grid::{Host, Link};

/// Length in packets of an emulated link's transmit queue, on the kernel's side of the device. It
/// has room for what a busy sender produces while the emulator has no processor.
const DEVICE_QUEUE: u32 = 10_000;

/// Index of the wide area's router in a topology's machines, of which it is the first.
pub(crate) const WAN: usize = 0;

/// The end of a link at a host or site.
#[derive(Debug, Clone, Copy)]
pub(super) struct NearEnd<'a> {
    pub machine: usize,
    pub interface: &'a str,
    pub address: Ipv4Addr,
    /// The routing table whose default route leads over the link. `None`: the main table.
    pub table: Option<u32>,
}

impl Builder<'_> {
    pub(super) fn add_wan(&mut self) {
        let router = self.grid.wan.router;
        let mut wan = Machine::new("wan".into(), MachineKind::Wan, "wan", router);
        wan.ip_commands.push(format!("address add {router}/32 dev lo"));
        self.add(wan);
    }

    pub(super) fn add_host(&mut self, host: &Host) {
        let machine = Machine::new(host.name.clone(), MachineKind::Host, &host.host_name, host.address);
        let machine = self.add(machine);
        let near = NearEnd { machine, interface: "eth0", address: host.address, table: None };
        self.join_wan(&host.name, &host.link, near);
    }

    /// Joins a machine to the wide area's router. Returns the end of an ip(8) route by which the
    /// wide area's router reaches networks behind the machine.
    pub(super) fn join_wan(&mut self, name: &str, link: &Link, near: NearEnd<'_>) -> String {
        let NearEnd { machine, interface: inside, address, table } = near;
        let table = table.map(|table| format!(" table {table}")).unwrap_or_default();
        let router = self.grid.wan.router;
        let wires_to_wan = self.topology.wires.iter().filter(|[_, far]| far.machine == WAN).count();
        let far = interface(self.topology.links.len() + wires_to_wan, name);
        let near_port = Port { machine, interface: inside.to_owned() };
        let far_port = Port { machine: WAN, interface: far.clone() };
        self.command(machine, format!("address add {address}/32 dev {inside}"));
        let via = if link.is_plain() {
            self.topology.wires.push([near_port, far_port]);
            self.command(machine, format!("link set {inside} up"));
            self.command(machine, format!("route add default via {router} dev {inside} onlink{table}"));
            self.command(WAN, format!("link set {far} up"));
            format!("via {address} dev {far} onlink")
        } else {
            let (name, link) = (name.to_owned(), *link);
            self.topology.links.push(EmulatedLink { name, link, near: near_port, far: far_port });
            self.command(machine, format!("link set {inside} txqueuelen {DEVICE_QUEUE} arp off up"));
            self.command(machine, format!("route add default dev {inside}{table}"));
            self.command(WAN, format!("link set {far} txqueuelen {DEVICE_QUEUE} arp off up"));
            format!("dev {far}")
        };
        self.command(WAN, format!("route add {address}/32 dev {far} src {router}"));
        via
    }
}
