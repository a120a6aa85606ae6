//! Fields of messages, each checked and bounded. An error names the message.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use isthmus_raw::{Syn, syn};
use isthmus_wire::bounds::SIGNATURE_BYTES;
use isthmus_wire::ticket::Ticket;
use isthmus_wire::{ConnectionId, DecodeError, JobId};

use super::{Port, SealedTicket};

/// The sizes that a longest segment may have, in bytes. They reach from IPv4 packets of 540 bytes,
/// which all networks pass (RFC 791), to jumbo frames.
const SEGMENTS: RangeInclusive<u16> = 500..=9000;
/// Most bytes of a `HOST:PORT`: a name of 253 bytes (RFC 1035 section 3.1) and a port.
pub(super) const LONGEST_ADDRESS: usize = 259;

pub(super) const REQUEST: &str = "request for a rendezvous";
pub(super) const REPLY: &str = "reply to a request for a rendezvous";
pub(super) const ORDER: &str = "request to dial";
pub(super) const LEG: &str = "leg of a gateway";
pub(super) const EXPECT: &str = "order to expect a node";
pub(super) const OWN_GATEWAY: &str = "stream over the own gateway";
pub(super) const ANSWER: &str = "answer of an acceptor";

pub(super) fn malformed(message: &'static str, reason: impl Into<String>) -> DecodeError {
    DecodeError { message, reason: reason.into() }
}

pub(super) fn unknown_way(message: &'static str) -> DecodeError {
    malformed(message, "no known way")
}

pub(super) fn id(bytes: &[u8]) -> Result<ConnectionId, DecodeError> {
    ConnectionId::try_from(bytes)
}

pub(super) fn job(bytes: &[u8]) -> Result<JobId, DecodeError> {
    let id =
        bytes.try_into().map_err(|_| malformed(REQUEST, format!("a job's id of {} bytes", bytes.len())))?;
    Ok(JobId(id))
}

pub(super) fn sealed(message: &'static str, bytes: &[u8]) -> Result<SealedTicket, DecodeError> {
    bytes.try_into().map_err(|_| malformed(message, format!("a ticket of {} bytes", bytes.len())))
}

pub(super) fn connection(message: &'static str, ticket: &[u8]) -> Result<ConnectionId, DecodeError> {
    Ok(Ticket::decode(&sealed(message, ticket)?)?.0.connection)
}

pub(super) fn carried(message: &'static str, bytes: &[u8]) -> Result<Syn, DecodeError> {
    if bytes.len() > syn::MAX_LEN {
        return Err(malformed(message, format!("a SYN of {} bytes", bytes.len())));
    }
    Syn::parse(bytes).map_err(|error| malformed(message, format!("no SYN to carry: {error}")))
}

pub(super) fn socket_address(message: &'static str, text: &str) -> Result<SocketAddr, DecodeError> {
    let bounded = Some(text).filter(|text| text.len() <= LONGEST_ADDRESS);
    let address = bounded.and_then(|text| text.parse().ok());
    address.ok_or_else(|| malformed(message, format!("{:?} is no address and port", shortened(text))))
}

pub(super) fn port(message: &'static str, address: &str, signature: Vec<u8>) -> Result<Port, DecodeError> {
    if signature.len() > SIGNATURE_BYTES {
        return Err(malformed(message, format!("a signature of {} bytes", signature.len())));
    }
    Ok(Port { address: socket_address(message, address)?, signature })
}

/// Reads the longest segment, in bytes; 0 stands for none. No peer may have this end send slivers.
pub(super) fn segment(message: &'static str, bytes: u32) -> Result<Option<u16>, DecodeError> {
    match u16::try_from(bytes) {
        Ok(0) => Ok(None),
        Ok(bytes) if SEGMENTS.contains(&bytes) => Ok(Some(bytes)),
        _ => Err(malformed(message, format!("a longest segment of {bytes} bytes"))),
    }
}

/// Reads an address, `HOST:PORT`, and checks its length.
pub(super) fn address(message: &'static str, text: String) -> Result<String, DecodeError> {
    let is_one = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if text.len() <= LONGEST_ADDRESS && text.rsplit_once(':').is_some_and(is_one) {
        return Ok(text);
    }
    Err(malformed(message, format!("{:?} is no HOST:PORT", shortened(&text))))
}

/// The beginning of a text, for messages about it.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
