//! The control plane, as the dialer and the probing use it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use isthmus_net::relay_places::RelayPlaces;
use isthmus_rpc::rendezvous::{Peer, Reply, RequestWay};
use isthmus_service::Deadline;
use isthmus_wire::proto::{self, attach_up};
use tonic::Status;

use crate::failed::NotDialed;

/// A dialing party's access to the broker: an agent's over its gateway, a gateway's over its own
/// connection.
#[tonic::async_trait]
pub trait ControlPlane: fmt::Debug + Send + Sync {
    /// The name of this party's site.
    fn site(&self) -> &str;

    /// A party's contact and the plan for it, which may come from a cache.
    ///
    /// # Errors
    /// The broker's status; `UNAVAILABLE` if it can't be reached by the deadline.
    async fn lookup(&self, peer: &Peer, deadline: Deadline) -> Result<Arc<proto::LookupReply>, Status>;

    /// Drops a party's contact from the cache.
    fn forget(&self, peer: &Peer);

    /// Asks the broker for a rendezvous with a party. The request's second part is the longest
    /// segment of its connections, in bytes; `None` lets each kernel choose.
    ///
    /// # Errors
    /// The broker's status; `UNAVAILABLE` if it can't be reached by the deadline.
    async fn rendezvous(
        &self,
        peer: &Peer,
        (way, segment): (RequestWay, Option<u16>),
        deadline: Deadline,
    ) -> Result<Reply, Status>;

    /// Sends the broker a message, as soon as this party is attached.
    async fn send(&self, kind: attach_up::Kind);

    /// Where relays may be, as the gateway has said last.
    fn relay_places(&self) -> RelayPlaces;

    /// Checks that this party may dial an address that another site has named. By default it may.
    ///
    /// # Errors
    /// The rule that forbids it.
    fn check_address(&self, _: IpAddr) -> Result<(), NotDialed> {
        Ok(())
    }
}

/// An agent's access to the grid's relays, by which it finds out how its site is seen.
#[tonic::async_trait]
pub trait Relays: ControlPlane {
    /// Waits until this party is attached to the broker.
    async fn attached(&self);

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

    /// The latest directory that this party received: relays that are up, and other sites' gateways
    /// with a port outside. Sends no request.
    ///
    /// # Errors
    /// `UNAVAILABLE` as long as no directory was received.
    async fn directory(&self) -> Result<proto::Directory, Status>;

    /// Waits until the directory differs from `known`.
    async fn directory_changed(&self, known: &proto::Directory);
}
