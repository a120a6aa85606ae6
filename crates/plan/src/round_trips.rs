//! Which of several detours is shorter, by measurement. Ways end to end keep their
//! order: none of them is a detour.

use std::time::Duration;

use crate::relays::much_longer;
use crate::{Dial, Reason, Route, Step};

/// The shortest round trips that were measured between two nodes; `None` is not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundTrips {
    /// From one node over the nearest relay to the other node.
    pub relay: Option<Duration>,
    /// From the initiator to the outside port of the acceptor's gateway.
    pub to_acceptors_gateway: Option<Duration>,
    /// From the acceptor to the outside port of the initiator's gateway.
    pub to_initiators_gateway: Option<Duration>,
}

impl RoundTrips {
    /// Puts the shorter of two neighbouring detours first, if both were measured
    /// and differ by more than the error of measurement. Adds the round trips to
    /// the reasons.
    pub(crate) fn order(&self, steps: &mut [Step]) {
        for end in (1..steps.len()).rev() {
            for index in 0..end {
                let Some([one, other]) = steps.get_mut(index..=index + 1) else { continue };
                if let (Some(first), Some(second)) = (self.of(one), self.of(other))
                    && much_longer(first, second)
                {
                    std::mem::swap(one, other);
                }
            }
        }
        for step in steps {
            if let Some(round_trip) = self.of(step) {
                let over_relay = step.dial == Dial::Relay;
                step.reason.add(|why| Reason::Measured { why, round_trip, over_relay });
            }
        }
    }

    /// The round trip of a step's way, from node to node. The time inside a site is neglected.
    fn of(&self, step: &Step) -> Option<Duration> {
        match (step.route, step.dial) {
            (Route::EndToEnd, Dial::Relay) => self.relay,
            (Route::OneGateway, Dial::Direct) => self.to_acceptors_gateway,
            (Route::GatewayOut, Dial::Reverse) => self.to_initiators_gateway,
            // A node without a way out measures nothing outside.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(reason: &Reason) -> &str {
        match reason {
            Reason::Measured { why, .. } => number(why),
            Reason::Received(number) => &number.text,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn shorter_detours_come_first_with_their_round_trips() {
        use Dial::{Direct, Punch, Relay, Reverse};
        use Route::{EndToEnd, GatewayOut, OneGateway, TwoGateway};
        let all = [(EndToEnd, Punch), (OneGateway, Direct), (GatewayOut, Reverse), (EndToEnd, Relay)];
        let unknown = [(OneGateway, Direct), (TwoGateway, Direct), (EndToEnd, Relay)];
        for (name, ways, [acceptors, initiators, relay], want) in [
            ("nothing is known", &all[..], [0, 0, 0], "0 1 2 3"),
            ("in order", &all, [10_000, 20_000, 30_000], "0 1 2 3"),
            ("about the same", &all, [10_900, 10_000, 9_500], "0 1 2 3"),
            ("the relay is nearer", &all, [20_000, 20_000, 10_000], "0 3 1 2"),
            ("than one of the gateways", &all, [10_000, 20_000, 15_000], "0 1 3 2"),
            ("one gateway is nearer", &all, [20_000, 10_000, 30_000], "0 2 1 3"),
            ("one is not known", &all, [20_000, 0, 10_000], "0 1 2 3"),
            ("what is between is not known", &unknown, [20_000, 0, 10_000], "0 1 2"),
        ] {
            let known = |micros| (micros > 0).then(|| Duration::from_micros(micros));
            let round_trips = RoundTrips {
                relay: known(relay),
                to_acceptors_gateway: known(acceptors),
                to_initiators_gateway: known(initiators),
            };
            let step = |(number, (route, dial)): (usize, &(Route, Dial))| Step {
                route: *route,
                dial: *dial,
                deadline: Duration::ZERO,
                reason: Reason::Received(number.to_string().into()),
            };
            let mut steps: Vec<Step> = ways.iter().enumerate().map(step).collect();
            round_trips.order(&mut steps);
            let order: Vec<_> = steps.iter().map(|step| number(&step.reason)).collect();
            assert_eq!(order.join(" "), want, "{name}");
            let measured = steps.iter().filter(|step| matches!(step.reason, Reason::Measured { .. })).count();
            assert_eq!(
                measured,
                steps.iter().filter(|step| round_trips.of(step).is_some()).count(),
                "{name}"
            );
        }
    }
}
