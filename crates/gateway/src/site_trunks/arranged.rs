//! The gateways that may make a trunk with this one: those with which the broker has arranged a
//! trunk. The broker arranges a trunk only if both sites keep trunks, and its policy allows it. A
//! gateway of any other site has a certificate, too.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_net::lock;
use isthmus_wire::GridName;
use tokio::sync::watch;
use tokio::time::timeout_at;

/// How long an arrangement is good: several times as long as a dial's deadline.
const GOOD: Duration = Duration::from_secs(20);
/// How much later than a carrier the broker's order for it may arrive.
const ORDER_LAG: Duration = Duration::from_secs(3);

/// When the broker last arranged a trunk with each gateway.
#[derive(Debug)]
pub(super) struct Arranged {
    last: Mutex<HashMap<GridName, Instant>>,
    /// Sent whenever a further trunk is arranged.
    further: watch::Sender<()>,
}

impl Arranged {
    pub(super) fn new() -> Self {
        Self { last: Mutex::default(), further: watch::Sender::new(()) }
    }

    /// Notes that the broker has arranged a trunk with this gateway.
    pub(super) fn note(&self, gateway: &GridName) {
        let now = Instant::now();
        let mut last = lock(&self.last);
        last.retain(|_, at| now.saturating_duration_since(*at) < GOOD);
        last.insert(gateway.clone(), now);
        drop(last);
        self.further.send_replace(());
    }

    /// Whether this gateway may make a trunk, now or in a moment.
    pub(super) async fn is_with(&self, gateway: &GridName) -> bool {
        let (until, mut further) = (tokio::time::Instant::now() + ORDER_LAG, self.further.subscribe());
        while !self.is_now_with(gateway) {
            if !matches!(timeout_at(until, further.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }

    fn is_now_with(&self, gateway: &GridName) -> bool {
        lock(&self.last).get(gateway).is_some_and(|at| at.elapsed() < GOOD)
    }
}
