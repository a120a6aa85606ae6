//! Where an agent is reached, and which gateway it is attached to, as it signs it itself. A
//! gateway passes that on: it can neither name another address nor make the node its own.

use std::net::SocketAddr;
use std::time::SystemTime;

use isthmus_wire::bounds::{CONTACT_ADDRESSES, TEXT};
use isthmus_wire::{ConnectionId, proto};
use prost::Message as _;

use super::{ChainError, Holder, Key, Verifier, certificates, grid_id, sign};
use crate::credentials::{CredentialsError, authority_of};
use crate::{Credentials, Identity, Role, mac};

/// What is signed; a signature for one of them is not valid for the other.
const CONTACT: &str = "isthmus contact of an agent";
const PORT: &str = "isthmus port of an agent";

/// Why a signed contact is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContactError {
    /// The agent's certificates.
    #[error("the certificate of the agent that has signed it is not valid: {0}")]
    Chain(#[from] ChainError),
    /// The signature is not that of the certificate's key over this contact.
    #[error("it is not signed by the key of the certificate of {0}")]
    Signature(Box<Identity>),
    /// It can't be read, or is another party's.
    #[error("{0}")]
    Malformed(String),
}

/// What an agent has signed of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// The agent, by its certificate.
    pub agent: Identity,
    /// The gateway that it is attached to.
    pub gateway: Identity,
    /// Grows with each attachment of the agent.
    pub attachment: u64,
    /// Where it is reached, `HOST:PORT` each.
    pub addresses: Vec<String>,
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

/// Signs the contact of this agent, which attaches to `gateway`.
///
/// # Errors
/// If the key can't sign.
pub fn sign_contact(
    credentials: &Credentials,
    gateway: &Identity,
    attachment: u64,
    addresses: Vec<String>,
) -> Result<proto::SignedContact, CredentialsError> {
    let agent = credentials.identity().uri();
    let contact = proto::AgentContact { agent, gateway: gateway.uri(), attachment, addresses };
    let contact = contact.encode_to_vec();
    let key = credentials.certified_key();
    let signature = sign(&key, &bytes(&grid_id(&authority_of(credentials)?), &contact))?;
    Ok(proto::SignedContact { contact, certificates: certificates(&key), signature })
}

/// Whether a contact has these addresses and is signed by the key of the certificate in use.
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

impl Verifier {
    /// Verifies a contact that other parties have passed on.
    ///
    /// # Errors
    /// [`ContactError`].
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
        Ok(Stated { agent, gateway, attachment: contact.attachment, addresses, key })
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
