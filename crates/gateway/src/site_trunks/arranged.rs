//! The gateways that may make a trunk with this one: those with which the broker has arranged
//! it. It does so only if both sites keep trunks, and its policy allows it. A gateway of any
//! other site has a certificate, too.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_net::lock;
use isthmus_wire::GridName;
use tokio::sync::watch;
use tokio::time::timeout_at;

/// How long an arrangement is good: a dial's deadline several times over.
const GOOD: Duration = Duration::from_secs(20);
/// How much later than a carrier the broker's order may arrive.
const ORDER_LAG: Duration = Duration::from_secs(3);

/// When the broker has arranged a trunk with each gateway last.
#[derive(Debug)]
pub(super) struct Arranged {
    last: Mutex<HashMap<GridName, Instant>>,
    /// Sent whenever there is another one.
    further: watch::Sender<()>,
}

impl Arranged {
    pub(super) fn new() -> Self {
        Self { last: Mutex::default(), further: watch::Sender::new(()) }
    }

    /// The broker has arranged a trunk with this gateway.
    pub(super) fn note(&self, gateway: &GridName) {
        let now = Instant::now();
        let mut last = lock(&self.last);
        last.retain(|_, at| now.saturating_duration_since(*at) < GOOD);
        last.insert(gateway.clone(), now);
        drop(last);
        self.further.send_replace(());
    }

    /// Whether this gateway may make one, or may in a moment.
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
