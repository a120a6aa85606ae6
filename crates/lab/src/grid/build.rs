//! Grids from Rust: a builder per table of the grid file. What is built goes
//! through the same checks as a file, because it becomes one first.
//!
//! ```
//! use std::time::Duration;
//! use isthmus_lab::grid::{Grid, Host, Node, Role, Site, Unsolicited};
//!
//! # fn main() -> Result<(), isthmus_lab::GridError> {
//! let grid = Grid::build("two-nats")
//!     .host(Host::build("hub").roles([Role::Broker, Role::Relay]))
//!     .site(Site::nat("alpha").nodes(2).delay(Duration::from_millis(5)))
//!     .site(
//!         Site::symmetric_nat("beta")
//!             .unsolicited(Unsolicited::Reset)
//!             .node(Node::build("front").roles([Role::Gateway]))
//!             .node(Node::build("n1").roles([Role::Agent]).no_way_out()),
//!     )
//!     .grid()?;
//! assert_eq!(grid.machines().count(), 5);
//! # Ok(())
//! # }
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use ipnet::Ipv4Net;
use isthmus_common::quantity::{BitRate, ByteSize, Delay, Share};
use toml::{Table, Value};

use super::error::GridError;
use super::model::{Grid, Host, Link, Node, Rail, Role, Site, SiteKind, Unsolicited};
use super::ports::PortRange;

/// A grid in the making.
#[derive(Debug, Clone)]
#[must_use]
pub struct GridBuilder {
    name: String,
    table: Table,
}

impl Grid {
    /// Begins a grid for a lab of this name.
    pub fn build(name: &str) -> GridBuilder {
        let mut table = Table::new();
        set(&mut table, "name", name);
        GridBuilder { name: name.to_owned(), table }
    }
}

impl GridBuilder {
    /// Sets the addresses of the public internet.
    pub fn wan(mut self, subnet: Ipv4Net) -> Self {
        let mut wan = Table::new();
        set(&mut wan, "subnet", subnet.to_string());
        set(&mut self.table, "wan", wan);
        self
    }

    /// Adds a public host to the grid.
    pub fn host(mut self, host: HostBuilder) -> Self {
        push(&mut self.table, "host", host.0);
        self
    }

    /// Adds a site to the grid.
    pub fn site(mut self, site: SiteBuilder) -> Self {
        push(&mut self.table, "site", site.0);
        self
    }

    /// Keeps a directory visible in all machines.
    pub fn share(mut self, directory: &Path) -> Self {
        push(&mut self.table, "share", directory.to_string_lossy().into_owned());
        self
    }

    /// Has isthmus send unencrypted between two sites.
    pub fn trusted(mut self, a: &str, b: &str) -> Self {
        push(&mut self.table, "trusted", vec![a, b]);
        self
    }

    /// Has isthmus join two sites by none but these dials and routes.
    pub fn only(self, a: &str, b: &str, ways: &[&str]) -> Self {
        self.pair([a, b], "only", ways)
    }

    /// Has isthmus join two sites by none of these dials and routes.
    pub fn never(self, a: &str, b: &str, ways: &[&str]) -> Self {
        self.pair([a, b], "never", ways)
    }

    fn pair(mut self, sites: [&str; 2], key: &str, ways: &[&str]) -> Self {
        let mut pair = Table::new();
        set(&mut pair, "sites", sites.to_vec());
        set(&mut pair, key, ways.to_vec());
        push(&mut self.table, "pairs", pair);
        self
    }

    /// The grid as the text of a grid file.
    pub fn text(&self) -> String {
        self.table.to_string()
    }

    /// The checked grid. An error's line is that of [`text`](Self::text).
    pub fn grid(&self) -> Result<Grid, GridError> {
        Grid::parse(&self.text(), &format!("grid {}", self.name), &self.name)
    }
}

