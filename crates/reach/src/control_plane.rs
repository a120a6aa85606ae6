//! The control plane, as the dialer uses it.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use isthmus_net::Deadline;
use isthmus_net::relay_places::RelayPlaces;
use isthmus_net::rendezvous::{Reply, Way};
use isthmus_wire::proto::{self, attach_up};
use tonic::Status;

/// A dialing party's access to the broker. An agent implements it over its
/// gateway, a gateway can over its own connection.
#[tonic::async_trait]
pub trait ControlPlane: fmt::Debug + Send + Sync {
    /// The name of this party's site.
    fn site(&self) -> &str;

    /// Waits until this party is attached to the broker, directly or over its gateway.
    async fn attached(&self);

    /// A node's contact and the plan for it, which may come from a cache.
    ///
    /// # Errors
    /// The broker's status; `UNAVAILABLE` if it can't be reached by the deadline.
    async fn lookup(&self, node: Ipv4Addr, deadline: Deadline) -> Result<Arc<proto::LookupReply>, Status>;

    /// Drops a node's contact from the cache.
    fn forget(&self, node: Ipv4Addr);

    /// Asks the broker for a rendezvous with a node. The request's second part is the longest
    /// segment of its connections, in bytes; `None` lets each kernel choose.
    ///
    /// # Errors
    /// The broker's status; `UNAVAILABLE` if it can't be reached by the deadline.
    async fn rendezvous(
        &self,
        destination: Ipv4Addr,
        (way, segment): (Way, Option<u16>),
        deadline: Deadline,
    ) -> Result<Reply, Status>;

    /// Asks the broker to have a relay dial this party. The implementation fills in the request's
    /// initiator.
    ///
    /// # Errors
    /// The broker's status; `UNAVAILABLE` if it can't be reached by the deadline.
    async fn probe(
        &self,
        request: proto::ProbeRequest,
        deadline: Deadline,
    ) -> Result<proto::ProbeReply, Status>;

    /// Sends the broker a message, as soon as this party is attached.
    async fn send(&self, kind: attach_up::Kind);

    /// The latest directory that this party received: relays that are up, and other sites' gateways
    /// with a port outside. Sends no request.
    ///
    /// # Errors
    /// `UNAVAILABLE` as long as no directory was received.
    async fn directory(&self) -> Result<proto::Directory, Status>;

    /// Where relays may be, as the gateway has said last.
    fn relay_places(&self) -> RelayPlaces;

    /// Waits until the directory differs from `known`.
    async fn directory_changed(&self, known: &proto::Directory);
}
