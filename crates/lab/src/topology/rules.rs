//! A site's router: its filter, as nftables rules.
//!
//! Rules name interfaces, never the router's own addresses: a site keeps its
//! behaviour when its outside address changes.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::rails::uplink_interface;
use crate::grid::{PortRange, Rail, Site, SiteKind, Unsolicited};

/// Matches a TCP segment that begins a connection.
const BEGINS: &str = "tcp flags & (syn | ack) == syn";

const KNOWN: &str = "ct state established,related accept";

/// Matches ICMP errors about packets that were let through before.
const ICMP_ERRORS: &str = "icmp type { destination-unreachable, time-exceeded, parameter-problem }";

/// The rules of a site's own router. `None` if it filters nothing.
pub(super) fn router(site: &Site) -> Option<String> {
    let rules = Rules::of(site);
    let chains = match site.kind {
        SiteKind::Open => {
            let chain = rules.open();
            if chain.is_empty() {
                return None;
            }
            format!("{FORWARD_ACCEPT}{chain}  }}\n")
        }
        SiteKind::Firewall => rules.stateful(),
        SiteKind::StatelessFirewall => rules.stateless(),
        SiteKind::Nat | SiteKind::CarrierNat => rules.stateful() + &rules.forwarded() + &rules.translated(""),
        SiteKind::SymmetricNat => rules.stateful() + &rules.forwarded() + &rules.translated(" fully-random"),
    };
    Some(table(&chains))
}

/// The rules of a carrier's router, whose only subscriber is the site.
pub(super) fn carrier(site: &Site) -> String {
    let rules =
        Rules { inside: set(["lan"]), outside: set(["wan"]), unsolicited: site.unsolicited, site: None };
    table(&(rules.stateful() + &rules.translated("")))
}

fn table(chains: &str) -> String {
    format!("table ip lab {{\n{chains}}}\n")
}

const FORWARD_DROP: &str = "  chain forward {\n    type filter hook forward priority filter; policy drop;\n";
const FORWARD_ACCEPT: &str =
    "  chain forward {\n    type filter hook forward priority filter; policy accept;\n";
const INPUT_DROP: &str = "  chain input {\n    type filter hook input priority filter; policy drop;\n";
const INPUT_ACCEPT: &str = "  chain input {\n    type filter hook input priority filter; policy accept;\n";
const PREROUTING: &str =
    "  chain prerouting {\n    type nat hook prerouting priority dstnat; policy accept;\n";
const POSTROUTING: &str =
    "  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n";

struct Rules<'a> {
    /// The router's interfaces to local networks, as an nft set.
    inside: String,
    /// The router's interfaces to the internet, as an nft set.
    outside: String,
    unsolicited: Unsolicited,
    /// The router's site. `None` for a carrier's router, which knows no nodes.
    site: Option<&'a Site>,
}

/// An interface of a site's router to the internet, and the rail that has the link. `None`
/// for the site's main link.
type OutsideInterface<'a> = (String, Option<&'a Rail>);

impl<'a> Rules<'a> {
    fn of(site: &'a Site) -> Self {
        let rails = site.rails.iter().map(|rail| rail.name.as_str());
        let outside: Vec<_> = outside_interfaces(site).map(|(interface, _)| interface).collect();
        Self {
            inside: set(std::iter::once("lan").chain(rails)),
            outside: set(outside.iter().map(String::as_str)),
            unsolicited: site.unsolicited,
            site: Some(site),
        }
    }

    /// The chains of a filter with state of the endpoints that nodes have sent to.
    fn stateful(&self) -> String {
        let Self { inside, outside, .. } = self;
        let mut forward = FORWARD_DROP.to_owned() + &self.never();
        line(&mut forward, KNOWN);
        if self.site.is_some_and(|site| site.kind.translates() && !site.forward.is_empty()) {
            line(&mut forward, "ct status dnat accept");
        } else {
            forward += &self.let_in();
        }
        match self.egress() {
            Some(ports) => {
                line(&mut forward, &format!("iifname {inside} oifname != {outside} accept"));
                if let Some(ports) = ports {
                    line(&mut forward, &format!("iifname {inside} tcp dport {ports} accept"));
                }
            }
            None => line(&mut forward, &format!("iifname {inside} accept")),
        }
        let mut input = INPUT_DROP.to_owned();
        line(&mut input, KNOWN);
        line(&mut input, "iifname \"lo\" accept");
        line(&mut input, &format!("iifname {inside} accept"));
        if self.unsolicited == Unsolicited::Reset {
            let reset = format!("iifname {outside} meta l4proto tcp reject with tcp reset");
            line(&mut forward, &reset);
            line(&mut input, &reset);
        }
        format!("{forward}  }}\n{input}  }}\n")
    }

