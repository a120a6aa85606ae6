//! The id of one connection of a program in the logs of all services. The
//! initiator's agent draws 12 random bytes. The connection's nonce, rendezvous and
//! tickets all begin with them. So `grep` for the 24 hexadecimal digits finds the
//! connection in all logs.
//!
//! gRPC calls carry the id as metadata, as a trace context. It is no secret and
//! grants nothing: the last 4 bytes of each id are random anew, and tickets, tokens
//! and certificates decide what is let in.

use std::fmt;
use std::str::FromStr;

use isthmus_service::mac::random;
use isthmus_wire::ticket::Ticket;
use isthmus_wire::{ConnectionId, DecodeError, Nonce, proto};
use tonic::Request;
use tonic::codegen::http::HeaderMap;
use tonic::metadata::MetadataValue;
use tracing::Instrument as _;

use crate::rendezvous::{Order, OrderWay};

/// Name of the metadata that names a call's connection.
const KEY: &str = "isthmus-connection";

tokio::task_local! {
    static CURRENT: Connection;
}

/// A connection, by the first 12 bytes of all ids that belong to it; as text, 24 hexadecimal
/// digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection([u8; 12]);

impl Connection {
    /// A new connection with a random name.
    pub fn random() -> Self {
        Self(random())
    }

    /// The connection for which a broker's request has a node dial.
    pub fn of_dial(request: &proto::DialRequest) -> Option<Self> {
        use proto::dial_request::Way;
        match request.way.as_ref()? {
            Way::Relay(at) => Self::of_ticket(&at.ticket),
            Way::Gateway(at) => Self::of_ticket(&at.ticket),
            Way::OwnGateway(at) => Self::of_ticket(&at.ticket),
            Way::SiteGateway(at) => Self::of_ticket(&at.ticket),
            Way::SiteTrunk(at) => Self::of_ticket(&at.ticket),
            Way::Reverse(reverse) => Self::of_id(&reverse.rendezvous),
            Way::Punch(punch) => Self::of_id(&punch.rendezvous),
            Way::Traverse(traverse) => Self::of_id(&traverse.rendezvous),
        }
    }

    /// The connection for which an order, as it was read, has a node dial.
    pub fn of_order(order: &Order) -> Option<Self> {
        match &order.way {
            OrderWay::Stop(stop) | OrderWay::SiteTrunk(stop) => Self::of_ticket(&stop.ticket),
            OrderWay::Reverse { rendezvous, .. }
            | OrderWay::Punch { rendezvous, .. }
            | OrderWay::Traverse { rendezvous, .. } => Some((*rendezvous).into()),
        }
    }

    fn of_ticket(ticket: &[u8]) -> Option<Self> {
        Some(Ticket::decode(ticket.try_into().ok()?).ok()?.0.connection.into())
    }

    fn of_id(id: &[u8]) -> Option<Self> {
        Some(ConnectionId::try_from(id).ok()?.into())
    }

    /// The connection that a caller names in its headers; `None` if it names none.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get(KEY)?.to_str().ok()?.parse().ok()
    }

    /// Runs a future for this connection: the span of its log lines names it, and
    /// [`request`], new ids and nonces use it.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        let span = tracing::info_span!("connection", id = %self);
        CURRENT.scope(self, future.instrument(span)).await
    }
}

/// Runs a future for the connection that its caller names, or for none.
pub async fn scope_of<F: Future>(connection: Option<Connection>, future: F) -> F::Output {
    match connection {
        Some(connection) => connection.scope(future).await,
        None => future.await,
    }
}

/// A request that names the current connection, if there is one.
pub fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Ok(connection) = CURRENT.try_with(|current| *current)
        && let Ok(value) = MetadataValue::try_from(connection.to_string())
    {
        request.metadata_mut().insert(KEY, value);
    }
    request
}

/// A new connection id, which begins like all ids of the current connection.
pub fn new_id() -> ConnectionId {
    ConnectionId(bytes())
}

/// A new nonce, which begins like all ids of the current connection.
pub fn new_nonce() -> Nonce {
    Nonce(bytes())
}

/// The 12 bytes of the current connection, if there is one, and 4 random ones; else all random.
fn bytes() -> [u8; 16] {
    let mut id: [u8; 16] = random();
    let _ = CURRENT.try_with(|current| id[..12].copy_from_slice(&current.0));
    id
}

impl From<ConnectionId> for Connection {
    fn from(id: ConnectionId) -> Self {
        Self::of_bytes(id.0)
    }
}

impl From<Nonce> for Connection {
    fn from(nonce: Nonce) -> Self {
        Self::of_bytes(nonce.0)
    }
}

impl Connection {
    fn of_bytes(id: [u8; 16]) -> Self {
        let mut connection = [0; 12];
        connection.copy_from_slice(&id[..12]);
        Self(connection)
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Connection {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        if text.len() != 24 {
            return Err(DecodeError::wrong_length("connection", text.len()));
        }
        Ok(ConnectionId::from_str(&format!("{text}00000000"))?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_ids_of_a_connection_begin_alike_and_none_is_the_same() {
        let connection = Connection::random();
        let (id, other, nonce, call) =
            connection.scope(async { (new_id(), new_id(), new_nonce(), request(())) }).await;
        assert_eq!([Connection::from(id), other.into(), nonce.into()], [connection; 3]);
        assert_ne!(id, other);
        assert!(id.to_string().starts_with(&connection.to_string()));
        assert_eq!(Connection::of_headers(&call.into_parts().0.into_headers()), Some(connection));
        assert_ne!(Connection::from(new_id()), connection);
        assert_eq!(Connection::of_headers(&request(()).into_parts().0.into_headers()), None);
    }

    #[test]
    fn only_24_hexadecimal_digits_are_a_connection() {
        let connection = Connection([0xa5; 12]);
        assert_eq!(connection.to_string().parse(), Ok(connection));
        for text in ["", "a5", &"a5".repeat(13), &"g".repeat(24), &"é".repeat(12)] {
            assert!(text.parse::<Connection>().is_err(), "{text:?}");
        }
    }
}
