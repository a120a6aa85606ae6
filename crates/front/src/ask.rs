//! Requests to the grid: to the broker or a gateway, with the identity of a state
//! directory; if there is none, to this node's agent.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::bail;
use isthmus_broker::state::ADMIN_DIRECTORY;
use isthmus_identity::{Credentials, Role};
use isthmus_rpc::grpc::{Call, Connections, Repeat};
use isthmus_rpc::{grpc, packets, renewal};
use isthmus_service::Deadline;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{
    ExplainReply, ExplainRequest, ListReply, ListRequest, MeasureReply, MeasureRequest, NodeFilter,
    PacketsRequest, SiteFilter,
};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::output::message;
use crate::state::StateArgs;
use crate::{local, pages};

/// Most sites that the message about an unknown site names.
const NAMED: usize = 32;
/// The budget of one call: a gateway may have to wait for its broker.
const BUDGET: Duration = Duration::from_secs(20);
/// How long this machine may take to try large packets itself.
const PACKETS: Duration = Duration::from_secs(9);
/// How long the renewal of an administrator's certificate may delay a command.
const RENEWAL: Duration = Duration::from_secs(5);
/// Pause before another try over a new connection.
const RETRY: Duration = Duration::from_millis(250);

/// The server that answers requests to the grid.
pub struct Grid {
    client: Client,
    server: AskedServer,
    /// Whether a gateway's own answers are taken while the broker is away.
    without_broker: bool,
}

/// The client of a server that answers.
#[derive(Clone)]
pub enum Client {
    /// That of the broker or a gateway.
    Registry(RegistryClient<Channel>),
    /// That of this node's agent.
    Agent(LocalClient<Channel>),
}

/// Why the grid did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Whether the reason is that the caller may not ask for this.
    pub refused: bool,
    /// Whether the same call may have another answer some time later.
    pub may_pass: bool,
    text: String,
}

/// The server that a command asks.
enum AskedServer {
    /// The broker or a gateway, under its name in its certificate. The channel to it connects again
    /// by itself.
    Upstream { name: String, credentials: Credentials },
    /// This node's agent, at this socket.
    Agent(PathBuf),
}

impl Grid {
    /// Connects to the broker or a gateway with the identity of the state directory, or else to
    /// this node's agent.
    ///
    /// # Errors
    /// If there is neither an identity nor an agent, or the server isn't reached.
    pub async fn find(state: &StateArgs) -> anyhow::Result<Self> {
        let directory = state.directory();
        let socket = local::socket();
        if has_identity(&directory) || state.is_given() {
            let reached = registry(&directory).await;
            // The gateway at which the node has joined may be away, and its agent at another one.
            if reached.is_err()
                && !state.is_given()
                && socket.exists()
                && let Ok(agent) = local::connect(&socket).await
            {
                return Ok(Self::of_agent(agent, socket));
            }
            return reached;
        }
        if !socket.exists() {
            bail!(
                "isthmus doesn't run on this machine (no agent listens at {}, and {} holds no identity): start its \
                 part of the grid with `isthmus up`, or give --state DIR if its identity is elsewhere",
                socket.display(),
                directory.display()
            );
        }
        Ok(Self::of_agent(local::connect(&socket).await?, socket))
    }

    /// This node's agent, connected at this socket.
    pub fn of_agent(client: LocalClient<Channel>, socket: PathBuf) -> Self {
        Self { client: Client::Agent(client), server: AskedServer::Agent(socket), without_broker: false }
    }

    /// Also takes what a gateway knows while it doesn't reach the broker. The answers say so, and
    /// the caller must tell the user.
    #[must_use]
    pub fn or_without_broker(self) -> Self {
        Self { without_broker: true, ..self }
    }

