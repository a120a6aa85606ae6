//! `isthmus status`: what there is in the grid.

mod view;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_broker::state::ADMIN_DIRECTORY;
use isthmus_net::{Credentials, Role, grpc};
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{GridReply, GridRequest};

use crate::config::StateArgs;
use crate::local;

use view::View;

/// How long the grid may take to answer: a gateway may have to wait for its
/// broker.
const DEADLINE: Duration = Duration::from_secs(20);

/// Show sites, nodes, relays and running jobs, and who is joined to whom.
///
/// Asks the broker or gateway with the identity of the state directory; where
/// there is none, this node's agent.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    state: StateArgs,
    /// For programs to read.
    #[arg(long)]
    json: bool,
    /// Also nodes that are down, and how each pair of nodes is joined.
    #[arg(long, short)]
    verbose: bool,
}

/// Runs `isthmus status`.
///
/// # Errors
/// What went wrong, for people.
pub async fn run(args: StatusArgs) -> anyhow::Result<()> {
    let reply = tokio::time::timeout(DEADLINE, ask(&args.state))
        .await
        .with_context(|| format!("the grid did not answer within {} s", DEADLINE.as_secs()))??;
    let view = View::new(&reply);
    let text = if args.json {
        let mut text = serde_json::to_string_pretty(&view).context("cannot write JSON")?;
        text.push('\n');
        text
    } else {
        view.text(&reply, args.verbose)
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn ask(state: &StateArgs) -> anyhow::Result<GridReply> {
    let directory = state.directory();
    if has_identity(&directory) || state.is_given() {
        return ask_upstream(&directory).await;
    }
    let socket = local::socket();
    if !socket.exists() {
        bail!(
            "there is neither an identity in {} nor an agent at {}; give --state DIR, or start an agent",
            directory.display(),
            socket.display()
        );
    }
    let mut agent = local::connect(&socket).await?;
    Ok(agent.grid(GridRequest {}).await.map_err(local::failure)?.into_inner())
}

async fn ask_upstream(directory: &Path) -> anyhow::Result<GridReply> {
    let mut credentials = Credentials::load(directory)?;
    if credentials.identity().role() == Role::Broker {
        // The broker's own identity is for serving; a person asks as admin.
        credentials = Credentials::load(&directory.join(ADMIN_DIRECTORY))?;
    }
    let server_name = credentials.identity().upstream_server_name();
    let channel = grpc::connect(credentials.upstream(), &server_name, &credentials).await?;
    let reply = RegistryClient::new(channel).grid(GridRequest {}).await;
    Ok(reply.map_err(|status| anyhow::anyhow!("{server_name}: {}", grpc::reason(&status)))?.into_inner())
}

/// Whether somebody could ask with this directory, as far as this user can see.
fn has_identity(directory: &Path) -> bool {
    std::fs::File::open(directory.join("key.pem")).is_ok()
}
