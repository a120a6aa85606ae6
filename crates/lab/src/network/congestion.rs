//! The congestion control of machines' connections. Programs that choose their own have theirs.

use std::fs;

use ipnet::Ipv4Net;

/// What nearly every system has.
const CUBIC: &str = "cubic";

/// Name of the congestion control that connections in a lab have, unless programs choose another one: CUBIC,
/// or the system's own if the kernel has no CUBIC. Empty if the kernel doesn't tell.
pub fn congestion_control() -> String {
    let read = |name| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let available = read("tcp_available_congestion_control");
    if available.split_whitespace().any(|name| name == CUBIC) {
        return CUBIC.to_owned();
    }
    read("tcp_congestion_control").trim().to_owned()
}

/// Whether the kernel has CUBIC.
pub(super) fn has_cubic() -> bool {
    congestion_control() == CUBIC
}

/// A machine's `ip_commands`, with which its connections have CUBIC, whatever the system's own congestion
/// control is: connections take it from their route. The kernel lets a network namespace have another
/// default only if the system's administrator allows it to all users.
pub(super) fn with_cubic(ip_commands: &[String]) -> Vec<String> {
    let mut commands: Vec<_> = ip_commands
        .iter()
        .map(|line| match line.starts_with("route add ") {
            true => format!("{line} congctl {CUBIC}"),
            false => line.clone(),
        })
        .collect();
    commands.extend(ip_commands.iter().filter_map(|line| own_network(line)));
    commands
}

/// The line that gives connections within an interface's network CUBIC. The kernel has added the route
/// with the interface's address.
fn own_network(line: &str) -> Option<String> {
    let (address, interface) = line.strip_prefix("address add ")?.split_once(" dev ")?;
    let network: Ipv4Net = address.parse().ok()?;
    let has_route = network.prefix_len() < network.max_prefix_len();
    has_route.then(|| {
        let (subnet, own) = (network.trunc(), network.addr());
        format!("route change {subnet} dev {interface} proto kernel scope link src {own} congctl {CUBIC}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_cubic() {
        let commands = [
            "address add 198.51.100.1/32 dev lo",
            "address add 10.10.0.2/24 dev eth0",
            "link set eth0 up",
            "route add default via 10.10.0.1",
            "route add default via 10.20.0.1 dev fast table 100",
            "rule add priority 10 from 10.20.0.2 lookup 100",
        ];
        let want = [
            commands[0],
            commands[1],
            commands[2],
            "route add default via 10.10.0.1 congctl cubic",
            "route add default via 10.20.0.1 dev fast table 100 congctl cubic",
            commands[5],
            "route change 10.10.0.0/24 dev eth0 proto kernel scope link src 10.10.0.2 congctl cubic",
        ];
        assert_eq!(with_cubic(&commands.map(str::to_owned)), want);
    }
}
