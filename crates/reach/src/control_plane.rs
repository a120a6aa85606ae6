//! What dialing asks of the control plane.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use isthmus_net::Deadline;
use isthmus_net::rendezvous::{Reply, Way};
use isthmus_wire::proto::{self, attach_up};
use tonic::Status;

/// The way to the broker, as a party that dials has it.
#[tonic::async_trait]
pub trait ControlPlane: fmt::Debug + Send + Sync {
    /// The site of this party.
    fn site(&self) -> &str;

    /// Waits until there is a way to the broker.
    async fn attached(&self);

    /// Where a node is and how to get there; may come from a cache.
    ///
    /// # Errors
    /// The broker's status; `UNAVAILABLE` if it can't be reached by the deadline.
    async fn lookup(&self, node: Ipv4Addr, deadline: Deadline) -> Result<Arc<proto::LookupReply>, Status>;

    /// Drops a node's contact from the cache: it turned out wrong.
    fn forget(&self, node: Ipv4Addr);

    /// Has this party connected to a node, in the way that is asked for.
    ///
    /// # Errors
    /// The broker's status.
    async fn rendezvous(&self, destination: Ipv4Addr, way: Way, deadline: Deadline) -> Result<Reply, Status>;

    /// Has a relay dial this party, as `request` says; the initiator is filled in.
    ///
    /// # Errors
    /// The broker's status.
    async fn probe(&self, request: proto::ProbeRequest) -> Result<proto::ProbeReply, Status>;

    /// Sends a message to the broker, once there is a way to it.
    async fn send(&self, kind: attach_up::Kind);

    /// Relays that are up, and other sites' gateways that have a port outside, as
    /// they are now; known without asking anyone, once it has come.
    ///
    /// # Errors
    /// UNAVAILABLE as long as none has come.
    async fn directory(&self) -> Result<proto::Directory, Status>;

    /// Waits until the directory differs from `known`.
    async fn directory_changed(&self, known: &proto::Directory);
}
