//! The bytes of connections over a trunk, by the way of each carrier.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use isthmus_carry::Traffic;
use isthmus_link::CarrierWay;
use isthmus_service::lock;
use isthmus_trunk::CarrierId;

use super::crossing::Crossing;
use super::{Bytes, Joint, Totals};
use crate::trunks::registry::Standing;

/// Counts what a trunk carries for one connection, at the initiator's end, by the way of each
/// carrier. A trunk's carriers come and go, and each was dialed in its own way.
#[derive(Debug)]
pub(crate) struct OverTrunk {
    totals: Arc<Mutex<HashMap<Joint, Totals>>>,
    /// The kind of the connection, with the way by which it began.
    joint: Joint,
    standing: Arc<Standing>,
    crossing: Arc<Crossing>,
    by_carrier: Mutex<Vec<(CarrierId, Arc<Bytes>)>>,
}

impl OverTrunk {
    pub(super) fn new(
        totals: Arc<Mutex<HashMap<Joint, Totals>>>,
        joint: Joint,
        standing: Arc<Standing>,
        crossing: Arc<Crossing>,
    ) -> Self {
        Self { totals, joint, standing, crossing, by_carrier: Mutex::default() }
    }

    /// The counters of what a carrier carries.
    fn bytes(&self, carrier: CarrierId) -> Arc<Bytes> {
        let mut by_carrier = lock(&self.by_carrier);
        if let Some((_, bytes)) = by_carrier.iter().find(|(known, _)| *known == carrier) {
            return bytes.clone();
        }
        let way = self.standing.way_of(carrier);
        let is_known = way.is_some();
        let mut joint = self.joint.clone();
        if let Some(CarrierWay { route, dial, relay }) = way.or_else(|| self.standing.likely_way()) {
            (joint.route, joint.dial, joint.relay) = (route, dial, relay);
        }
        let bytes = lock(&self.totals).entry(joint).or_insert_with_key(Totals::new).bytes.clone();
        if is_known {
            by_carrier.retain(|(carrier, _)| self.standing.way_of(*carrier).is_some());
            by_carrier.push((carrier, bytes.clone()));
        }
        bytes
    }
}

impl Traffic for OverTrunk {
    fn sent(&self, _: u64) {}

    fn received(&self, _: u64) {}

    fn moved(&self, carrier: CarrierId, sent: i64, received: u64) {
        let (bytes, now) = (self.bytes(carrier), Instant::now());
        match u64::try_from(sent) {
            Ok(0) => {}
            Ok(sent) => {
                Traffic::sent(&*bytes, sent);
                self.crossing.sent(sent, now);
            }
            Err(_) => bytes.taken_back(sent.unsigned_abs()),
        }
        if received > 0 {
            Traffic::received(&*bytes, received);
            self.crossing.received(received, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use isthmus_carry::plane::Plane;
    use isthmus_carry::trunk::{Bbr, Kept, config};
    use isthmus_identity::{Identity, Role as Party};
    use isthmus_link::{DialedWay, Last};
    use isthmus_plan::Encryption;
    use isthmus_trunk::{Role, TrunkId};
    use isthmus_wire::proto;

    use super::*;
    use crate::observing::account::Account;

    fn way(dial: proto::Dial, relay: &str) -> CarrierWay {
        CarrierWay { route: proto::Route::EndToEnd, dial, relay: relay.to_owned() }
    }

    fn dialed(how: CarrierWay) -> DialedWay {
        DialedWay { how, ends: "here – there".into() }
    }

    #[test]
    fn bytes_count_for_the_way_of_the_carrier_that_moves_them() {
        let (plane, _errors) = Plane::start(NonZeroUsize::MIN).unwrap();
        let id = TrunkId([7; 16]);
        let (trunk, _notices) = plane.trunk(config(Role::Initiator, id, &[], Bbr::Auto)).unwrap();
        let peer = Identity::new(Party::Gateway, "beta".parse().ok(), None, None).unwrap();
        let kept = Arc::new(Kept::new((id, true), trunk, peer));
        let (relay, punch) = (way(proto::Dial::Relay, "hub"), way(proto::Dial::Punch, ""));
        let last = Last { way: Some(relay.clone()), ends: "here – there".into() };
        let standing = Arc::new(Standing::new("n1.beta".parse().unwrap(), kept, last, None));
        let account = Account::new("n1.alpha".parse().unwrap());
        let joint = Joint {
            acceptor: "n1.beta".parse().unwrap(),
            route: relay.route,
            dial: relay.dial,
            relay: relay.relay.clone(),
            encryption: Encryption::Agents,
        };
        account.connected(joint.clone(), Duration::ZERO);
        let traffic = account.over_trunk(joint, standing.clone());
        let [first, second, third] = [CarrierId(1), CarrierId(2), CarrierId(3)];
        standing.joined(first, &dialed(relay));
        traffic.moved(first, 100, 7);
        // The second carrier carries before its number is known.
        standing.joins(&dialed(punch.clone()));
        traffic.moved(second, 20, 1);
        standing.joined(second, &dialed(punch));
        // The first carrier is cut: what isn't acknowledged goes over the second.
        traffic.moved(first, -40, 0);
        traffic.moved(second, 40, 2);
        // The other end has dialed the third carrier, and has yet to tell how.
        traffic.moved(third, 5, 0);
        standing.told(Some(third), way(proto::Dial::Direct, ""));
        traffic.moved(third, 1000, 0);
        standing.forget(first);
        traffic.moved(second, 500, 0);
        traffic.moved(second, -2000, 0);
        traffic.moved(third, 1, 0);
        let mut rows = account.joined();
        rows.sort_by_key(|row| row.bytes_sent);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.dial(), row.relay.as_str(), row.connections, row.bytes_sent, row.bytes_received))
            .collect();
        assert_eq!(
            rows,
            [
                (proto::Dial::Punch, "", 0, 0, 3),
                (proto::Dial::Relay, "hub", 1, 60, 7),
                (proto::Dial::Direct, "", 0, 1001, 0),
            ]
        );
    }
}
