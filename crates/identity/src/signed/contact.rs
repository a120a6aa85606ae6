//! Where an agent is reached, which gateway it is attached to, and when it was started, as it
//! signs it itself. A gateway passes that on: it can neither name another address, nor make the
//! node its own, nor say that its agent was started again.

use std::net::SocketAddr;
use std::time::SystemTime;

use isthmus_service::mac;
use isthmus_wire::bounds::{CONTACT_ADDRESSES, TEXT};
use isthmus_wire::{ConnectionId, proto};
use prost::Message as _;

use super::{ChainError, Holder, Key, Verifier, certificates, grid_id, sign};
use crate::credentials::{CredentialsError, authority_of};
use crate::{Credentials, Identity, Role};

/// The purpose of a signed contact; [`PORT`] is that of a signed port. A signature for one of them
/// is not valid for the other.
const CONTACT: &str = "isthmus contact of an agent";
const PORT: &str = "isthmus port of an agent";

/// Names an agent's start. A later start has a greater value.
pub type Incarnation = [u8; 16];

/// Why a signed contact is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContactError {
    /// The agent's certificates are refused.
    #[error("the certificate of the agent that has signed it is not valid: {0}")]
    Chain(#[from] ChainError),
    /// The signature is not that of the certificate's key over this contact.
    #[error("it is not signed by the key of the certificate of {0}")]
    Signature(Box<Identity>),
    /// The contact can't be read, or is another party's.
    #[error("{0}")]
    Malformed(String),
}

/// What an agent has signed of itself, as it was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// The agent, by its certificate.
    pub agent: Identity,
    /// The gateway that the agent is attached to.
    pub gateway: Identity,
    /// A number that grows with each attachment of the agent.
    pub attachment: u64,
    /// The addresses at which the agent is reached, `HOST:PORT` each.
    pub addresses: Vec<String>,
    /// Names the agent's start.
    pub incarnation: Incarnation,
    key: Key,
}

impl Stated {
    /// Whether the agent names this address as its own.
    pub fn names(&self, address: &str) -> bool {
        !address.is_empty() && self.addresses.iter().any(|own| own == address)
    }

    /// Whether the agent has signed that it dials from this port, as seen from outside.
    pub fn dials_from(&self, rendezvous: ConnectionId, address: SocketAddr, signature: &[u8]) -> bool {
        self.key.has_signed(&port(rendezvous, address), signature)
    }
}

/// Signs the contact of this agent, which attaches to `gateway` with this attachment number.
///
/// # Errors
/// If the key can't sign.
pub fn sign_contact(
    credentials: &Credentials,
    gateway: &Identity,
    (attachment, incarnation): (u64, Incarnation),
    addresses: Vec<String>,
) -> Result<proto::SignedContact, CredentialsError> {
    let (agent, gateway, incarnation) = (credentials.identity().uri(), gateway.uri(), incarnation.to_vec());
    let contact = proto::AgentContact { agent, gateway, attachment, addresses, incarnation };
    let contact = contact.encode_to_vec();
    let key = credentials.certified_key();
    let signature = sign(&key, &bytes(&grid_id(&authority_of(credentials)?), &contact))?;
    Ok(proto::SignedContact { contact, certificates: certificates(&key), signature })
}

/// Whether a contact has these addresses, and is signed by the key of the certificate in use.
pub fn is_current(signed: &proto::SignedContact, credentials: &Credentials, addresses: &[String]) -> bool {
    signed.certificates == certificates(&credentials.certified_key()) && addresses_of(signed) == addresses
}

/// Signs the port that this agent dials from at a rendezvous, as seen from outside.
///
/// # Errors
/// If the key can't sign.
pub fn sign_port(
    credentials: &Credentials,
    rendezvous: ConnectionId,
    address: SocketAddr,
) -> Result<Vec<u8>, CredentialsError> {
    sign(&credentials.certified_key(), &port(rendezvous, address))
}

/// The addresses in a contact that was verified before.
pub fn addresses_of(signed: &proto::SignedContact) -> Vec<String> {
    proto::AgentContact::decode(&*signed.contact).map(|contact| contact.addresses).unwrap_or_default()
}

/// The part of a verified contact that doesn't depend on the gateway: the agent's addresses, and
/// which start it is.
pub fn without_attachment(signed: &proto::SignedContact) -> proto::AgentContact {
    let contact = proto::AgentContact::decode(&*signed.contact).unwrap_or_default();
    proto::AgentContact { agent: String::new(), gateway: String::new(), attachment: 0, ..contact }
}

impl Verifier {
    /// Verifies a contact that other parties have passed on.
    ///
    /// # Errors
    /// [`ContactError`] says why the contact is refused.
    pub fn contact(&self, signed: &proto::SignedContact, now: SystemTime) -> Result<Stated, ContactError> {
        let Holder { certified, key } = self.holder(&signed.certificates, now)?;
        let agent = certified.identity;
        if !key.has_signed(&bytes(&self.grid, &signed.contact), &signed.signature) {
            return Err(ContactError::Signature(Box::new(agent)));
        }
        let wrong = |reason: String| ContactError::Malformed(reason);
        let contact = proto::AgentContact::decode(&*signed.contact);
        let contact = contact.map_err(|error| wrong(format!("it can't be read: {error}")))?;
        if agent.role() != Role::Agent || contact.agent != agent.uri() {
            return Err(wrong(format!("it is the contact of {:?}, signed by {agent}", contact.agent)));
        }
        let gateway = Identity::from_uri(&contact.gateway).map_err(|error| wrong(error.to_string()))?;
        if gateway.role() != Role::Gateway || gateway.site() != agent.site() {
            return Err(wrong(format!("it names {gateway} as the gateway of {agent}")));
        }
        let addresses = contact.addresses;
        if addresses.len() > CONTACT_ADDRESSES || addresses.iter().any(|address| address.len() > TEXT) {
            return Err(wrong("it has too many addresses, or a long one".to_owned()));
        }
        let incarnation =
            contact.incarnation.try_into().map_err(|_| wrong("it tells no start".to_owned()))?;
        let attachment = contact.attachment;
        Ok(Stated { agent, gateway, attachment, addresses, incarnation, key })
    }
}

fn bytes(grid: &[u8; 32], contact: &[u8]) -> Vec<u8> {
    mac::parts(CONTACT, &[grid, contact])
}

fn port(rendezvous: ConnectionId, address: SocketAddr) -> Vec<u8> {
    mac::parts(PORT, &[&rendezvous.0, address.to_string().as_bytes()])
}

#[cfg(test)]
mod tests;
