//! Asking the grid: the broker or gateway, with the identity of a state
//! directory; where there is none, this node's agent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_broker::state::ADMIN_DIRECTORY;
use isthmus_net::{Credentials, Role, grpc};
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{
    ExplainReply, ExplainRequest, ListReply, MeasureReply, MeasureRequest, SiteFilter,
};
use tonic::transport::Channel;

use crate::config::StateArgs;
use crate::{local, pages};

/// Sites that are named where another was asked for.
const NAMED: usize = 32;
/// How long the grid may take to answer: a gateway may have to wait for its
/// broker.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) enum Grid {
    /// The broker or a gateway, by this name.
    Registry(Box<RegistryClient<Channel>>, String),
    /// This node's agent.
    Agent(LocalClient<Channel>),
}

impl Grid {
    /// Finds somebody to ask.
    ///
    /// # Errors
    /// If there is nobody, or they can't be reached.
    pub(crate) async fn find(state: &StateArgs) -> anyhow::Result<Self> {
        within(async {
            let directory = state.directory();
            if has_identity(&directory) || state.is_given() {
                return registry(&directory).await;
            }
            let socket = local::socket();
            if !socket.exists() {
                bail!(
                    "there is neither an identity in {} nor an agent at {}; give --state DIR, or start an agent",
                    directory.display(),
                    socket.display()
                );
            }
            Ok(Self::Agent(local::connect(&socket).await?))
        })
        .await
    }

    /// All records of one kind, page by page.
    ///
    /// # Errors
    /// What the one who is asked says, or that they don't answer.
    pub(crate) async fn list(&self, records: Records) -> anyhow::Result<ListReply> {
        within(async {
            match self {
                Self::Registry(client, name) => {
                    let page = |request| {
                        let mut client = client.clone();
                        async move { client.list(request).await }
                    };
                    pages::all(records, page).await.map_err(|status| said(name, &status))
                }
                Self::Agent(client) => {
                    let page = |request| {
                        let mut client = client.clone();
                        async move { client.list(request).await }
                    };
                    pages::all(records, page).await.map_err(local::failure)
                }
            }
        })
        .await
    }

    /// What to say of a site that isn't there: which there are.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub(crate) async fn no_site(&self, wanted: &str) -> anyhow::Result<String> {
        let sites = self.list(Records::Sites(SiteFilter::default())).await?.sites;
        let mut known: Vec<_> = sites.iter().take(NAMED).map(|site| site.name.as_str()).collect();
        if sites.len() > NAMED {
            known.push("and more, which `isthmus status` lists");
        }
        Ok(format!("no site {wanted} is in the grid; there are {}", known.join(", ")))
    }

    /// How one node would reach another.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub(crate) async fn explain(self, request: ExplainRequest) -> anyhow::Result<ExplainReply> {
        within(async {
            let reply = match self {
                Self::Registry(mut client, name) => {
                    client.explain(request).await.map_err(|status| said(&name, &status))
                }
                Self::Agent(mut client) => client.explain(request).await.map_err(local::failure),
            };
            Ok(reply?.into_inner())
        })
        .await
    }
}

impl Grid {
    /// Has one node measure the way to another one, or tells how that went.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub(crate) async fn measure(self, request: MeasureRequest) -> anyhow::Result<MeasureReply> {
        within(async {
            let reply = match self {
                Self::Registry(mut client, name) => {
                    client.measure(request).await.map_err(|status| said(&name, &status))
                }
                Self::Agent(mut client) => client.measure(request).await.map_err(local::failure),
            };
            Ok(reply?.into_inner())
        })
        .await
    }
}

async fn within<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(DEADLINE, work)
        .await
        .with_context(|| format!("the grid did not answer within {} s", DEADLINE.as_secs()))?
}

fn said(name: &str, status: &tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{name}: {}", grpc::reason(status))
}

async fn registry(directory: &Path) -> anyhow::Result<Grid> {
    let mut credentials = Credentials::load(directory)?;
    if credentials.identity().role() == Role::Broker {
        // The broker's own identity is for serving; a person asks as admin.
        credentials = Credentials::load(&directory.join(ADMIN_DIRECTORY))?;
    }
    let server_name = credentials.identity().upstream_server_name();
    let channel = grpc::connect(credentials.upstream(), &server_name, &credentials).await?;
    Ok(Grid::Registry(Box::new(RegistryClient::new(channel)), server_name))
}

/// Whether somebody could ask with this directory, as far as this user can see.
fn has_identity(directory: &Path) -> bool {
    std::fs::File::open(directory.join("key.pem")).is_ok()
}
