//! Figures of all trunks of a service, added up by the site at their other end, for its
//! [counters].

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use isthmus_service::counters;
use isthmus_service::counters::trunks::{Added, Now};
use isthmus_trunk::{CarrierId, CarrierState, TrunkId};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::handle::ANSWER;
use super::{Kept, Pauses, Snapshot};

/// Interval between questions to the trunks. The figures of a carrier that ends in between lack
/// what it sent since the last question.
const INTERVAL: Duration = Duration::from_secs(5);

/// A trunk as it was when its worker was asked.
#[derive(Debug, Clone)]
struct Seen {
    site: String,
    id: TrunkId,
    is_cut: bool,
    pauses: Pauses,
    /// What the worker answered; `None` if it hasn't.
    snapshot: Option<Snapshot>,
}

/// The site and the id of a trunk. The peer may have chosen the id, so it alone names no trunk.
type Key = (String, TrunkId);

/// What a trunk had counted when it was last asked.
#[derive(Debug, Clone, Default)]
struct Counted {
    pauses: Pauses,
    /// For each carrier: segments with data, segments sent again, retransmission timeouts.
    carriers: HashMap<CarrierId, [u64; 3]>,
}

/// What was counted so far. A carrier's counters are the kernel's and end with it. A service's
/// counters never fall.
#[derive(Debug, Default)]
struct Figures {
    by_trunk: HashMap<Key, Counted>,
    by_site: BTreeMap<String, (Now, Added)>,
}

impl Figures {
    /// Takes in the trunks that stand now. Returns the figures of each site that has had a trunk.
    fn take(&mut self, all: &[Seen]) -> &BTreeMap<String, (Now, Added)> {
        for figures in self.by_site.values_mut() {
            *figures = Default::default();
        }
        let mut before = std::mem::take(&mut self.by_trunk);
        for seen in all {
            let (now, added) = self.by_site.entry(seen.site.clone()).or_default();
            add(now, seen);
            let key = (seen.site.clone(), seen.id);
            let former = before.remove(&key).unwrap_or_default();
            self.by_trunk.insert(key, grown(added, former, seen));
        }
        &self.by_site
    }
}

fn add(now: &mut Now, seen: &Seen) {
    now.trunks += 1;
    now.cut += u64::from(seen.is_cut);
    let Some(Snapshot { trunk, carriers }) = &seen.snapshot else { return };
    now.streams += trunk.streams as u64;
    now.held_bytes += trunk.held;
    for carrier in carriers {
        now.unsent_bytes += carrier.tcp.unsent_bytes;
        if carrier.status.state != CarrierState::Live {
            continue;
        }
        now.carriers += 1;
        now.congestion_window_bytes += carrier.tcp.congestion_window_bytes;
        now.bytes_per_second += carrier.tcp.bytes_per_second;
        let measured = Some(carrier.tcp.rtt).filter(|rtt| !rtt.is_zero());
        now.round_trip = now.round_trip.into_iter().chain(measured).min();
    }
}

/// Adds what a trunk has counted since it was last asked. Returns what it has counted in all.
fn grown(added: &mut Added, former: Counted, seen: &Seen) -> Counted {
    added.pauses += u64::from(seen.pauses.count.saturating_sub(former.pauses.count));
    added.paused += seen.pauses.total.saturating_sub(former.pauses.total);
    let Some(Snapshot { carriers, .. }) = &seen.snapshot else {
        return Counted { pauses: seen.pauses, ..former };
    };
    let mut counted = Counted { pauses: seen.pauses, carriers: HashMap::new() };
    for carrier in carriers {
        let tcp = &carrier.tcp;
        let sums = [tcp.data_segments, tcp.retransmitted_segments, tcp.timeouts.unwrap_or_default()];
        let before = former.carriers.get(&carrier.id).copied().unwrap_or_default();
        let more = |index: usize| sums[index].saturating_sub(before[index]);
        added.data_segments += more(0);
        added.retransmitted_segments += more(1);
        added.timeouts += more(2);
        counted.carriers.insert(carrier.id, sums);
    }
    counted
}