fn set(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

fn push(table: &mut Table, key: &str, value: impl Into<Value>) {
    let list = table.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = list {
        list.push(value.into());
    }
}

fn words(roles: impl IntoIterator<Item = Role>) -> Vec<&'static str> {
    roles.into_iter().map(Role::command).collect()
}

/// Defines a builder, which wraps a table of a grid file, and the setters of the table's keys.
macro_rules! builder {
    ($(#[$doc:meta])* $name:ident { $($(#[$setter_doc:meta])*
        $setter:ident($($argument:ident: $type:ty),*) $key:literal $value:expr;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        #[must_use]
        pub struct $name(Table);

        impl $name {
            $($(#[$setter_doc])*
            pub fn $setter(mut self, $($argument: $type),*) -> Self {
                set(&mut self.0, $key, $value);
                self
            })+
        }
    };
}

builder! {
    /// A public host in the making; see [`Host::build`].
    HostBuilder {
        /// Sets the machine's own host name. By default it is the host's name.
        host_name(name: &str) "host_name" name;
        /// Sets the host's public address. By default it is a free address of the wide area.
        address(address: Ipv4Addr) "address" address.to_string();
        /// Sets the host's link to the internet.
        link(link: LinkBuilder) "link" link.0;
        /// Sets the services that run on the host.
        roles(roles: impl IntoIterator<Item = Role>) "roles" words(roles);
        /// Sets the port of the host's only service, a broker or relay.
        port(port: u16) "port" i64::from(port);
    }
}

builder! {
    /// A site in the making; see [`Site::build`].
    SiteBuilder {
        /// Sets the subnet of the nodes' addresses.
        subnet(subnet: Ipv4Net) "subnet" subnet.to_string();
        /// Sets the site's address on the internet.
        outside(address: Ipv4Addr) "outside" address.to_string();
        /// Sets the site's link to the internet.
        link(link: LinkBuilder) "link" link.0;
        /// Sets a link to the internet that only delays, by `one_way` in each direction.
        delay(one_way: Duration) "link" Link::build().delay(one_way).0;
        /// Sets the rate at which each node sends and receives on the local network.
        lan_rate(rate: BitRate) "lan_rate" rate.to_string();
        /// Sets the router's answer to an unsolicited TCP segment.
        unsolicited(answer: Unsolicited) "unsolicited" match answer {
            Unsolicited::Drop => "drop",
            Unsolicited::Reset => "reset",
        };
        /// Has the router let nothing new out but TCP to these ports.
        egress(ports: impl IntoIterator<Item = PortRange>) "egress"
            ports.into_iter().map(|ports| ports.to_string()).collect::<Vec<_>>();
    }
}

builder! {
    /// A node in the making; see [`Node::build`].
    NodeBuilder {
        /// Sets the machine's own host name. By default it is the node's name.
        host_name(name: &str) "host_name" name;
        /// Sets the node's address. By default it is a free address of the site's subnet.
        address(address: Ipv4Addr) "address" address.to_string();
        /// Sets the services that run on the node.
        roles(roles: impl IntoIterator<Item = Role>) "roles" words(roles);
        /// Sets for how many ranks the node's agent offers room.
        slots(slots: u32) "slots" i64::from(slots);
        /// Has the node neither reach nor be reached by anything outside its site.
        no_way_out() "way_out" false;
        /// Names the node whose gateway the node's agent uses.
        via(node: &str) "via" node;
    }
}

builder! {
    /// A rail in the making; see [`Rail::build`].
    RailBuilder {
        /// Sets the rate at which each node sends and receives on the rail.
        rate(rate: BitRate) "rate" rate.to_string();
        /// Gives the rail a link of its own to the internet.
        link(link: LinkBuilder) "link" link.0;
        /// Sets the router's address at the rail's own link.
        outside(address: Ipv4Addr) "outside" address.to_string();
    }
}

builder! {
    /// A link in the making; see [`Link::build`].
    LinkBuilder {
        /// Sets how long a packet takes in each direction.
        delay(delay: Duration) "delay" Delay(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)).to_string();
        /// Sets by how much each packet's delay may differ from [`delay`](Self::delay).
        jitter(jitter: Duration) "jitter" Delay(u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX)).to_string();
        /// Sets the rate of the bottleneck.
        rate(rate: BitRate) "rate" rate.to_string();
        /// Sets the length of the queue before the bottleneck.
        queue(queue: ByteSize) "queue" queue.to_string();
        /// Sets the share of packets that are lost.
        loss(loss: Share) "loss" loss.to_string();
        /// Sets the mean number of packets lost in a row.
        burst(packets: u32) "burst" i64::from(packets);
        /// Sets the size in bytes above which packets vanish.
        black_hole(bytes: u32) "black-hole" i64::from(bytes);
        /// Sets what differs on the way to the internet.
        up(up: LinkBuilder) "up" up.0;
        /// Sets what differs on the way from the internet.
        down(down: LinkBuilder) "down" down.0;
    }
}

