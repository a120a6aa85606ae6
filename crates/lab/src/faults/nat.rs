//! Faults of NATs and stateful filters: mappings expire, a router
//! restarts without state, its address changes.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::outage;
use super::{FaultError, Line};
use crate::grid::{Site, SiteKind};
use crate::lab::{Running, find_machine};
use crate::network;
use crate::state::{MachineRecord, Record};

/// The router of a site that keeps state, for faults that only routers with state can have.
#[derive(Debug, Clone)]
pub struct Nat {
    running: Running,
    site: String,
}

impl Running {
    /// The router of a site that keeps state: a NAT or a stateful firewall.
    pub fn nat(&self, site: &str) -> Result<Nat, FaultError> {
        let record = self.record()?;
        let site = find_site(&record, site)?;
        if keeps_state(site) {
            Ok(Nat { running: self.clone(), site: site.name.clone() })
        } else {
            Err(FaultError::Stateless { site: site.name.clone(), kind: site.kind.name() })
        }
    }
}

impl Nat {
    /// Has the router forget all mappings and sessions, as when their timers run out. What comes
    /// from outside is then unsolicited, until the inside sends again and makes a new mapping.
    /// Returns how many were forgotten.
    pub fn expire(&self) -> Result<usize, FaultError> {
        self.running.change(|record| {
            routers(record, &self.site)?.into_iter().map(forget).try_fold(0, |sum, count| Ok(sum + count?))
        })
    }

    /// Has the router be off for a while and come back with no state. TCP connections from before
    /// don't come back: the router knows only those that it has seen from their first segment.
    /// Returns when the router is back. The outage ends also if this process ends before.
    pub fn restart(&self, outage: Duration) -> Result<(), FaultError> {
        self.running.change(|record| {
            for router in routers(record, &self.site)? {
                outage::begin(router, outage)?;
                forget(router)?;
            }
            Ok::<_, FaultError>(())
        })?;
        // Others may go on with the lab meanwhile.
        std::thread::sleep(outage);
        self.running.change(|record| {
            for router in routers(record, &self.site)? {
                forget(router)?;
                outage::end(router)?;
            }
            Ok(())
        })
    }

    /// Gives the site another address, as a provider does. Mappings to the old address are void,
    /// and packets to it reach no host.
    pub fn move_to(&self, address: Ipv4Addr) -> Result<(), FaultError> {
        self.running.change(|record| {
            let site = find_site(record, &self.site)?.clone();
            if !site.kind.translates() {
                return Err(FaultError::NotTranslated { site: site.name, kind: site.kind.name() });
            }
            check_free(record, address)?;
            let found = record.lines.iter().find(|line| line.to_wan && line.name == site.name);
            let Some(Line { near, far, .. }) = found else {
                return Err(FaultError::UnknownSite {
                    lab: record.grid.name.clone(),
                    name: site.name,
                    known: vec![],
                });
            };
            let (router, wan) = (find_machine(record, &near.machine)?, find_machine(record, &far.machine)?);
            let (old, inside, outside) = (site.outside, &near.interface, &far.interface);
            // With no address at all for a moment, the interface would lose
            // its routes.
            let renumber =
                format!("address add {address}/32 dev {inside}\naddress del {old}/32 dev {inside}\n");
            network::run_in(router, "ip", &["-batch", "-"], renumber)?;
            let own = record.grid.wan.router;
            let reroute =
                format!("route del {old}/32 dev {outside}\nroute add {address}/32 dev {outside} src {own}\n");
            network::run_in(wan, "ip", &["-batch", "-"], reroute)?;
            for router in routers(record, &site.name)? {
                forget(router)?;
            }
            if let Some(site) = record.grid.sites.iter_mut().find(|other| other.name == site.name) {
                site.outside = address;
            }
            Ok(())
        })
    }
}

/// Whether a site's router keeps state of the endpoints that its nodes have sent to.
fn keeps_state(site: &Site) -> bool {
    match site.kind {
        SiteKind::Nat | SiteKind::SymmetricNat | SiteKind::CarrierNat | SiteKind::Firewall => true,
        // What only some may leave through must know what belongs to it.
        SiteKind::Open => site.egress.is_some(),
        SiteKind::StatelessFirewall => false,
    }
}

fn find_site<'a>(record: &'a Record, name: &str) -> Result<&'a Site, FaultError> {
    let sites = &record.grid.sites;
    sites.iter().find(|site| site.name.eq_ignore_ascii_case(name)).ok_or_else(|| FaultError::UnknownSite {
        lab: record.grid.name.clone(),
        name: name.to_owned(),
        known: sites.iter().map(|site| site.name.clone()).collect(),
    })
}

/// All routers of a site, the innermost first.
fn routers<'a>(record: &'a Record, site: &str) -> Result<Vec<&'a MachineRecord>, FaultError> {
    let names = ["router", "carrier"].map(|role| format!("{role}.{site}"));
    let found: Vec<_> = names.iter().filter_map(|name| record.machine(name)).collect();
    if found.is_empty() { Ok(vec![find_machine(record, &names[0])?]) } else { Ok(found) }
}

/// Empties a router's table of connections. Returns how many the table had.
fn forget(router: &MachineRecord) -> Result<usize, FaultError> {
    let count = network::run_in(router, "conntrack", &["-C"], String::new())?;
    network::run_in(router, "conntrack", &["-F"], String::new())?;
    Ok(count.trim().parse().unwrap_or(0))
}

/// Checks that an address belongs to the wide area and is free.
fn check_free(record: &Record, address: Ipv4Addr) -> Result<(), FaultError> {
    let grid = &record.grid;
    let subnet = grid.wan.subnet;
    if !subnet.contains(&address) || address == subnet.network() || address == subnet.broadcast() {
        return Err(FaultError::Outside { address, subnet });
    }
    let hosts = grid.hosts.iter().map(|host| (host.address, format!("host {}", host.name)));
    let sites = grid.sites.iter().flat_map(|site| {
        let uplinks = site.rails.iter().filter_map(|rail| rail.uplink.map(|uplink| (rail, uplink.outside)));
        let rails = uplinks.map(|(rail, outside)| (outside, format!("site {}", site.rail_link_name(rail))));
        std::iter::once((site.outside, format!("site {}", site.name))).chain(rails)
    });
    let wan = [(grid.wan.router, "the wide area's router".to_owned())];
    match hosts.chain(sites).chain(wan).find(|(taken, _)| *taken == address) {
        Some((_, owner)) => Err(FaultError::Taken { address, owner }),
        None => Ok(()),
    }
}
