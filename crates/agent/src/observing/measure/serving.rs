//! Serves measurements of other nodes, as the broker orders them.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_carry::TcpInfo;
use isthmus_identity::secured::Secured;
use isthmus_identity::{Identity, Role};
use isthmus_plan::limits;
use isthmus_service::lock;
use isthmus_service::unidentified::UnidentifiedEntry;
use isthmus_wire::proto;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout_at;

use super::exchange::serve;

/// How long a measurement may take over a way of usual length. Also how long it may wait for
/// another measurement to end.
const DEADLINE: Duration = Duration::from_secs(15);
/// How much later than the connection of the node that measures the broker's order may arrive.
const ORDER_LAG: Duration = Duration::from_secs(5);
/// How long an order is good. In that time the node that measures carries out its former orders,
/// and tries each step of its plan.
const GOOD: Duration = Duration::from_secs(120);
/// Most orders that are kept; further ones are dropped.
const ORDERS: usize = 1024;

/// Serves each measurement that the broker has ordered, one at a time, because they take
/// bandwidth from jobs.
#[derive(Debug)]
pub(crate) struct Measuring {
    one: Semaphore,
    ordered: Mutex<Ordered>,
    /// Sent whenever the broker orders another measurement.
    further: watch::Sender<()>,
}

impl Default for Measuring {
    fn default() -> Self {
        Self { one: Semaphore::new(1), ordered: Mutex::default(), further: watch::Sender::new(()) }
    }
}

/// What the broker tells the measured node of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    /// Whether a user waits for the result.
    asked: bool,
    /// Whether the bandwidth is measured.
    transfer: bool,
}

impl Order {
    /// Whether a transfer may be made now. While a job runs here (`busy`), only a user of this
    /// node's owner gets one.
    fn allows(self, busy: bool, same_owner: bool) -> bool {
        if self.asked { !busy || same_owner } else { self.transfer && !busy }
    }
}

/// The orders that are good, by the grid name of the node that measures.
#[derive(Debug, Default)]
struct Ordered(HashMap<String, (Instant, Order)>);

impl Ordered {
    fn add(&mut self, initiator: &str, order: Order, now: Instant) {
        self.0.retain(|_, (since, _)| now.saturating_duration_since(*since) < GOOD);
        if self.0.len() < ORDERS || self.0.contains_key(initiator) {
            self.0.insert(initiator.to_owned(), (now, order));
        }
    }

    /// Takes out the order of the node with this name; `None` if there is none that is still good.
    fn take(&mut self, initiator: &str, now: Instant) -> Option<Order> {
        let (since, order) = self.0.remove(initiator)?;
        (now.saturating_duration_since(since) < GOOD).then_some(order)
    }
}

impl Measuring {
    /// Notes that the broker has another node measure this one.
    pub(crate) fn ordered(&self, order: &proto::MeasureOrder) {
        let what = Order { asked: !order.background, transfer: order.transfer };
        lock(&self.ordered).add(&order.initiator, what, Instant::now());
        self.further.send_replace(());
    }

    /// Serves one measurement at the acceptor's side. `busy` says whether a job runs here. `entry`
    /// is held until it is clear that the broker has ordered the measurement.
    ///
    /// # Errors The connection's error. Also if the broker has ordered no measurement by this peer,
    /// or other measurements take too long.
    pub(crate) async fn serve(
        &self,
        stream: Secured,
        entry: Option<UnidentifiedEntry>,
        same_owner: bool,
        busy: impl Fn() -> bool,
    ) -> io::Result<()> {
        let peer = stream.identity().filter(|peer| peer.role() == Role::Agent);
        let name = peer.and_then(Identity::grid_name);
        let name = name.ok_or_else(|| io::Error::other("only agents measure"))?.to_string();
        let Some(order) = self.wait_for_order(&name).await else {
            return Err(io::Error::other(format!("the broker has ordered no measurement by {name}")));
        };
        drop(entry);
        let permit = tokio::time::timeout(DEADLINE, self.one.acquire()).await;
        let _permit =
            permit.map_err(|_| io::Error::other("other nodes measure"))?.map_err(io::Error::other)?;
        // The connection's round trip was measured while it opened.
        let round_trip = TcpInfo::of(stream.get_ref().0).map(|info| info.rtt).ok();
        let deadline = limits::grown(DEADLINE, round_trip);
        let serving = serve(stream, || order.allows(busy(), same_owner));
        tokio::time::timeout(deadline, serving).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Waits for the broker's order to be measured by this node: it comes another way, and may
    /// arrive later than the connection. Returns `None` if it doesn't come in time.
    async fn wait_for_order(&self, initiator: &str) -> Option<Order> {
        let (until, mut further) = (tokio::time::Instant::now() + ORDER_LAG, self.further.subscribe());
        loop {
            if let Some(order) = lock(&self.ordered).take(initiator, Instant::now()) {
                return Some(order);
            }
            timeout_at(until, further.changed()).await.ok()?.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKGROUND: Order = Order { asked: false, transfer: true };

    #[test]
    fn an_order_is_good_once_for_one_node_and_for_a_while() {
        let (mut ordered, start) = (Ordered::default(), Instant::now());
        ordered.add("n1.beta", BACKGROUND, start);
        assert_eq!(ordered.take("n2.beta", start), None);
        assert_eq!(ordered.take("n1.beta", start + Duration::from_secs(100)), Some(BACKGROUND));
        assert_eq!(ordered.take("n1.beta", start), None, "used");
        ordered.add("n1.beta", BACKGROUND, start);
        assert_eq!(ordered.take("n1.beta", start + GOOD), None, "late");
    }

    #[test]
    fn many_orders_do_not_fill_the_memory() {
        let (mut ordered, start) = (Ordered::default(), Instant::now());
        for number in 0..ORDERS + 10 {
            ordered.add(&number.to_string(), BACKGROUND, start);
        }
        assert_eq!(ordered.0.len(), ORDERS);
        ordered.add("n1.beta", BACKGROUND, start + GOOD);
        assert_eq!(ordered.0.len(), 1);
    }

    #[test]
    fn beside_a_job_only_a_user_of_the_own_owner_has_the_bandwidth_measured() {
        let asked = Order { asked: true, transfer: false };
        let round_trip = Order { asked: false, transfer: false };
        // Order, whether a job runs here, whether the owner is the same.
        for (order, busy, same_owner, want) in [
            (BACKGROUND, false, false, true),
            (BACKGROUND, true, true, false),
            (round_trip, false, true, false),
            (asked, false, false, true),
            (asked, true, false, false),
            (asked, true, true, true),
        ] {
            assert_eq!(order.allows(busy, same_owner), want, "{order:?} {busy} {same_owner}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_may_come_after_the_connection() {
        let measuring = Measuring::default();
        let order = |initiator: &str| proto::MeasureOrder {
            initiator: initiator.to_owned(),
            background: true,
            transfer: true,
            ..Default::default()
        };
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            measuring.ordered(&order("n2.beta"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            measuring.ordered(&order("n1.beta"));
        };
        let (found, ()) = tokio::join!(measuring.wait_for_order("n1.beta"), later);
        assert_eq!(found, Some(BACKGROUND));
        assert_eq!(measuring.wait_for_order("n1.beta").await, None);
    }
}
