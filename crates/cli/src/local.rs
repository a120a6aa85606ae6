//! The connection to this node's agent, over its Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use isthmus_agent::config::{LOCAL_SOCKET, default_runtime_directory};
use isthmus_net::grpc;
use isthmus_wire::proto::local_client::LocalClient;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::Channel;

/// How long a connect over a Unix socket may take; only a hung agent takes long.
const DEADLINE: Duration = Duration::from_secs(5);

/// The agent's socket by default.
pub(crate) fn socket() -> PathBuf {
    default_runtime_directory().join(LOCAL_SOCKET)
}

/// Connects to the agent.
///
/// # Errors
/// If there is none; the message names the remedy.
pub(crate) async fn connect(socket: &Path) -> anyhow::Result<LocalClient<Channel>> {
    let connecting = async {
        let stream = UnixStream::connect(socket).await?;
        anyhow::Ok(grpc::channel_within(stream).await?)
    };
    let connected = tokio::time::timeout(DEADLINE, connecting).await;
    let channel =
        connected.map_err(|_| anyhow::anyhow!("no answer within {DEADLINE:?}")).and_then(|made| made);
    Ok(LocalClient::new(channel.with_context(|| {
        format!("cannot reach this node's agent at {}; start one with `isthmus agent`", socket.display())
    })?))
}

/// An agent's answer as an error.
pub(crate) fn failure(status: Status) -> anyhow::Error {
    anyhow::anyhow!("{}", grpc::reason(&status))
}
