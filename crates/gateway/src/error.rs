//! Why a gateway can't run.

use std::net::SocketAddr;

use isthmus_identity::credentials::CredentialsError;
use isthmus_splice::address::NoAddress;

/// Why a gateway can't run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The state directory is that of another role.
    #[error("this identity is that of {0}, not of a gateway; give the state directory of a gateway")]
    NotAGateway(String),
    /// The gateway's credentials can't be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server of the site's agents failed.
    #[error("the gateway's server failed: {0}")]
    Server(#[from] tonic::transport::Error),
    /// The outside port is taken, or the address isn't this machine's.
    #[error("cannot listen on {address}: {cause}; set another `outside` in section [gateway]")]
    Outside {
        /// The address that was to be listened on.
        address: SocketAddr,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The configuration has an outside address without a port to listen on.
    #[error(
        "[gateway] outside_address is set, and outside is not: set `outside`, or remove `outside_address`"
    )]
    NothingOutside,
    /// The configuration has the gateway relay no connection.
    #[error("[gateway.relay] connections = 0 relays nothing: set `offer = false` instead")]
    RelaysNothing,
    /// The rails of the configuration can't be used.
    #[error("[[gateway.rails]]: {0}")]
    Rails(String),
    /// Other sites can't reach any address that the gateway could announce for its outside port.
    #[error(
        "listening on {} doesn't show where other sites reach this gateway, and it reaches the broker from {}, \
         where they can't: set `outside_address = \"HOST:PORT\"` in section [gateway]",
        .0.listen, .0.towards_broker
    )]
    NoAddress(NoAddress),
    /// The data plane couldn't be started, or failed later.
    #[error("the gateway's data plane failed: {0}")]
    Plane(std::io::Error),
}
