//! The other end of a served connection.

use std::net::SocketAddr;
use std::sync::Arc;

use isthmus_identity::Identity;
use tonic::{Request, Status};

use super::members::Calls;

/// The other end of a served connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The identity in the peer's certificate; `None` if it showed none.
    pub identity: Option<Arc<Identity>>,
    /// The peer's address as this end sees it.
    pub address: SocketAddr,
    /// The address that the peer connected to.
    pub local: SocketAddr,
    /// The id of the trunk that carries the connection; `None` if no trunk does.
    pub trunk: Option<[u8; 16]>,
    pub(super) calls: Calls,
}

/// The identity of a request's caller, by its certificate.
///
/// # Errors
/// `UNAUTHENTICATED` if the caller showed no certificate.
pub fn caller<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    peer(request).and_then(|peer| peer.identity.clone()).ok_or_else(no_certificate)
}

pub(super) fn no_certificate() -> Status {
    Status::unauthenticated("this call needs a certificate of the grid; run `isthmus join` first")
}

/// The other end of a request's connection; `None` if the connection doesn't use TLS.
pub fn peer<T>(request: &Request<T>) -> Option<&Peer> {
    request.extensions().get::<Peer>()
}
