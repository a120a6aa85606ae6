//! Carries out what breaks, and mends it.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::World;

use super::faults::What;
use super::services::Services;

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// What a link does to packets without a fault.
const SOUND: [&str; 2] = ["loss=0 %", "delay=1.25 ms"];
/// The kernel's setting for how long a NAT remembers an idle connection.
const IDLE: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
/// Addresses of the wide area that sites move to: the first one's last number, and how many there
/// are.
const MOVES: (u8, u8) = (150, 50);

/// Longest packet in bytes that passes a link which swallows large packets.
const MOST_BYTES: u32 = 1300;
/// The addresses of the hosts that have relays, in each grid of a soak.
const RELAYS: &str = "{ 198.51.100.10, 198.51.100.11 }";

/// Rules of a router by which only packets from and to relays pass.
fn apart() -> String {
    format!(
        "add table ip apart; \
         add chain ip apart pass {{ type filter hook forward priority -300; }}; \
         add rule ip apart pass ip saddr != {RELAYS} ip daddr != {RELAYS} drop"
    )
}

/// A grid in which things break.
pub(super) struct Breaking {
    // The services end before the world does.
    pub(super) services: Services,
    pub(super) world: World,
    moves: u8,
    /// The value of a NAT's [`IDLE`] before it was changed. `None` if it isn't changed.
    idle_before: Option<String>,
}

impl Breaking {
    /// Takes a grid in which things break for `lasts`.
    pub(super) fn new(world: World, lasts: Duration) -> Self {
        Self { services: Services::new(lasts), world, moves: 0, idle_before: None }
    }

    /// Breaks something in the grid.
    pub(super) fn begin(&mut self, what: &What) -> Result<()> {
        let lab = self.world.lab();
        match what {
            What::Killed(services) => {
                services.iter().try_for_each(|service| self.services.kill(&self.world, *service))
            }
            What::Upgraded((machine, role)) => {
                self.world.kill(machine, "-HUP", &self.world.service(machine, role)?)
            }
            What::Cut(site) => self.world.cut_site(site),
            What::Link(site, changes) => {
                lab.set_link(site, changes)?;
                Ok(())
            }
            What::Forgets(site) => {
                lab.nat(site)?.expire()?;
                Ok(())
            }
            What::Moves(site) => {
                let (first, count) = MOVES;
                // The next address is never the present address of any site.
                let address = Ipv4Addr::new(198, 51, 100, first + self.moves);
                lab.nat(site)?.move_to(address)?;
                self.moves = (self.moves + 1) % count;
                Ok(())
            }
            What::Restarts(site) => {
                self.world.cut_site(site)?;
                lab.nat(site)?.expire()?;
                Ok(())
            }
            What::Timeouts(site, seconds) => {
                let before = self.router(site, &format!("cat {IDLE}"))?;
                self.router(site, &format!("echo {seconds} > {IDLE}"))?;
                self.idle_before = Some(before);
                Ok(())
            }
            What::Rank(node) => {
                let ranks = self.world.processes(node, "/visit")?;
                self.world.kill(node, "-KILL", ranks.first().context("no rank")?)
            }
            What::Host(host) => self.world.cut(host),
            What::Apart(site) => self.router(site, &format!("nft '{}'", apart())).map(drop),
            What::Swallows(site, direction) => {
                lab.set_link(site, &[format!("{direction}.black-hole={MOST_BYTES}")])?;
                Ok(())
            }
        }
    }

    /// Mends what was broken. Services are started, but may not be ready yet.
    pub(super) fn end(&mut self, what: &What) -> Result<()> {
        match what {
            What::Killed(services) => {
                services.iter().try_for_each(|service| self.services.start(&self.world, *service))
            }
            What::Cut(site) => self.world.heal_site(site),
            What::Link(site, _) => {
                self.world.lab().set_link(site, &SOUND)?;
                Ok(())
            }
            What::Timeouts(site, _) => {
                let before = self.idle_before.take().context("the time was not set")?;
                self.router(site, &format!("echo {before} > {IDLE}")).map(drop)
            }
            What::Restarts(site) => {
                self.world.lab().nat(site)?.expire()?;
                self.world.heal_site(site)
            }
            What::Host(host) => self.world.heal(host),
            What::Apart(site) => self.router(site, "nft delete table ip apart").map(drop),
            What::Swallows(site, _) => {
                self.world.lab().set_link(site, &["black-hole=none"])?;
                Ok(())
            }
            What::Upgraded(_) | What::Forgets(_) | What::Moves(_) | What::Rank(_) => Ok(()),
        }
    }

    /// Waits until the services that were started again serve.
    pub(super) fn ready(&self, what: &What) -> Result<()> {
        let What::Killed(services) = what else { return Ok(()) };
        services.iter().try_for_each(|service| Services::ready(&self.world, *service))
    }

    /// Whether the services that were started again serve.
    pub(super) fn is_ready(&self, what: &What) -> bool {
        let What::Killed(services) = what else { return true };
        services.iter().all(|service| Services::is_ready(&self.world, *service))
    }

    /// Runs a shell script at a site's router. Returns what it printed.
    fn router(&self, site: &str, script: &str) -> Result<String> {
        let done = self.world.sh(&format!("router.{site}"), SOON, &["sh", "-c", script])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(done.stdout.trim().to_owned())
    }
}