impl SiteBuilder {
    fn new(kind: SiteKind, name: &str) -> Self {
        let mut table = Table::new();
        set(&mut table, "name", name);
        set(&mut table, "kind", kind.name());
        Self(table)
    }

    /// Adds a node to the site.
    pub fn node(mut self, node: NodeBuilder) -> Self {
        push(&mut self.0, "nodes", node.0);
        self
    }

    /// Adds nodes `n1` to `n<count>` to the site.
    pub fn nodes(self, count: usize) -> Self {
        (1..=count).fold(self, |site, number| site.node(Node::build(&format!("n{number}"))))
    }

    /// Lets ports in from the internet to the node `to`.
    pub fn forward(mut self, ports: PortRange, to: &str) -> Self {
        let mut forward = Table::new();
        set(&mut forward, "ports", ports.to_string());
        set(&mut forward, "to", to);
        push(&mut self.0, "forward", forward);
        self
    }

    /// Adds a rail to the site.
    pub fn rail(mut self, rail: RailBuilder) -> Self {
        push(&mut self.0, "rails", rail.0);
        self
    }
}

impl Host {
    /// Begins a public host of this name.
    pub fn build(name: &str) -> HostBuilder {
        let mut host = HostBuilder::default();
        set(&mut host.0, "name", name);
        host
    }
}

impl Node {
    /// Begins a node of this name.
    pub fn build(name: &str) -> NodeBuilder {
        let mut node = NodeBuilder::default();
        set(&mut node.0, "name", name);
        node
    }
}

impl Rail {
    /// Begins a rail of this name and subnet.
    pub fn build(name: &str, subnet: Ipv4Net) -> RailBuilder {
        let mut rail = RailBuilder::default();
        set(&mut rail.0, "name", name);
        set(&mut rail.0, "subnet", subnet.to_string());
        rail
    }
}

impl Link {
    /// Begins a link, which without further settings does nothing to packets.
    pub fn build() -> LinkBuilder {
        LinkBuilder::default()
    }
}

impl Site {
    /// Begins a site of any kind.
    pub fn build(kind: SiteKind, name: &str) -> SiteBuilder {
        SiteBuilder::new(kind, name)
    }

    /// Begins a site with public addresses that filters nothing.
    pub fn open(name: &str) -> SiteBuilder {
        SiteBuilder::new(SiteKind::Open, name)
    }

    /// Begins a site behind a stateful firewall.
    pub fn firewall(name: &str) -> SiteBuilder {
        SiteBuilder::new(SiteKind::Firewall, name)
    }

    /// Begins a site behind a firewall that drops inbound SYNs and keeps no
    /// state.
    pub fn stateless_firewall(name: &str) -> SiteBuilder {
        SiteBuilder::new(SiteKind::StatelessFirewall, name)
    }

    /// Begins a site behind a NAT that keeps ports.
    pub fn nat(name: &str) -> SiteBuilder {
        SiteBuilder::new(SiteKind::Nat, name)
    }

