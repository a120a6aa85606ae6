//! What agents have signed: where they are reached, and the ports that they punch from. Unencrypted
//! data goes to no other address. Gateways pass addresses on. A gateway that is captured could name
//! its own address, read the data and pass it on.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use isthmus_identity::Credentials;
use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::signed::Verifier;
use isthmus_identity::signed::contact::{Stated, sign_port};
use isthmus_rpc::rendezvous::Port;
use isthmus_service::lock;
use isthmus_wire::{ConnectionId, proto};
use tracing::warn;

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
