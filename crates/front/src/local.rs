//! The connection to this node's agent, over its Unix socket.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use isthmus_agent::runtime_directory::{self, LOCAL_SOCKET};
use isthmus_broker::state::State;
use isthmus_identity::{Credentials, Role};
use isthmus_rpc::grpc;
use isthmus_service::private;
use isthmus_wire::proto::local_client::LocalClient;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::Channel;

use crate::state::{NODE_DIRECTORY, state_without_option};

/// How long a connect over a Unix socket may take; only a hung agent takes long.
const DEADLINE: Duration = Duration::from_secs(5);

/// Environment variable with the socket of the agent to ask.
const VARIABLE: &str = "ISTHMUS_AGENT";

/// The agent's socket by default: that of [`VARIABLE`]. An agent and a command may run
/// with different environments, so without it each place at which an agent may be is
/// tried.
pub fn socket() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let places = runtime_directory::sockets();
    let there: Vec<&PathBuf> = places.iter().filter(|path| path.symlink_metadata().is_ok()).collect();
    let chosen = match there[..] {
        [] => places.first(),
        [only] => Some(only),
        [first, ..] => there.iter().copied().find(|path| is_served(path)).or(Some(first)),
    };
    chosen.cloned().unwrap_or_else(|| LOCAL_SOCKET.into())
}

/// Whether an agent of this user listens at this path.
fn is_served(path: &Path) -> bool {
    private::check_socket(path).is_ok_and(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
}

/// The error that no agent listens at its socket.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Absent {
    /// The message for the user, with the remedy.
    pub text: String,
    /// Whether the socket is still there: then the agent was killed, and may be started again at
    /// once.
    pub was_killed: bool,
}

/// Connects to this node's agent. Nothing is sent before it is known that the socket, its directory
/// and the agent belong to this user or to root.
///
/// # Errors If no agent listens, or it is another user's; the message names the remedy.
pub async fn connect(socket: &Path) -> anyhow::Result<LocalClient<Channel>> {
    let connecting = async {
        let path = private::check_socket(socket)?;
        let stream = UnixStream::connect(&path).await?;
        private::check_peer(&stream, &path)?;
        anyhow::Ok(grpc::channel_within(stream).await?)
    };
    let connected = tokio::time::timeout(DEADLINE, connecting).await;
    let channel =
        connected.map_err(|_| anyhow::anyhow!("no answer within {DEADLINE:?}")).and_then(|made| made);
    match channel {
        Err(error) if let Some(kind) = absence(&error) => {
            let remedy = remedy(&state_without_option());
            let text = format!("no agent runs on this node (none listens at {}): {remedy}", socket.display());
            Err(Absent { text, was_killed: kind == ErrorKind::ConnectionRefused }.into())
        }
        channel => Ok(LocalClient::new(
            channel.with_context(|| format!("cannot reach this node's agent at {}", socket.display()))?,
        )),
    }
}

/// The advice on how an agent is started on a machine with this state directory.
fn remedy(directory: &Path) -> &'static str {
    let role = Credentials::load(directory).map(|credentials| credentials.identity().role());
    if role.is_ok_and(|role| role == Role::Gateway) && !directory.join(NODE_DIRECTORY).exists() {
        return "this is a front-end, which becomes a node as well by `isthmus up --node --token FILE`";
    }
    if State::load(directory).is_ok() {
        return "this is the broker's host: run it on a node. It becomes a node as well, with a state directory for \
                that, by `isthmus up --state DIR --token FILE --via FRONT-END`";
    }
    "start it with `isthmus up`"
}

/// The kernel's word that nothing listens at a socket; `None` if the error is another one.
fn absence(error: &anyhow::Error) -> Option<ErrorKind> {
    let of_kernel = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let mut kinds = of_kernel.map(io::Error::kind);
    kinds.find(|kind| matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// An agent's answer as an error.
pub fn failure(status: Status) -> anyhow::Error {
    anyhow::anyhow!("{}", grpc::reason(&status))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use isthmus_identity::credentials::SigningRequest;
    use isthmus_identity::{Authority, Identity};

    use super::*;

    #[test]
    fn a_front_end_is_told_how_it_becomes_a_node() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let remedy = || remedy(directory.path());
        assert_eq!(remedy(), "start it with `isthmus up`", "nothing is there");
        for (uri, is_front_end) in
            [("isthmus:///agent/alpha/n1/ada", false), ("isthmus:///gateway/alpha/gateway/", true)]
        {
            let request = SigningRequest::new().unwrap();
            let identity = Identity::from_uri(uri).unwrap();
            let certificate = authority.sign(&identity, request.public_key(), now).unwrap();
            let credentials = Credentials::new(&request, &certificate, authority.certificate_pem(), "b:7700");
            credentials.unwrap().save(directory.path()).unwrap();
            assert_eq!(remedy().contains("`isthmus up --node --token FILE`"), is_front_end, "{uri}");
        }
        std::fs::create_dir(directory.path().join(NODE_DIRECTORY)).unwrap();
        assert_eq!(remedy(), "start it with `isthmus up`", "a node as well");
        let broker = tempfile::tempdir().unwrap();
        State::create(broker.path(), "demo", "broker.example.org:7700", now).unwrap();
        assert!(super::remedy(broker.path()).starts_with("this is the broker's host: "));
    }

    #[tokio::test]
    async fn where_no_agent_runs() {
        let directory = tempfile::tempdir().unwrap();
        let (absent, dead) = (directory.path().join("absent"), directory.path().join("dead"));
        // An agent that was killed leaves its socket.
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        std::fs::set_permissions(&dead, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (socket, want) in [
            (absent, "no agent runs on this node (none"),
            (dead, "no agent runs on this node (none"),
            (directory.path().join("no/such"), "no agent runs on this node (none"),
            (file, "cannot reach this node's agent at"),
        ] {
            let error = connect(&socket).await.unwrap_err().to_string();
            assert!(error.starts_with(want) && error.contains(&socket.display().to_string()), "{error}");
        }
    }
}