    /// Begins a site behind a NAT with a random port per destination.
    pub fn symmetric_nat(name: &str) -> SiteBuilder {
        SiteBuilder::new(SiteKind::SymmetricNat, name)
    }

    /// Begins a site behind two NATs in a row.
    pub fn carrier_nat(name: &str) -> SiteBuilder {
        SiteBuilder::new(SiteKind::CarrierNat, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> PortRange {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_built_is_what_a_file_says() {
        let millisecond = Duration::from_millis(1);
        let built = Grid::build("all")
            .wan("198.51.0.0/16".parse().unwrap())
            .share(Path::new("/tmp/build"))
            .trusted("alpha", "beta")
            .only("alpha", "beta", &["relay", "end-to-end"])
            .never("beta", "alpha", &["punch"])
            .host(Host::build("hub").roles([Role::Broker]).port(443).link(Link::build().delay(millisecond)))
            .site(
                Site::nat("alpha")
                    .unsolicited(Unsolicited::Reset)
                    .lan_rate(BitRate(1_000_000_000))
                    .forward(ports("7000-7099"), "front")
                    .egress([ports("443")])
                    .rail(Rail::build("fast", "10.10.0.0/24".parse().unwrap()).rate(BitRate(10_000_000_000)))
                    .rail(
                        Rail::build("far", "10.11.0.0/24".parse().unwrap())
                            .link(Link::build().delay(5 * millisecond).up(Link::build().loss(Share(1_000)))),
                    )
                    .node(Node::build("front").roles([Role::Gateway]).host_name("login"))
                    .node(Node::build("n1").roles([Role::Agent]).slots(2).no_way_out().via("front")),
            )
            .site(Site::open("beta").nodes(2).delay(2 * millisecond));
        let written = r#"
            name = "all"
            share = ["/tmp/build"]
            trusted = [["alpha", "beta"]]
            pairs = [
              { sites = ["alpha", "beta"], only = ["relay", "end-to-end"] },
              { sites = ["beta", "alpha"], never = ["punch"] },
            ]
            [wan]
            subnet = "198.51.0.0/16"
            [[host]]
            name = "hub"
            roles = ["broker"]
            port = 443
            link = { delay = "1 ms" }
            [[site]]
            name = "alpha"
            kind = "nat"
            unsolicited = "reset"
            lan_rate = "1 Gbit/s"
            forward = [{ ports = "7000-7099", to = "front" }]
            egress = [443]
            rails = [
              { name = "fast", subnet = "10.10.0.0/24", rate = "10 Gbit/s" },
              { name = "far", subnet = "10.11.0.0/24", link = { delay = "5 ms", up = { loss = "1 ppm" } } },
            ]
            nodes = [
              { name = "front", roles = ["gateway"], host_name = "login" },
              { name = "n1", roles = ["agent"], slots = 2, way_out = false, via = "front" },
            ]
            [[site]]
            name = "beta"
            kind = "open"
            link = { delay = "2 ms" }
            nodes = [{ name = "n1" }, { name = "n2" }]
        "#;
        assert_eq!(built.grid().unwrap(), Grid::parse(written, "file", "x").unwrap());
    }

    #[test]
    fn what_is_built_wrongly_is_refused_as_in_a_file() {
        let open = Grid::build("wrong").site(Site::open("alpha").nodes(1).unsolicited(Unsolicited::Drop));
        let error = open.grid().unwrap_err().to_string();
        assert!(
            error.contains("grid wrong:") && error.contains("an open site lets everything in"),
            "{error}"
        );
        let late = Grid::build("late").site(Site::nat("alpha").nodes(1).delay(Duration::MAX));
        assert!(late.grid().unwrap_err().to_string().contains("is not a delay"));
        let unnamed = Grid::build("a b").host(Host::build("hub"));
        assert!(unnamed.grid().unwrap_err().to_string().contains("the lab's name"));
    }
}
