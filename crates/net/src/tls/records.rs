//! Lengths of TLS records (RFC 8446, 5).

/// Length of a record's header, bytes (RFC 8446, 5.1).
const HEADER: usize = 5;
/// Most bytes of plaintext in a record (RFC 8446, 5.1).
const MAX_PLAIN: usize = 1 << 14;
/// Longest record with its header, bytes (RFC 8446, 5.2).
pub const MAX_RECORD: usize = HEADER + MAX_PLAIN + 256;
/// What sealing adds to each record, bytes: header, content type, tag.
const OVERHEAD: usize = HEADER + 1 + 16;
/// Room for two key updates (27 bytes each) before the records, or for one and a
/// `close_notify`.
pub(super) const OWN_RECORDS: usize = 64;

/// The room that sealing `plain` bytes needs at most, bytes.
pub const fn sealed_len(plain: usize) -> usize {
    plain + plain.div_ceil(MAX_PLAIN) * OVERHEAD + OWN_RECORDS
}

/// The whole records at the start of a buffer.
pub(super) enum Whole {
    /// Their length, bytes.
    Length(usize),
    /// Behind them is a record that is longer than allowed.
    TooLong,
}

pub(super) fn whole_records(buffer: &[u8]) -> Whole {
    let mut whole = 0;
    while let Some(header) = buffer[whole..].first_chunk::<HEADER>() {
        let record = HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
        if record > MAX_RECORD {
            return Whole::TooLong;
        }
        if buffer.len() - whole < record {
            break;
        }
        whole += record;
    }
    Whole::Length(whole)
}
