//! The decision: which ways lead from one node to another, in which order.

use std::time::Duration;

use crate::gateways;
use crate::judged::{add, end_to_end};
use crate::ways::{between_sites, within_a_site};
use crate::{Dial, EndFacts, LeftOut, PairFacts, Plan, Reason, Route, Step, site_trunk};

/// Deadline of the step within a site. It is the only step there, so a long wait delays no other.
const WITHIN_SITE: Duration = Duration::from_secs(20);

/// Plans how the initiator's node reaches the acceptor's node.
pub fn plan(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Plan {
    if initiator.site == acceptor.site {
        let route = Route::EndToEnd;
        let reason = Reason::SameSite { site: acceptor.site.clone() };
        let step = Step { route, dial: Dial::Direct, deadline: WITHIN_SITE, reason };
        return Plan {
            ways: within_a_site(&acceptor.site),
            steps: vec![step],
            left_out: Vec::new(),
            encrypted: false,
            takes_site_trunk: false,
            far_relays: Vec::new(),
        };
    }
    let (ways, no_site_trunk) = between_sites(pair, site_trunk::judge(initiator, acceptor, pair));
    let (route, dial) = site_trunk::WAY;
    let mut plan = Plan {
        ways,
        steps: Vec::new(),
        left_out: no_site_trunk.map(|reason| LeftOut { route, dial, reason }).into_iter().collect(),
        encrypted: !pair.trusted,
        takes_site_trunk: site_trunk::is_taken(initiator, acceptor, pair),
        far_relays: Vec::new(),
    };
    let [direct, port_range, reverse, punch, traverse, relay] = end_to_end(initiator, acceptor, pair);
    // Gateways before relays: a gateway is on the path to its site anyway, a relay
    // may be a detour and is shared by all sites.
    let steps = [direct, port_range, reverse, punch, traverse]
        .into_iter()
        .chain(gateways::without_relay(initiator, acceptor, pair))
        .chain([relay])
        .chain(gateways::by_relay(initiator, acceptor, pair));
    add(&mut plan, steps, (initiator, acceptor, pair));
    plan
}
