//! Verifies the party at the other end.

use std::sync::Arc;

use isthmus_net::{Deadline, Identity, Late, Role};
use isthmus_wire::GridName;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::carrier::{Carrier, keep_alive};

/// The party that must be at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Its role.
    pub role: Role,
    /// The name in its certificate, as [`Identity::server_name`] gives it.
    pub server_name: String,
}

impl Expected {
    /// The agent of a node.
    pub fn agent(node: &GridName) -> Self {
        Self { role: Role::Agent, server_name: node.to_string() }
    }

    /// Whether an identity is this party's.
    pub fn is(&self, identity: &Identity) -> bool {
        identity.role() == self.role && identity.server_name() == self.server_name
    }
}

/// Verifies by TLS that the other end is this party.
///
/// # Errors
/// If the handshake fails, or it is another party.
pub async fn secure(
    stream: TcpStream,
    expected: &Expected,
    config: &Arc<ClientConfig>,
    deadline: Deadline,
) -> Result<Carrier, String> {
    let name = &expected.server_name;
    let ends = format!("{:?} to {:?}", stream.local_addr().ok(), stream.peer_addr().ok());
    let failed = |reason: String| format!("TLS with {name} ({ends}): {reason}");
    keep_alive(&stream);
    let server = ServerName::try_from(name.clone()).map_err(|error| failed(error.to_string()))?;
    let handshake = TlsConnector::from(config.clone()).connect(server, stream);
    let stream = deadline
        .bound(handshake)
        .await
        .map_err(|late: Late| failed(late.to_string()))?
        .map_err(|error| failed(error.to_string()))?;
    let stream = TlsStream::Client(stream);
    match peer_identity(&stream) {
        Some(identity) if expected.is(&identity) => Ok(Carrier::Tls(Box::new(stream))),
        other => Err(failed(format!("the other end is {other:?}"))),
    }
}

/// The identity in the other end's certificate.
pub fn peer_identity(stream: &TlsStream<TcpStream>) -> Option<Identity> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    Identity::from_certificate(certificate).ok()
}
