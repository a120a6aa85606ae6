//! Subnets that may and may not overlap, and who has which address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use toml::Spanned;

use crate::grid::error::{Fault, fault};
use crate::grid::file::{GridFile, SiteTable};
use crate::grid::model::SiteKind;

/// The default subnet of a site behind a NAT.
const DEFAULT_PRIVATE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 1, 0), 24);

/// The networks that default subnets of sites with public addresses come from: TEST-NET-3 and
/// TEST-NET-1 of RFC 5737, never addresses of anything real.
const DEFAULT_PUBLIC: [Ipv4Net; 2] = [
    Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24),
];

/// Length of the prefix of each default subnet in [`DEFAULT_PUBLIC`].
const DEFAULT_PUBLIC_PREFIX: u8 = 26;

/// The addresses between subscribers' routers and their carrier's NAT (RFC 6598).
const SHARED: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);

pub(super) fn first_address(subnet: Ipv4Net) -> Option<Ipv4Addr> {
    if subnet.prefix_len() > 30 { None } else { subnet.hosts().next() }
}

fn overlap(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.contains(b) || b.contains(a)
}

/// Marks `address` as taken by `who`. The fault says why it can't be.
pub(super) fn claim(
    taken: &mut BTreeMap<Ipv4Addr, String>,
    subnet: Ipv4Net,
    address: &Spanned<Ipv4Addr>,
    who: &str,
) -> Result<(), Fault> {
    let value = *address.get_ref();
    if !subnet.contains(&value) || value == subnet.network() || value == subnet.broadcast() {
        return fault(address, format!("{value}, address of {who}, is no host address of {subnet}"));
    }
    if let Some(other) = taken.insert(value, who.to_owned()) {
        return fault(address, format!("{value} is the address of both {other} and {who}"));
    }
    Ok(())
}

/// Checks that a subnet has room for a router and a node, and that its host bits are zero.
pub(super) fn check_subnet(subnet: &Spanned<Ipv4Net>) -> Result<(), Fault> {
    let value = *subnet.get_ref();
    if first_address(value).is_none() {
        return fault(
            subnet,
            format!("subnet {value} has no room for a router and a node: use /30 or larger"),
        );
    }
    if value.addr() != value.network() {
        return fault(subnet, format!("subnet {value} has host bits set: write {}", value.trunc()));
    }
    Ok(())
}

/// The subnets of all sites, checked against each other and against the wide area's subnet.
pub(super) struct Subnets {
    of_sites: Vec<Ipv4Net>,
}

/// A subnet with its owner, for messages.
struct Owned {
    subnet: Ipv4Net,
    owner: String,
}

impl Subnets {
    pub(super) fn of(file: &GridFile) -> Result<Self, Fault> {
        let wan = *file.wan.subnet.get_ref();
        // A subnet that the wide area has a route to must be one owner's alone.
        let mut routed = vec![Owned { subnet: wan, owner: "the wide area".to_owned() }];
        for site in &file.sites {
            if let Some(subnet) = &site.subnet {
                check_subnet(subnet)?;
                check_main(site, subnet, wan, &mut routed)?;
            }
            check_rails(site, wan, &mut routed)?;
        }
        let mut of_sites = Vec::new();
        for site in &file.sites {
            let subnet = match &site.subnet {
                Some(subnet) => *subnet.get_ref(),
                None => default_subnet(site, wan, &mut routed)?,
            };
            check_apart(site, subnet)?;
            of_sites.push(subnet);
        }
        Ok(Self { of_sites })
    }

    /// The sites' subnets, in the order of the file.
    pub(super) fn of_sites(&self) -> &[Ipv4Net] {
        &self.of_sites
    }
}

fn default_subnet(site: &SiteTable, wan: Ipv4Net, routed: &mut Vec<Owned>) -> Result<Ipv4Net, Fault> {
    if site.kind.translates() {
        return match overlap(&DEFAULT_PRIVATE, &wan) {
            false => Ok(DEFAULT_PRIVATE),
            true => fault(
                &site.name,
                format!(
                    "the default subnet {DEFAULT_PRIVATE} overlaps with the wide area's: add subnet = \"…\""
                ),
            ),
        };
    }
    let free = |subnet: &Ipv4Net| !routed.iter().any(|other| overlap(&other.subnet, subnet));
    let candidates = DEFAULT_PUBLIC.iter().filter_map(|net| net.subnets(DEFAULT_PUBLIC_PREFIX).ok());
    match candidates.flatten().find(free) {
        Some(subnet) => {
            routed.push(Owned { subnet, owner: format!("site {:?}", site.name.get_ref()) });
            Ok(subnet)
        }
        None => fault(&site.name, "no default subnet is left for this site: add subnet = \"…\""),
    }
}

fn check_main(
    site: &SiteTable,
    subnet: &Spanned<Ipv4Net>,
    wan: Ipv4Net,
    routed: &mut Vec<Owned>,
) -> Result<(), Fault> {
    if site.kind.translates() {
        check_private(site, subnet, wan)
    } else {
        check_routed(subnet, format!("site {:?}", site.name.get_ref()), routed)
    }
}

