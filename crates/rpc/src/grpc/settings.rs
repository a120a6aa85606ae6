//! The settings of HTTP/2 (RFC 9113) of served connections.

use tonic::transport::Server;

use super::{KEEPALIVE_INTERVAL, PING_TIMEOUT};

/// Most bytes of all headers of a call: some 300 are used.
const HEADER_BYTES: u32 = 8 * 1024;

/// The server's settings that hold for all connections.
pub(super) fn server() -> Server {
    without_pings()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

/// The server's settings for connections that may pause, without pings.
pub(super) fn without_pings() -> Server {
    Server::builder().http2_max_header_list_size(HEADER_BYTES)
}
