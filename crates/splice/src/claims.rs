//! Reach tests that clients have named when they asked for their outside address.
//!
//! A client thereby shows that the test is its own, and that it has the address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_service::lock;
use isthmus_wire::ConnectionId;

/// How long a client has to order the test that it named.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Most reach tests that are remembered. Beyond that all are dropped, and clients name theirs
/// again.
const MAX_CLAIMS: usize = 64 * 1024;

/// The reach tests that clients named, and the IP address from which each was named.
#[derive(Debug, Default)]
pub struct Claims(Mutex<HashMap<ConnectionId, (IpAddr, Instant)>>);

impl Claims {
    /// Notes that a client named this test from this address. The first address counts: an
    /// eavesdropper who has seen the id can't move the test to another address.
    pub fn note(&self, test: ConnectionId, ip: IpAddr, now: Instant) {
        let mut claims = lock(&self.0);
        if claims.len() >= MAX_CLAIMS {
            claims.retain(|_, (_, at)| now.saturating_duration_since(*at) < KEPT_FOR);
        }
        if claims.len() >= MAX_CLAIMS {
            claims.clear();
        }
        claims.entry(test).or_insert((ip.to_canonical(), now));
    }

    /// Whether this test was recently named from this address.
    pub fn allow(&self, test: ConnectionId, ip: IpAddr, now: Instant) -> bool {
        lock(&self.0).get(&test).is_some_and(|(from, at)| {
            *from == ip.to_canonical() && now.saturating_duration_since(*at) < KEPT_FOR
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_belongs_to_the_address_that_named_it_for_a_while() {
        let (claims, start) = (Claims::default(), Instant::now());
        let (test, another) = (ConnectionId([1; 16]), ConnectionId([2; 16]));
        let [ip, mapped, other_ip] =
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        assert!(!claims.allow(test, ip, start));
        claims.note(test, mapped, start);
        claims.note(test, other_ip, start);
        assert!(claims.allow(test, ip, start));
        for (test, ip, at) in [(test, other_ip, start), (another, ip, start), (test, ip, start + KEPT_FOR)] {
            assert!(!claims.allow(test, ip, at), "{test} {ip}");
        }
    }
}
