//! Lengths of TLS records (RFC 8446, 5).

/// Length of a record's header, in bytes (RFC 8446, 5.1).
const HEADER: usize = 5;
/// The type in the header of every record that is sealed (RFC 8446, 5.2).
const SEALED: u8 = 23;
/// Most bytes of plaintext in a record (RFC 8446, 5.1).
const MAX_PLAIN: usize = 1 << 14;
/// Longest record with its header, in bytes (RFC 8446, 5.2).
pub const MAX_RECORD: usize = HEADER + MAX_PLAIN + 256;
/// How many bytes sealing adds to each record: header, content type, tag.
const OVERHEAD: usize = HEADER + 1 + 16;
/// Room before the records for two key updates (27 bytes each), or for a key update and a
/// `close_notify`.
pub(super) const OWN_RECORDS: usize = 64;

/// The most room that sealing `plain` bytes needs, in bytes.
pub const fn sealed_len(plain: usize) -> usize {
    plain + plain.div_ceil(MAX_PLAIN) * OVERHEAD + OWN_RECORDS
}

/// What the start of a buffer has of whole records.
pub(super) enum Whole {
    /// The length of the whole records, in bytes.
    Length(usize),
    /// Behind the whole records is a record that is longer than allowed.
    TooLong,
    /// Behind the whole records is a record that isn't sealed.
    NotSealed,
}

/// Finds the whole records at the start of a buffer. With `all_sealed`, the handshake is over, and
/// every record must be sealed.
pub(super) fn whole_records(buffer: &[u8], all_sealed: bool) -> Whole {
    let mut whole = 0;
    while let Some(header) = buffer[whole..].first_chunk::<HEADER>() {
        // rustls doesn't look: what it authenticates has a type of its own.
        if all_sealed && header[0] != SEALED {
            return Whole::NotSealed;
        }
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