fn check_rails(site: &SiteTable, wan: Ipv4Net, routed: &mut Vec<Owned>) -> Result<(), Fault> {
    for rail in &site.rails {
        check_subnet(&rail.subnet)?;
        if site.kind.translates() || rail.link.is_none() {
            check_private(site, &rail.subnet, wan)?;
        } else {
            let owner = format!("rail {:?} of site {:?}", rail.name.get_ref(), site.name.get_ref());
            check_routed(&rail.subnet, owner, routed)?;
        }
    }
    Ok(())
}

fn check_private(site: &SiteTable, subnet: &Spanned<Ipv4Net>, wan: Ipv4Net) -> Result<(), Fault> {
    let value = *subnet.get_ref();
    if overlap(&value, &wan) {
        return fault(subnet, format!("subnet {value} overlaps with the wide area's, {wan}"));
    }
    if site.kind == SiteKind::CarrierNat && overlap(&value, &SHARED) {
        return fault(
            subnet,
            format!(
                "subnet {value} overlaps with {SHARED}, which carriers use between their NATs and a site"
            ),
        );
    }
    Ok(())
}

fn check_routed(subnet: &Spanned<Ipv4Net>, owner: String, routed: &mut Vec<Owned>) -> Result<(), Fault> {
    let value = *subnet.get_ref();
    if let Some(other) = routed.iter().find(|other| overlap(&other.subnet, &value)) {
        let message = format!(
            "subnet {value} overlaps with {} of {}: only sites behind NAT may share addresses",
            other.subnet, other.owner
        );
        return fault(subnet, message);
    }
    routed.push(Owned { subnet: value, owner });
    Ok(())
}

/// Checks that the networks of a site don't overlap.
fn check_apart(site: &SiteTable, main: Ipv4Net) -> Result<(), Fault> {
    for (number, rail) in site.rails.iter().enumerate() {
        let subnet = *rail.subnet.get_ref();
        let mut others = site.rails[..number].iter().map(|rail| *rail.subnet.get_ref()).chain([main]);
        if let Some(other) = others.find(|other| overlap(other, &subnet)) {
            let message = format!("subnet {subnet} overlaps with {other}, another network of this site");
            return fault(&rail.subnet, message);
        }
    }
    Ok(())
}

/// Gives out addresses of the wide area. Those that the file names are taken first. The others
/// follow from the lowest free address.
pub(super) struct WanAddresses {
    router: Ipv4Addr,
    free: std::vec::IntoIter<Ipv4Addr>,
}

impl WanAddresses {
    pub(super) fn new(file: &GridFile) -> Result<Self, Fault> {
        check_subnet(&file.wan.subnet)?;
        let subnet = *file.wan.subnet.get_ref();
        let Some(router) = first_address(subnet) else {
            return fault(&file.wan.subnet, format!("subnet {subnet} has no room: use /30 or larger"));
        };
        if overlap(&subnet, &SHARED) && file.sites.iter().any(|site| site.kind == SiteKind::CarrierNat) {
            return fault(
                &file.wan.subnet,
                format!(
                    "subnet {subnet} overlaps with {SHARED}, which a carrier-nat site has between its NATs"
                ),
            );
        }
        let mut taken = BTreeMap::from([(router, "the wide area's router".to_owned())]);
        let mut wanted = 0;
        let mut take = |address: Option<&Spanned<Ipv4Addr>>, who: &dyn Fn() -> String| {
            wanted += 1;
            address.map_or(Ok(()), |address| claim(&mut taken, subnet, address, &who()))
        };
        for host in &file.hosts {
            take(host.address.as_ref(), &|| format!("host {:?}", host.name.get_ref()))?;
        }
        for site in &file.sites {
            take(site.outside.as_ref(), &|| format!("the router of site {:?}", site.name.get_ref()))?;
            for rail in &site.rails {
                let who = || format!("rail {:?} of site {:?}", rail.name.get_ref(), site.name.get_ref());
                take(rail.outside.as_ref(), &who)?;
            }
        }
        // Never more than the file can ask for: a /8 has 16 million addresses.
        let free: Vec<_> =
            subnet.hosts().filter(|address| !taken.contains_key(address)).take(wanted).collect();
        Ok(Self { router, free: free.into_iter() })
    }

    /// The address of the wide area's own router.
    pub(super) fn router(&self) -> Ipv4Addr {
        self.router
    }

    pub(super) fn take(
        &mut self,
        given: Option<&Spanned<Ipv4Addr>>,
        owner: &Spanned<String>,
        who: &str,
    ) -> Result<Ipv4Addr, Fault> {
        match (given, &mut self.free) {
            (Some(address), _) => Ok(*address.get_ref()),
            (None, free) => match free.next() {
                Some(address) => Ok(address),
                None => fault(owner, format!("no address left on the wide area for {who}")),
            },
        }
    }
}
