//! Calls that are answered for the connection that their caller names.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::codegen::http::Request;
use tower::Service;

use crate::connection::{self, Connection};

/// Runs each call in [`Connection::scope`], if the call's metadata names a connection.
#[derive(Debug, Clone)]
pub(super) struct InConnection<S>(pub(super) S);

impl<S, B> Service<Request<B>> for InConnection<S>
where
    S: Service<Request<B>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let connection = Connection::of_headers(request.headers());
        let path = connection.map(|_| request.uri().path().to_owned()).unwrap_or_default();
        let answering = self.0.call(request);
        Box::pin(connection::scope_of(connection, async move {
            if connection.is_some() {
                tracing::debug!(path, "a call");
            }
            answering.await
        }))
    }
}
