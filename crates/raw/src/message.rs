//! Messages between agent and helper, over a pair of Unix sockets that keep
//! message boundaries (`SOCK_SEQPACKET`).
//!
//! Each message is its kind (1 byte), the request's number (8 bytes) and the
//! payload. Numbers are in network order.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Length in bytes of the longest message.
pub const MAX_LEN: usize = 512;

const LISTEN: u8 = 1;
const CONNECT: u8 = 2;
const INJECT: u8 = 3;
const DONE: u8 = 4;
const FAILED: u8 = 5;

/// What an agent asks of its helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first request, with the agent's listener as a descriptor. Only SYNs for
    /// this listener are injected.
    Listen,
    /// Connects the socket that comes as a descriptor, and returns the SYN that
    /// left.
    Connect(SocketAddrV4),
    /// Injects this packet into the host's IP stack.
    Inject(Vec<u8>),
}

/// What the helper answers. The bytes are the SYN for [`Request::Connect`], and empty for other
/// requests. The error is a text for the user.
pub type Reply = Result<Vec<u8>, String>;

/// A message that isn't valid: agent and helper are of different versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side sent a message that this version doesn't understand")]
pub struct NotAMessage;

impl Request {
    /// The bytes of the request. The reply to it has the same `id`.
    pub fn encode(&self, id: u64) -> Vec<u8> {
        match self {
            Self::Listen => message(LISTEN, id, &[]),
            Self::Connect(to) => {
                let mut address = to.ip().octets().to_vec();
                address.extend(to.port().to_be_bytes());
                message(CONNECT, id, &address)
            }
            Self::Inject(packet) => message(INJECT, id, packet),
        }
    }

    /// Reads a request and its `id` from a message's bytes.
    ///
    /// # Errors
    /// [`NotAMessage`] if the bytes are no request.
    pub fn decode(bytes: &[u8]) -> Result<(u64, Self), NotAMessage> {
        let (kind, id, rest) = parts(bytes)?;
        let request = match (kind, rest) {
            (LISTEN, []) => Self::Listen,
            (CONNECT, [a, b, c, d, high, low]) => Self::Connect(SocketAddrV4::new(
                Ipv4Addr::new(*a, *b, *c, *d),
                u16::from_be_bytes([*high, *low]),
            )),
            (INJECT, packet) => Self::Inject(packet.to_vec()),
            _ => return Err(NotAMessage),
        };
        Ok((id, request))
    }
}

/// The bytes of a reply. What is beyond [`MAX_LEN`] is cut off.
pub fn encode_reply(id: u64, reply: &Reply) -> Vec<u8> {
    match reply {
        Ok(packet) => message(DONE, id, packet),
        Err(reason) => message(FAILED, id, reason.as_bytes()),
    }
}

/// Reads a reply and the `id` of its request from a message's bytes.
///
/// # Errors
/// [`NotAMessage`] if the bytes are no reply.
pub fn decode_reply(bytes: &[u8]) -> Result<(u64, Reply), NotAMessage> {
    match parts(bytes)? {
        (DONE, id, packet) => Ok((id, Ok(packet.to_vec()))),
        (FAILED, id, reason) => Ok((id, Err(String::from_utf8_lossy(reason).into_owned()))),
        _ => Err(NotAMessage),
    }
}

fn message(kind: u8, id: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(id.to_be_bytes());
    bytes.extend(rest.iter().take(MAX_LEN - bytes.len()));
    bytes
}

fn parts(bytes: &[u8]) -> Result<(u8, u64, &[u8]), NotAMessage> {
    let (kind, rest) = bytes.split_first().ok_or(NotAMessage)?;
    let (id, rest) = rest.split_first_chunk().ok_or(NotAMessage)?;
    Ok((*kind, u64::from_be_bytes(*id), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_reason_is_cut_off() {
        let (id, reply) = decode_reply(&encode_reply(7, &Err("x".repeat(1000)))).unwrap();
        assert_eq!((id, reply), (7, Err("x".repeat(MAX_LEN - 9))));
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(id: u64, kind in 0..3, ip: u32, port: u16, bytes in prop::collection::vec(any::<u8>(), 0..100), text in "[ -~]{0,100}") {
            let request = match kind {
                0 => Request::Listen,
                1 => Request::Connect(SocketAddrV4::new(ip.into(), port)),
                _ => Request::Inject(bytes.clone()),
            };
            prop_assert_eq!(Request::decode(&request.encode(id)), Ok((id, request)));
            for reply in [Ok(bytes), Err(text)] {
                prop_assert_eq!(decode_reply(&encode_reply(id, &reply)), Ok((id, reply)));
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok((id, request)) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(id), bytes.clone());
            }
            let _ = decode_reply(&bytes);
        }
    }
}
