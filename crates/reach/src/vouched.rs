//! Which addresses are their agents' own words, so that unencrypted data may go there.

use isthmus_identity::Owner;
use isthmus_plan::{Route, Step, Vouched};
use isthmus_rpc::rendezvous::{Order, OrderWay, Port};
use isthmus_wire::ConnectionId;

use crate::dialer::Found;
use crate::far_end::Expected;

impl Found {
    /// Whether a step's addresses are vouched for, so that data may go by it as the plan says,
    /// encrypted or not. The agent must have signed the addresses of nodes that the step leads to.
    /// Addresses of relays and gateways are the broker's choice.
    pub(crate) fn is_vouched_for(&self, step: &Step, owner: Option<&Owner>) -> bool {
        let expected = self.expected(owner);
        let stated = self.stated.as_ref().filter(|stated| expected.check(Some(&stated.agent)).is_ok());
        stated.is_some_and(|stated| match (step.route, step.dial.vouched()) {
            (Route::EndToEnd, Vouched::OwnAddress) => stated.names(&self.node.address),
            (Route::EndToEnd, Vouched::LetIn) => stated.names(&self.node.outside_address),
            // The port of a punch is signed apart, once it is known.
            (Route::EndToEnd, Vouched::Otherwise)
            | (Route::OneGateway | Route::GatewayOut | Route::TwoGateway, _) => true,
        })
    }

    /// Whether the acceptor's agent has signed the port that it punches from.
    pub(crate) fn has_signed(&self, rendezvous: ConnectionId, port: &Port) -> bool {
        let stated = self.stated.as_ref();
        stated.is_some_and(|stated| stated.dials_from(rendezvous, port.address, &port.signature))
    }

    /// Whether unencrypted data of the node may come over a connection that this party has opened by
    /// an order. The node's agent, of this owner, must have signed where it was dialed.
    pub fn may_come_raw(&self, order: &Order, owner: &Owner) -> bool {
        // A relay or gateway is the broker's choice; a SYN that was taken in is the initiator's.
        if !matches!(order.way, OrderWay::Reverse { .. } | OrderWay::Punch { .. }) {
            return true;
        }
        if order.initiator != self.peer {
            return false;
        }
        let expected = Expected::agent(&self.name, Some(owner));
        let stated = self.stated.as_ref().filter(|stated| expected.check(Some(&stated.agent)).is_ok());
        stated.is_some_and(|stated| match &order.way {
            OrderWay::Reverse { address, .. } => stated.names(address),
            OrderWay::Punch { rendezvous, port, .. } => {
                stated.dials_from(*rendezvous, port.address, &port.signature)
            }
            OrderWay::Stop(_) | OrderWay::SiteTrunk(_) | OrderWay::Traverse { .. } => true,
        })
    }
}
