//! The TCP options of a SYN.

use super::{HEADER, MAX_LEN, NotASyn};

/// Kinds of options (IANA's registry of TCP parameters).
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The TCP options of a SYN that are carried; `None` for an option that it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The longest segment that the sender accepts, in bytes (RFC 9293 section
    /// 3.7.1).
    pub max_segment: Option<u16>,
    /// By how many bits later windows are shifted (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Whether the sender supports selective acknowledgements (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// The time of the sender's clock (RFC 7323 section 3).
    pub timestamp: Option<u32>,
}

impl Options {
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self, NotASyn> {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            let (kind, bad) = (*kind, NotASyn::Option(*kind));
            match kind {
                kind::END => break,
                kind::NO_OPERATION => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            // The length includes the bytes of kind and length.
            let length = rest.first().map(|length| usize::from(*length)).ok_or(bad)?;
            let (option, after) = bytes.split_at_checked(length).ok_or(bad)?;
            match (kind, option.get(2..).ok_or(bad)?) {
                (kind::MAXIMUM_SEGMENT_SIZE, [a, b]) => {
                    options.max_segment = Some(u16::from_be_bytes([*a, *b]));
                }
                (kind::WINDOW_SCALE, [scale]) => options.window_scale = Some(*scale),
                (kind::SACK_PERMITTED, []) => options.sack_permitted = true,
                (kind::TIMESTAMPS, [a, b, c, d, ..]) if length == 10 => {
                    options.timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                }
                (
                    kind::MAXIMUM_SEGMENT_SIZE | kind::WINDOW_SCALE | kind::SACK_PERMITTED | kind::TIMESTAMPS,
                    _,
                ) => return Err(bad),
                // Unknown options may be ignored.
                _ => {}
            }
            bytes = after;
        }
        Ok(options)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_LEN - 2 * HEADER);
        if let Some(size) = self.max_segment {
            bytes.extend([kind::MAXIMUM_SEGMENT_SIZE, 4]);
            bytes.extend(size.to_be_bytes());
        }
        if self.sack_permitted {
            bytes.extend([kind::SACK_PERMITTED, 2]);
        }
        if let Some(clock) = self.timestamp {
            bytes.extend([kind::TIMESTAMPS, 10]);
            bytes.extend(clock.to_be_bytes());
            bytes.extend([0; 4]);
        }
        if let Some(scale) = self.window_scale {
            bytes.extend([kind::WINDOW_SCALE, 3, scale]);
        }
        while bytes.len() % 4 != 0 {
            bytes.push(kind::NO_OPERATION);
        }
        bytes
    }
}