    /// The chains of a filter that judges every packet by itself. No rule may ask for connection
    /// tracking, as that would put it to work.
    fn stateless(&self) -> String {
        let Self { inside, outside, .. } = self;
        let mut forward = FORWARD_ACCEPT.to_owned() + &self.never() + &self.let_in();
        let refuse = match self.unsolicited {
            Unsolicited::Drop => "drop",
            Unsolicited::Reset => "reject with tcp reset",
        };
        let begins = format!("iifname {outside} {BEGINS} {refuse}");
        line(&mut forward, &begins);
        if let Some(ports) = self.egress() {
            let leaves = format!("iifname {inside} oifname {outside}");
            let allowed = ports.map(|ports| format!(" tcp dport != {ports}")).unwrap_or_default();
            line(&mut forward, &format!("{leaves} {BEGINS}{allowed} drop"));
            line(&mut forward, &format!("{leaves} {ICMP_ERRORS} accept"));
            line(&mut forward, &format!("{leaves} meta l4proto != tcp drop"));
        }
        format!("{forward}  }}\n{INPUT_ACCEPT}    {begins}\n  }}\n")
    }

    /// Rules for what an open site's router keeps from leaving. Empty if everything may leave.
    fn open(&self) -> String {
        let mut forward = self.never();
        if let Some(ports) = self.egress() {
            let Self { inside, outside, .. } = self;
            line(&mut forward, KNOWN);
            line(&mut forward, &format!("iifname {outside} accept"));
            if let Some(ports) = ports {
                line(&mut forward, &format!("tcp dport {ports} accept"));
            }
            line(&mut forward, &format!("iifname {inside} oifname {outside} drop"));
        }
        forward
    }

    /// Rules for what never leaves or enters a site: packets of nodes without a way out, and of
    /// rails without a link. A rail's addresses then mean nothing outside.
    fn never(&self) -> String {
        let (mut rules, outside) = (String::new(), &self.outside);
        let Some(site) = self.site else { return rules };
        let nodes = site.nodes.iter().filter(|node| !node.way_out).flat_map(|node| {
            std::iter::once(node.address).chain(site.rails.iter().map(|rail| site.address_on(rail, node)))
        });
        let rails =
            site.rails.iter().filter(|rail| rail.uplink.is_none()).map(|rail| rail.subnet.to_string());
        let nodes: Vec<_> = nodes.map(|address| address.to_string()).collect();
        for addresses in [nodes, rails.collect()] {
            if !addresses.is_empty() {
                let addresses = addresses.join(", ");
                line(&mut rules, &format!("oifname {outside} ip saddr {{ {addresses} }} drop"));
                line(&mut rules, &format!("iifname {outside} ip daddr {{ {addresses} }} drop"));
            }
        }
        rules
    }

    /// Rules that let strangers reach ports of nodes with public addresses.
    fn let_in(&self) -> String {
        let mut rules = String::new();
        for (interface, address, ports) in self.forwards() {
            for protocol in ["tcp", "udp"] {
                let rule =
                    format!("iifname \"{interface}\" ip daddr {address} {protocol} dport {ports} accept");
                line(&mut rules, &rule);
            }
        }
        rules
    }

    /// The chain that gives ports of the outside address to nodes. Empty if no port is forwarded.
    fn forwarded(&self) -> String {
        let forwards = self.forwards();
        if forwards.is_empty() {
            return String::new();
        }
        let mut chain = PREROUTING.to_owned();
        for (interface, address, ports) in forwards {
            for protocol in ["tcp", "udp"] {
                line(
                    &mut chain,
                    &format!("iifname \"{interface}\" {protocol} dport {ports} dnat to {address}"),
                );
            }
        }
        chain + "  }\n"
    }

    /// The chain that replaces private addresses by the address of the interface that packets leave
    /// by.
    fn translated(&self, flags: &str) -> String {
        format!("{POSTROUTING}    oifname {} masquerade{flags}\n  }}\n", self.outside)
    }

    /// All forwarded ports. Each has the interface that strangers come by, and the node's address
    /// on that interface's network.
    fn forwards(&self) -> Vec<(String, Ipv4Addr, PortRange)> {
        let Some(site) = self.site else { return Vec::new() };
        let forwards =
            site.forward.iter().filter_map(|forward| Some((site.node(&forward.to)?, forward.ports)));
        forwards
            .flat_map(|(node, ports)| {
                outside_interfaces(site).map(move |(interface, rail)| {
                    (interface, rail.map_or(node.address, |rail| site.address_on(rail, node)), ports)
                })
            })
            .collect()
    }

    /// The ports to which TCP may leave the site, as an nft set. `Some(None)` if nothing may leave,
    /// `None` if everything may.
    fn egress(&self) -> Option<Option<String>> {
        let ports = self.site?.egress.as_ref()?;
        let ports: Vec<_> = ports.iter().map(PortRange::to_string).collect();
        Some((!ports.is_empty()).then(|| format!("{{ {} }}", ports.join(", "))))
    }
}

fn outside_interfaces(site: &Site) -> impl Iterator<Item = OutsideInterface<'_>> {
    let rails = site.rails.iter().filter(|rail| rail.uplink.is_some());
    std::iter::once(("wan".to_owned(), None)).chain(rails.map(|rail| (uplink_interface(rail), Some(rail))))
}

fn set<'a>(interfaces: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = interfaces.into_iter().map(|interface| format!("\"{interface}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

fn line(rules: &mut String, rule: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(rules, "    {rule}");
}
