//! Connections without a certificate. They serve one exchange of a join token, which
//! takes seconds and a few KiB.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::codegen::http::{Request, Response};
use tonic::transport::Server;
use tower::Service;

use super::server;

/// Connections at once. One takes up to 160 KiB: its TLS session, and what the
/// bounds below allow.
pub(super) const CONNECTIONS: usize = 512;
/// How long one may last.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Calls at once on one connection.
const CALLS: u32 = 4;
/// Bytes that one connection may have sent and the service has not read: the smallest
/// window that HTTP/2 allows.
const CONNECTION_WINDOW: u32 = 65_535;
/// The same of one call.
const CALL_WINDOW: u32 = 16 * 1024;
/// Calls that the client has cancelled and the service has not seen.
const CANCELLED: usize = 8;
/// Calls that the service refused before the connection ends.
const REFUSED: usize = 16;

/// What a client without a certificate may call.
const PATHS: [&str; 1] = ["/isthmus.v1.Enrolment/Join"];

/// The server for connections without a certificate.
pub(super) fn server() -> Server {
    server::server()
        .max_concurrent_streams(CALLS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(CALL_WINDOW)
        .http2_max_pending_accept_reset_streams(Some(CANCELLED))
        .http2_max_local_error_reset_streams(Some(REFUSED))
}

/// Refuses all calls but [`PATHS`], before their message is read.
#[derive(Debug, Clone)]
pub(super) struct OnlyEnrolment<S>(pub(super) S);

impl<S, B, R> Service<Request<B>> for OnlyEnrolment<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send + 'static>,
    R: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if PATHS.contains(&request.uri().path()) {
            return Box::pin(self.0.call(request));
        }
        Box::pin(async { Ok(server::no_certificate().into_http()) })
    }
}