    /// All records of one kind, page by page.
    ///
    /// # Errors
    /// The server's error, or that it doesn't answer within [`BUDGET`].
    pub async fn list(&self, records: Records) -> anyhow::Result<ListReply> {
        let list = |client, request: Request<ListRequest>| async move {
            match client {
                Client::Registry(mut client) => client.list(request).await,
                Client::Agent(mut client) => client.list(request).await,
            }
        };
        let page = |request| self.call(ListRequest { without_broker: self.without_broker, ..request }, list);
        pages::all(records, page).await.map_err(|status| self.failure(&status))
    }

    /// The owner and the grid name of the node whose agent, or whose agent's identity, asks. `None` for
    /// administrators and gateways, which see other owners' jobs.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub async fn own_node(&self) -> anyhow::Result<Option<(String, String)>> {
        if let AskedServer::Upstream { credentials, .. } = &self.server {
            let identity = credentials.identity();
            let (owner, name) = (identity.owner(), identity.grid_name());
            return Ok(owner.zip(name).map(|(owner, name)| (owner.as_str().to_owned(), name.to_string())));
        }
        let own = NodeFilter { own: true, ..NodeFilter::default() };
        let ListReply { nodes, own, .. } = self.list(Records::Nodes(own)).await?;
        let found = nodes.into_iter().find(|node| node.name == own);
        Ok(found.map(|node| (node.owner, node.name)))
    }

    /// The message about an unknown site; it names the sites that there are.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub async fn no_site(&self, wanted: &str) -> anyhow::Result<String> {
        let sites = self.list(Records::Sites(SiteFilter::default())).await?.sites;
        let mut known: Vec<_> = sites.iter().take(NAMED).map(|site| site.name.as_str()).collect();
        if sites.len() > NAMED {
            known.push("and more, which `isthmus status` lists");
        }
        Ok(format!("no site {wanted:?} is in the grid; there are {}", known.join(", ")))
    }

    /// How one node would reach another.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub async fn explain(&self, request: ExplainRequest) -> anyhow::Result<ExplainReply> {
        let explain = |client, request: Request<ExplainRequest>| async move {
            match client {
                Client::Registry(mut client) => client.explain(request).await,
                Client::Agent(mut client) => client.explain(request).await,
            }
        };
        let request = ExplainRequest { without_broker: self.without_broker, ..request };
        let reply = self.call(request, explain).await;
        reply.map_err(|status| self.failure(&status))
    }

    /// Has one node measure the way to another one, or asks for the result.
    ///
    /// # Errors
    /// As [`Grid::list`].
    pub async fn measure(&self, request: MeasureRequest) -> anyhow::Result<MeasureReply> {
        let measure = |client, request: Request<MeasureRequest>| async move {
            match client {
                Client::Registry(mut client) => client.measure(request).await,
                Client::Agent(mut client) => client.measure(request).await,
            }
        };
        let reply = self.call(request, measure).await;
        reply.map_err(|status| self.failure(&status))
    }

    /// Fails if large packets vanish between this machine, its gateway and the broker; the
    /// error names where. What can't be tried is no failure.
    ///
    /// # Errors
    /// Where they vanish, and the remedies.
    pub async fn no_black_hole(&self) -> anyhow::Result<()> {
        let holes = match &self.server {
            AskedServer::Agent(_) => {
                let ask = |client, request: Request<PacketsRequest>| async move {
                    match client {
                        Client::Agent(mut client) => client.packets(request).await,
                        Client::Registry(_) => Err(Status::internal("no agent")),
                    }
                };
                self.call(PacketsRequest {}, ask).await.unwrap_or_default().holes
            }
            AskedServer::Upstream { name, credentials } => {
                let tls = credentials.client_config(&[packets::PROTOCOL])?.without_resumption();
                let looking = packets::hole_towards(("this machine", name), credentials.upstream(), &tls);
                tokio::time::timeout(PACKETS, looking).await.ok().flatten().into_iter().collect()
            }
        };
        match holes.as_slice() {
            [] => Ok(()),
            holes => bail!("{}", holes.join("\n")),
        }
    }

    /// Calls the server; none of the calls does harm if it is sent twice.
    async fn call<M: Clone, T, F>(
        &self,
        message: M,
        call: impl Fn(Client, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let server = match self.server {
            // The message begins with the server's name.
            AskedServer::Upstream { .. } => "it",
            AskedServer::Agent(_) => "this node's agent",
        };
        let sent = Call { server, deadline: Deadline::within(BUDGET), repeat: Repeat::IfBroken };
        sent.send(self, message, call).await
    }

    fn failure(&self, status: &Status) -> anyhow::Error {
        let reason = grpc::reason(status);
        let text = match &self.server {
            AskedServer::Upstream { name, .. } => format!("{name}: {reason}"),
            AskedServer::Agent(_) => reason,
        };
        let refused = status.code() == Code::PermissionDenied;
        Failure { refused, may_pass: grpc::may_pass(status), text }.into()
    }
}