/// Sets the counters of trunks again and again, as long as this is polled. `all` returns the trunks
/// that stand, each with the site at its other end.
pub async fn keep_counted(all: impl Fn() -> Vec<(String, Arc<Kept>)>) -> Infallible {
    if !counters::are_started() {
        return std::future::pending().await;
    }
    let mut figures = Figures::default();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // At once, so that some which don't answer cost no more time than one.
        let asked: JoinSet<_> = all().into_iter().map(|(site, kept)| ask(site, kept)).collect();
        for (site, (now, added)) in figures.take(&asked.join_all().await) {
            counters::trunks::trunks(site, now, added);
        }
    }
}

async fn ask(site: String, kept: Arc<Kept>) -> Seen {
    let snapshot = timeout(ANSWER, kept.trunk.status()).await.ok().flatten();
    Seen { site, id: kept.id, is_cut: kept.is_cut(), pauses: kept.pauses(), snapshot }
}

#[cfg(test)]
mod tests {
    use isthmus_trunk::{CarrierStatus, Purpose, Status};

    use super::super::{CarrierSnapshot, Control, DecidedBy};
    use super::*;
    use crate::tcp_info::TcpInfo;

    fn carrier(id: u32, state: CarrierState, sums: [u64; 3]) -> CarrierSnapshot {
        let [data_segments, retransmitted_segments, timeouts] = sums;
        CarrierSnapshot {
            id: CarrierId(id),
            status: CarrierStatus {
                state,
                proved: true,
                peers_number: None,
                purpose: Purpose::Bulk,
                rtt: None,
                bytes_per_second: None,
                under_way: 0,
                acknowledged: 0,
                unanswered: None,
            },
            tcp: TcpInfo {
                rtt: Duration::from_millis(10 + u64::from(id)),
                congestion_window_bytes: 1000,
                data_segments,
                retransmitted_segments,
                timeouts: Some(timeouts),
                ..TcpInfo::default()
            },
            control: Control { name: "cubic".to_owned(), decided_by: DecidedBy::SystemForSmall, bound: None },
            ends: String::new(),
        }
    }

    fn seen(id: u8, (count, total): (u32, u64), carriers: Vec<CarrierSnapshot>) -> Seen {
        Seen {
            site: if id < 10 { "beta" } else { "gamma" }.to_owned(),
            id: TrunkId([id; 16]),
            is_cut: carriers.is_empty(),
            pauses: Pauses { count, total: Duration::from_secs(total) },
            snapshot: Some(Snapshot { trunk: Status { streams: 3, held: 5, ..Status::default() }, carriers }),
        }
    }

    #[test]
    fn trunks_are_added_up_by_site_and_nothing_is_counted_twice() {
        use CarrierState::{Live, Silent};
        let mut figures = Figures::default();
        let first = [
            seen(1, (1, 4), vec![carrier(1, Live, [100, 2, 1]), carrier(2, Silent, [10, 0, 0])]),
            seen(2, (0, 0), vec![carrier(1, Live, [50, 0, 0])]),
            seen(10, (1, 9), vec![]),
        ];
        let by_site = figures.take(&first);
        let (now, added) = by_site["beta"];
        assert_eq!((now.trunks, now.cut, now.streams, now.held_bytes, now.carriers), (2, 0, 6, 10, 2));
        assert_eq!((now.round_trip, now.congestion_window_bytes), (Some(Duration::from_millis(11)), 2000));
        assert_eq!((added.pauses, added.paused), (1, Duration::from_secs(4)));
        assert_eq!((added.data_segments, added.retransmitted_segments, added.timeouts), (160, 2, 1));
        assert_eq!((by_site["gamma"].0.cut, by_site["gamma"].0.round_trip), (1, None));

        let silent = first.map(|seen| Seen { snapshot: None, ..seen });
        let by_site = figures.take(&silent);
        assert_eq!(by_site["beta"], (Now { trunks: 2, ..Now::default() }, Added::default()));

        // One trunk has ended; a carrier of the other one was replaced.
        let second = [seen(1, (2, 5), vec![carrier(1, Live, [120, 2, 1]), carrier(3, Live, [7, 0, 0])])];
        let by_site = figures.take(&second);
        let (now, added) = by_site["beta"];
        assert_eq!((now.trunks, added.data_segments, added.retransmitted_segments), (1, 27, 0));
        assert_eq!((added.pauses, added.paused), (1, Duration::from_secs(1)));
        assert_eq!(by_site["gamma"], (Now::default(), Added::default()), "its trunk has ended");
    }
}
