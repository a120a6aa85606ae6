//! From bytes to a frame. Lengths are checked before anything is kept.

use bytes::{Buf, Bytes};

use super::{
    ACK, CLOSE, CREDIT, DATA, FLAG_ANSWER, FLAG_BBR, FLAG_END, FLAG_INITIATOR, FLAG_SMALL, FLAG_STANDING,
    FLAG_STOP, FLAG_STREAMS, FLAG_TRUNK, Frame, HEAD, HELLO, MAX_FRAME, MAX_TEXT, OPEN, PING, RESET,
    StreamId,
};
use crate::addresses::Addresses;
use crate::hello::{self, Incarnation, MAGIC, TrunkId};
use crate::{Congestion, Hello, ProtocolError, Purpose, Reason, Role, Scope};

/// The whole length of the frame that begins with this head.
///
/// # Errors If type, flags or length aren't those of a frame of version 1.
pub(crate) fn frame_length(head: [u8; HEAD]) -> Result<usize, ProtocolError> {
    let [kind, flags, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (known_flags, lengths) = match kind {
        // A later version may append to HELLO.
        HELLO => (FLAG_INITIATOR | FLAG_STANDING | FLAG_SMALL | FLAG_BBR, hello::BODY..=hello::LONGEST_BODY),
        OPEN => (0, 8..=8),
        DATA => (FLAG_END, 16..=MAX_FRAME - HEAD),
        CREDIT => (FLAG_STREAMS, 16..=16),
        RESET => (FLAG_STOP, 20..=20),
        ACK => (0, 12..=12),
        // Padding follows the nonce and is skipped: it is there to be sent.
        PING => (FLAG_ANSWER, 8..=MAX_FRAME - HEAD),
        CLOSE => (FLAG_TRUNK, 2..=2 + MAX_TEXT),
        other => return Err(ProtocolError::UnknownType(other)),
    };
    if flags & !known_flags != 0 {
        return Err(ProtocolError::UnknownFlags { kind, flags });
    }
    if !lengths.contains(&length) {
        return Err(ProtocolError::BodyLength { kind, length });
    }
    Ok(HEAD + length)
}

impl Frame {
    /// Takes a frame off the beginning of `bytes`. Returns `None` if more bytes are needed. The
    /// payload of DATA is a part of `bytes`, not a copy.
    ///
    /// # Errors If the bytes are no frame of version 1.
    pub fn decode(bytes: &mut Bytes) -> Result<Option<Self>, ProtocolError> {
        let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
        let [kind, flags, ..] = *head;
        let length = frame_length(*head)?;
        if bytes.len() < length {
            return Ok(None);
        }
        let mut body = bytes.split_to(length);
        body.advance(HEAD);
        // The gets below can't run short: `frame_length` has checked the body's length.
        let frame = match kind {
            HELLO => Self::Hello(decode_hello(flags, body)?),
            OPEN => Self::Open { stream: StreamId(body.get_u64()) },
            DATA => {
                let (stream, offset) = (StreamId(body.get_u64()), body.get_u64());
                let end = flags & FLAG_END != 0;
                if body.is_empty() && !end {
                    return Err(ProtocolError::EmptyData(stream));
                }
                Self::Data { stream, offset, end, payload: body }
            }
            CREDIT => {
                let (stream, limit) = (body.get_u64(), body.get_u64());
                match flags & FLAG_STREAMS {
                    0 => Self::Credit { stream: StreamId(stream), limit },
                    _ => Self::Streams { limit },
                }
            }
            RESET => Self::Reset {
                stream: StreamId(body.get_u64()),
                offset: body.get_u64(),
                code: body.get_u32(),
                stop: flags & FLAG_STOP != 0,
            },
            ACK => Self::Ack { carrier: body.get_u32(), frames: body.get_u64() },
            PING => {
                let nonce = body.get_u64();
                let carriers = if body.is_empty() { 0 } else { body.get_u8() };
                Self::Ping { answer: flags & FLAG_ANSWER != 0, nonce, carriers }
            }
            _ => Self::Close {
                scope: if flags & FLAG_TRUNK != 0 { Scope::Trunk } else { Scope::Carrier },
                reason: Reason::from_code(body.get_u16()),
                text: String::from_utf8(body.into()).map_err(|_| ProtocolError::Text)?,
            },
        };
        Ok(Some(frame))
    }
}

fn decode_hello(flags: u8, mut body: Bytes) -> Result<Hello, ProtocolError> {
    let mut magic = [0; 4];
    body.copy_to_slice(&mut magic);
    if magic != MAGIC {
        return Err(ProtocolError::Magic(magic));
    }
    let (lowest, highest) = (body.get_u16(), body.get_u16());
    let mut trunk = [0; 16];
    body.copy_to_slice(&mut trunk);
    let (carrier, credit, streams) = (body.get_u32(), body.get_u32(), body.get_u32());
    if lowest == 0 || lowest > highest || credit == 0 || streams > hello::MAX_STREAMS {
        return Err(ProtocolError::HelloFields { lowest, highest, credit, streams });
    }
    let role = if flags & FLAG_INITIATOR != 0 { Role::Initiator } else { Role::Acceptor };
    let standing = flags & FLAG_STANDING != 0;
    let purpose = if flags & FLAG_SMALL != 0 { Purpose::Small } else { Purpose::Bulk };
    let congestion = if flags & FLAG_BBR != 0 { Congestion::Bbr } else { Congestion::Other };
    let trunk = TrunkId(trunk);
    // All zeros stand for none where addresses follow.
    let told = body.first_chunk::<16>().copied();
    let incarnation = told.filter(|told| *told != [0; 16]).map(Incarnation);
    let addresses = Addresses::decode(body.split_off(told.map_or(body.len(), |told| told.len())));
    let addresses = addresses.ok_or(ProtocolError::HelloAddresses)?;
    Ok(Hello {
        role,
        standing,
        lowest,
        highest,
        trunk,
        carrier,
        purpose,
        congestion,
        credit,
        streams,
        incarnation,
        addresses,
    })
}
