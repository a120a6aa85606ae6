//! Tickets for a relay whose broker is the benchmark.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_rpc::connection;
use isthmus_service::mac::Secret;
use isthmus_wire::ticket::{Side, TICKET_LEN, Ticket};

/// How long tickets are good.
const LIFE: Duration = Duration::from_secs(60);

/// The tickets of both sides of a new connection, the initiator's first.
pub(crate) fn pair(key: &Secret) -> [[u8; TICKET_LEN]; 2] {
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + LIFE;
    let connection = connection::new_id();
    [Side::Initiator, Side::Acceptor]
        .map(|side| key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds: date.as_secs() }))
}
