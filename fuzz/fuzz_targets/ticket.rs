//! Relay tickets: decoding and encoding again gives the same bytes.
#![no_main]

use isthmus_wire::ticket::{TICKET_LEN, Ticket};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(bytes) = bytes.first_chunk::<TICKET_LEN>()
        && let Ok((ticket, mac)) = Ticket::decode(bytes)
    {
        assert_eq!(ticket.encode(&mac), *bytes);
    }
});
