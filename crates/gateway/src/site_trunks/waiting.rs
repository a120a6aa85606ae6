//! What waits for a node of this site to connect with its ticket. Plain data.

use std::collections::HashMap;
use std::net::IpAddr;

use isthmus_service::mac::Secret;
use isthmus_wire::ConnectionId;
use isthmus_wire::ticket::{Side, TICKET_LEN, Ticket};

/// How long a ticket is good, in seconds.
const TICKET_SECONDS: u64 = 60;

/// What waits for a node, by the connection id of the node's ticket.
#[derive(Debug)]
pub(super) struct AwaitedNodes<T>(HashMap<ConnectionId, (IpAddr, Side, T)>);

/// What showing a ticket has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown<T> {
    /// What has waited for the ticket, which is used up now.
    Admitted(T),
    /// Nothing waits for the ticket, which the broker may have made.
    Unknown,
    /// The ticket is refused for this reason.
    Refused(&'static str),
}

impl<T> Default for AwaitedNodes<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> AwaitedNodes<T> {
    /// Keeps something for the node at this address. Returns the node's ticket.
    pub(super) fn add(
        &mut self,
        (connection, side): (ConnectionId, Side),
        node: IpAddr,
        what: T,
        (key, now_unix_seconds): (&Secret, u64),
    ) -> [u8; TICKET_LEN] {
        self.0.insert(connection, (node.to_canonical(), side, what));
        let expiry_unix_seconds = now_unix_seconds + TICKET_SECONDS;
        key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds })
    }

    /// Takes a ticket that a peer at this address has shown.
    pub(super) fn show(
        &mut self,
        bytes: &[u8; TICKET_LEN],
        from: IpAddr,
        (key, now_unix_seconds): (&Secret, u64),
    ) -> Shown<T> {
        let Ok((ticket, mac)) = Ticket::decode(bytes) else { return Shown::Unknown };
        let Some((node, side, _)) = self.0.get(&ticket.connection) else { return Shown::Unknown };
        if !key.verify(&ticket.signed_bytes(), &mac) {
            return Shown::Refused("it is not signed with this gateway's key");
        }
        if ticket.side != *side || ticket.expiry_unix_seconds <= now_unix_seconds {
            return Shown::Refused("it has expired");
        }
        if *node != from.to_canonical() {
            return Shown::Refused("it was given to another node");
        }
        self.0.remove(&ticket.connection).map_or(Shown::Unknown, |(_, _, what)| Shown::Admitted(what))
    }

    /// Gives up what still waits under this connection id.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> Option<T> {
        self.0.remove(&connection).map(|(_, _, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ConnectionId = ConnectionId([1; 16]);

    #[test]
    fn a_ticket_is_good_once_for_its_node_and_for_a_minute() {
        let (key, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let node: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let mut waiting = AwaitedNodes::default();
        let ticket = waiting.add((ID, Side::Initiator), node, "stream", (&key, 1000));
        let forged =
            other.seal_ticket(&Ticket { connection: ID, side: Side::Initiator, expiry_unix_seconds: 2000 });
        let unknown = key.seal_ticket(&Ticket {
            connection: ConnectionId([2; 16]),
            side: Side::Initiator,
            expiry_unix_seconds: 2000,
        });
        assert_eq!(waiting.show(&[0; TICKET_LEN], node, (&key, 1000)), Shown::Unknown);
        assert_eq!(waiting.show(&unknown, node, (&key, 1000)), Shown::Unknown);
        for (ticket, from, now) in
            [(forged, node, 1000), (ticket, "10.0.0.2".parse().unwrap(), 1000), (ticket, node, 1060)]
        {
            let shown = waiting.show(&ticket, from, (&key, now));
            assert!(matches!(shown, Shown::Refused(_)), "{from} {now}: {shown:?}");
        }
        assert_eq!(waiting.show(&ticket, mapped, (&key, 1059)), Shown::Admitted("stream"));
        assert_eq!(waiting.show(&ticket, node, (&key, 1001)), Shown::Unknown, "used");
        let ticket = waiting.add((ID, Side::Acceptor), node, "stream", (&key, 1000));
        assert_eq!(waiting.remove(ID), Some("stream"));
        assert_eq!(waiting.show(&ticket, node, (&key, 1001)), Shown::Unknown, "given up");
    }
}
