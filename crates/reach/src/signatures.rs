//! What agents have signed: where they are reached, and the ports that they punch from. Unencrypted
//! data goes to no other address. Gateways pass addresses on. A gateway that is captured could name
//! its own address, read the data and pass it on.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::signed::Verifier;
use isthmus_identity::signed::contact::{Incarnation, Stated, sign_port};
use isthmus_identity::{Credentials, Identity, Owner};
use isthmus_plan::{Route, Step, Vouched};
use isthmus_rpc::rendezvous::{Order, OrderWay, Port};
use isthmus_service::lock;
use isthmus_wire::{ConnectionId, proto};
use tracing::warn;

use crate::dialer::{Dialer, Found, LOOKUP};
use crate::far_end::Expected;

/// Most nodes whose verified contacts are kept, as many as a large job has.
const NODES: usize = 16_384;

/// Signs for this party, and verifies what others have signed.
pub struct Signatures {
    credentials: Credentials,
    verifier: Verifier,
    known: Mutex<HashMap<Ipv4Addr, Known>>,
}

/// A node's contact as it was looked up, and what of it the node's agent has signed.
#[derive(Clone)]
struct Known {
    reply: Arc<proto::LookupReply>,
    stated: Option<Arc<Stated>>,
}

impl fmt::Debug for Signatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signatures").field(&self.credentials).finish()
    }
}

impl Signatures {
    /// Signs for the party with these credentials.
    ///
    /// # Errors
    /// If the authority's certificate can't be used.
    pub fn new(credentials: &Credentials) -> Result<Self, CredentialsError> {
        let (credentials, verifier) = (credentials.clone(), credentials.verifier()?);
        Ok(Self { credentials, verifier, known: Mutex::default() })
    }

    /// What the agent of a node has signed of itself, by the answer to a lookup. `None` if the
    /// answer has nothing signed, or if the signature isn't valid. Each answer is verified once.
    pub(crate) fn stated(
        &self,
        destination: Ipv4Addr,
        reply: &Arc<proto::LookupReply>,
    ) -> Option<Arc<Stated>> {
        let known = lock(&self.known).get(&destination).cloned();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.reply, reply)) {
            return known.stated;
        }
        let signed = reply.node.as_ref().and_then(|node| node.signed.as_ref());
        let stated = match signed.map(|signed| self.verifier.contact(signed, SystemTime::now())) {
            Some(Ok(stated)) => Ok(Arc::new(stated)),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the gateway's answer has nothing that it has signed".to_owned()),
        };
        if let (Err(reason), Some(node)) = (&stated, &reply.node)
            && reply.plan.as_ref().is_some_and(|plan| !plan.encrypted)
        {
            let node = &node.name;
            warn!(node, reason, "its agent has not signed where it is: data goes there encrypted");
        }
        let stated = stated.ok();
        let mut known = lock(&self.known);
        if known.len() >= NODES {
            // Each is verified anew at its next use.
            known.clear();
        }
        known.insert(destination, Known { reply: reply.clone(), stated: stated.clone() });
        stated
    }

    /// The port that this party dials from at a rendezvous, with its signature.
    pub(crate) fn port(&self, rendezvous: ConnectionId, address: SocketAddr) -> Port {
        let signature = sign_port(&self.credentials, rendezvous, address);
        let signature = signature.unwrap_or_else(|error| {
            warn!(%error, "cannot sign a port: no unencrypted data goes over it");
            Vec::new()
        });
        Port { address, signature }
    }
}

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

impl Dialer {
    /// When the agent of the node with this address was started, by what that agent has signed;
    /// `None` if that isn't known.
    pub async fn started(&self, address: Ipv4Addr, agent: &Identity) -> Option<Incarnation> {
        let stated = self.find((address, None), LOOKUP).await.ok()?.stated?;
        (stated.agent == *agent).then_some(stated.incarnation)
    }
}
