//! Reaching this node's agent over its Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use isthmus_agent::config::{LOCAL_SOCKET, default_runtime_directory};
use isthmus_net::grpc;
use isthmus_wire::proto::local_client::LocalClient;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::Channel;

/// How long a connect over a Unix socket may take: only a hung agent lets it.
const DEADLINE: Duration = Duration::from_secs(5);

/// The agent's socket unless configured otherwise.
pub(crate) fn socket() -> PathBuf {
    default_runtime_directory().join(LOCAL_SOCKET)
}

/// Connects to the agent.
///
/// # Errors
/// If there is none; the message says what to do.
pub(crate) async fn connect(socket: &Path) -> anyhow::Result<LocalClient<Channel>> {
    let stream = tokio::time::timeout(DEADLINE, UnixStream::connect(socket))
        .await
        .map_err(|_| anyhow::anyhow!("it does not answer"))
        .and_then(|connected| connected.map_err(Into::into))
        .with_context(|| {
            format!("cannot reach this node's agent at {}; start one with `isthmus agent`", socket.display())
        })?;
    Ok(LocalClient::new(grpc::channel_within(stream).await.context("cannot speak to this node's agent")?))
}

/// An agent's answer as an error.
pub(crate) fn failure(status: Status) -> anyhow::Error {
    anyhow::anyhow!("{}", grpc::reason(&status))
}