#[tonic::async_trait]
impl Connections for Grid {
    type Connection = Client;

    async fn get(&self, former: Option<&Client>) -> Option<Client> {
        if former.is_none() {
            return Some(self.client.clone());
        }
        tokio::time::sleep(RETRY).await;
        match &self.server {
            AskedServer::Upstream { .. } => Some(self.client.clone()),
            AskedServer::Agent(socket) => local::connect(socket).await.ok().map(Client::Agent),
        }
    }

    fn absent(&self) -> Status {
        Status::unavailable("the connection broke and could not be made again")
    }
}

async fn registry(directory: &Path) -> anyhow::Result<Grid> {
    let (channel, name, credentials) = upstream(directory).await?;
    let client = Client::Registry(RegistryClient::new(channel));
    let server = AskedServer::Upstream { name, credentials };
    Ok(Grid { client, server, without_broker: false })
}

/// Connects to the broker as an administrator.
///
/// # Errors
/// If the directory has another identity, or the broker isn't reached.
pub async fn administrator(directory: &Path) -> anyhow::Result<Channel> {
    let identity = Credentials::load(directory)?.identity().clone();
    if !matches!(identity.role(), Role::Admin | Role::Broker) {
        bail!(
            "{} holds the identity of {identity}; give an administrator's directory with --state",
            directory.display()
        );
    }
    Ok(upstream(directory).await?.0)
}

/// Connects to the broker or gateway of a state directory's identity. Returns the channel, the
/// server's name, and the identity.
async fn upstream(directory: &Path) -> anyhow::Result<(Channel, String, Credentials)> {
    let mut directory = directory.to_owned();
    let mut credentials = Credentials::load(&directory)?;
    if credentials.identity().role() == Role::Broker {
        // The broker's own identity is for serving; users have the administrator's.
        directory = directory.join(ADMIN_DIRECTORY);
        credentials = Credentials::load(&directory)?;
    }
    if credentials.identity().role() == Role::Admin {
        renew_if_due(&credentials, &directory).await;
    }
    let server_name = credentials.identity().upstream_server_name();
    let channel = grpc::connect(credentials.upstream(), &server_name, &credentials).await?;
    Ok((channel, server_name, credentials))
}

/// Renews an administrator's certificate if that is due. Services renew theirs by themselves; an
/// administrator has no service. The command goes on if the renewal fails.
async fn renew_if_due(credentials: &Credentials, directory: &Path) {
    let now = SystemTime::now();
    if now < credentials.renewal_due() || credentials.check(now).is_err() {
        return;
    }
    let renewing = renewal::renew_alone(credentials, directory, credentials.upstream());
    let reason = match tokio::time::timeout(RENEWAL, renewing).await {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {RENEWAL:?}"),
    };
    message(&format!("cannot renew the certificate in {}: {reason}", directory.display()));
}

/// Whether this user can read an identity in the directory.
fn has_identity(directory: &Path) -> bool {
    std::fs::File::open(directory.join("key.pem")).is_ok()
}
