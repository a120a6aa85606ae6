//! Clients that have recently asked for their outside address. Each has thereby shown
//! that it owns the address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_net::lock;

/// How long a client counts as recent, and how many are remembered. Beyond that all
/// are dropped; clients ask again.
const ASKED_FOR: Duration = Duration::from_secs(900);
const MAX_RECENT: usize = 64 * 1024;

/// The recent clients, by IP address.
#[derive(Debug, Default)]
pub struct RecentClients(Mutex<HashMap<IpAddr, Instant>>);

impl RecentClients {
    /// Notes a client that asked from this address.
    pub fn note(&self, ip: IpAddr, now: Instant) {
        let mut recent_clients = lock(&self.0);
        if recent_clients.len() >= MAX_RECENT {
            recent_clients.retain(|_, at| now.saturating_duration_since(*at) < ASKED_FOR);
        }
        if recent_clients.len() >= MAX_RECENT {
            recent_clients.clear();
        }
        recent_clients.insert(ip.to_canonical(), now);
    }

    /// Whether a client has recently asked from this address.
    pub fn know(&self, ip: IpAddr, now: Instant) -> bool {
        let at = lock(&self.0).get(&ip.to_canonical()).copied();
        at.is_some_and(|at| now.saturating_duration_since(at) < ASKED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_recent_for_a_while() {
        let (recent_clients, start) = (RecentClients::default(), Instant::now());
        let (ip, mapped) = ("192.0.2.1".parse().unwrap(), "::ffff:192.0.2.1".parse().unwrap());
        assert!(!recent_clients.know(ip, start));
        recent_clients.note(mapped, start);
        assert!(recent_clients.know(ip, start) && !recent_clients.know(ip, start + ASKED_FOR));
    }
}
