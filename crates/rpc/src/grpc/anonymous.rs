//! Connections without a certificate. They serve one exchange of a join token, which
//! takes seconds and a few KiB.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::codegen::http::{Request, Response};
use tonic::transport::Server;
use tower::Service;

use super::peer::no_certificate;
use super::settings;

/// Most connections without a certificate at once. A connection takes up to 160 KiB: its TLS
/// session, and what the bounds below allow.
pub(super) const CONNECTIONS: usize = 512;
/// How long a connection without a certificate may last.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Most calls at once on a connection.
const CALLS: u32 = 4;
/// Most bytes that a connection may have sent and the service has not read: the smallest window
/// that HTTP/2 allows.
const CONNECTION_WINDOW: u32 = 65_535;
/// Most bytes that a call may have sent and the service has not read.
const CALL_WINDOW: u32 = 16 * 1024;
/// Most calls that the client has cancelled and the service has not seen.
const CANCELLED: usize = 8;
/// After how many refused calls the connection ends.
const REFUSED: usize = 16;

/// The calls that a client without a certificate may make.
const PATHS: [&str; 1] = ["/isthmus.v1.Enrolment/Join"];

/// The server for connections without a certificate.
pub(super) fn server() -> Server {
    settings::server()
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
        Box::pin(async { Ok(no_certificate().into_http()) })
    }
}
