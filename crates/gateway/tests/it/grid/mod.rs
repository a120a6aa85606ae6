//! A grid on loopback: a real broker and real gateways, all over TLS.
#![allow(dead_code, reason = "no test uses all of it")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_broker::state::State;
use isthmus_broker::{BrokerConfig, PairConfig, state::ADMIN_DIRECTORY};
use isthmus_gateway::GatewayConfig;
use isthmus_identity::signed::contact::sign_contact;
use isthmus_identity::token::{Invitation, JoinToken};
use isthmus_identity::{Credentials, Identity, Role};
use isthmus_rpc::{enrol, grpc};
use isthmus_service::clock::since_1970;
use isthmus_service::upgrade::Upgrades;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A step that takes longer than this has failed.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Waits with a deadline.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// A service that runs as a task.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        soon("a service's end", self.task).await.unwrap();
    }
}

/// A grid with its broker.
pub(crate) struct Grid {
    directory: TempDir,
    pub broker_address: SocketAddr,
    pub broker: Option<Running>,
    /// The policy of pairs of sites.
    pairs: Vec<PairConfig>,
}

impl Grid {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a grid with a policy for a pair of sites.
    pub(crate) async fn start_under(policy: PairConfig) -> Self {
        let mut grid = Self::start().await;
        grid.stop_broker().await;
        grid.pairs.push(policy);
        grid.start_broker().await;
        grid
    }

    /// Starts a grid whose members have joined before.
    pub(crate) async fn start_with(members: &[Identity]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let broker_address = listener.local_addr().unwrap();
        let state = directory.path().join("broker");
        State::create(&state, "demo", &broker_address.to_string(), SystemTime::now()).unwrap();
        drop(listener);
        let created = State::load(&state).unwrap();
        isthmus_broker::enrol_without_tokens(&created, members).await.unwrap();
        let mut grid = Self { directory, broker_address, broker: None, pairs: Vec::new() };
        grid.start_broker().await;
        grid
    }

    /// Starts the broker, or starts it again.
    pub(crate) async fn start_broker(&mut self) {
        let state = self.state();
        let listener = bind(self.broker_address).await;
        let config = BrokerConfig {
            trusted: vec![["alpha".to_owned(), "gamma".to_owned()]],
            pairs: self.pairs.clone(),
            ..BrokerConfig::default()
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            isthmus_broker::run(listener, state, &config, || {}, async { drop(stopped.await) })
                .await
                .unwrap();
        });
        self.broker = Some(Running { stop: Some(stop), task });
    }

    pub(crate) async fn stop_broker(&mut self) {
        self.broker.take().unwrap().stop().await;
    }

    pub(crate) fn state(&self) -> State {
        State::load(&self.directory.path().join("broker")).unwrap()
    }

    pub(crate) fn admin(&self) -> Credentials {
        Credentials::load(&self.directory.path().join("broker").join(ADMIN_DIRECTORY)).unwrap()
    }

    /// A directory for a party's state.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn invitation(&self, role: Role, site: Option<&str>, name: Option<&str>) -> Invitation {
        Invitation {
            grid: "demo".to_owned(),
            role,
            site: site.map(|site| site.parse().unwrap()),
            name: name.map(|name| name.parse().unwrap()),
            owner: Some("anna".parse().unwrap()),
            nodes: None,
            gateways: 0,
            pilot_nodes: 0,
            expires: SystemTime::now() + Duration::from_secs(60),
            broker: self.broker_address.to_string(),
        }
    }

    pub(crate) fn token(&self, role: Role, site: Option<&str>, name: Option<&str>) -> String {
        self.mint(&self.invitation(role, site, name))
    }

    pub(crate) fn mint(&self, invitation: &Invitation) -> String {
        let state = self.state();
        JoinToken::mint(&state.join_key, state.authority.certificate(), invitation).unwrap()
    }

    /// Starts a gateway that has joined.
    pub(crate) async fn gateway(&self, site: &str) -> Gateway {
        self.gateway_with(site, GatewayConfig::default()).await
    }

    /// Starts a gateway that has joined, with a configuration.
    pub(crate) async fn gateway_with(&self, site: &str, config: GatewayConfig) -> Gateway {
        let token = self.token(Role::Gateway, Some(site), None);
        let credentials = soon("joining", enrol::join(&token, None, None)).await.unwrap();
        self.gateway_of(site, credentials, config).await
    }

    /// Starts a gateway with this identity.
    pub(crate) async fn gateway_as(&self, site: &str, credentials: Credentials) -> Gateway {
        self.gateway_of(site, credentials, GatewayConfig::default()).await
    }

    async fn gateway_of(&self, site: &str, credentials: Credentials, config: GatewayConfig) -> Gateway {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let site = site.to_owned();
        let mut gateway = Gateway { credentials, address, site, config, running: None, process: None };
        gateway.start(listener);
        gateway
    }

    /// An agent that has joined through its gateway.
    pub(crate) async fn agent(&self, gateway: &Gateway, name: &str) -> Agent {
        let token = self.token(Role::Agent, Some(&gateway.site), Some(name));
        let via = gateway.address.to_string();
        let credentials = soon("joining", enrol::join(&token, None, Some(&via))).await.unwrap();
        Agent::at(gateway, credentials).await
    }

    /// A relay that has joined and attached.
    pub(crate) async fn relay(&self, name: &str) -> (Attachment, Vec<u8>) {
        self.relay_at(name, &format!("{name}:7720")).await
    }

    /// A relay that has joined and attached, and announces this address.
    pub(crate) async fn relay_at(&self, name: &str, address: &str) -> (Attachment, Vec<u8>) {
        let token = self.token(Role::Relay, None, Some(name));
        let credentials = soon("joining", enrol::join(&token, None, None)).await.unwrap();
        let channel = grpc::connect(&self.broker_address.to_string(), "broker", &credentials).await.unwrap();
        let up = proto::RelayUp {
            name: name.to_owned(),
            address: address.to_owned(),
            ..proto::RelayUp::default()
        };
        let hello = attach_up::Kind::RelayUp(up);
        let mut attachment = Attachment::open(RegistryClient::new(channel), hello).await.unwrap();
        match attachment.next().await {
            attach_down::Kind::RelayKey(key) => (attachment, key.key),
            other => panic!("{other:?}"),
        }
    }
}

/// A site's gateway that runs.
pub(crate) struct Gateway {
    pub credentials: Credentials,
    pub address: SocketAddr,
    pub site: String,
    config: GatewayConfig,
    running: Option<Running>,
    /// What stands for the gateway's process, if it can be killed.
    process: Option<Runtime>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end_process();
    }
}

impl Gateway {
    fn start(&mut self, listener: TcpListener) {
        let credentials = self.credentials.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let config = self.config.clone();
        let handle = self.process.as_ref().map_or_else(Handle::current, |process| process.handle().clone());
        let task = handle.spawn(async move {
            let upgrades = Arc::new(Upgrades::none());
            let shutdown = async { drop(stopped.await) };
            isthmus_gateway::run(listener, credentials, &config, upgrades, || {}, shutdown).await.unwrap();
        });
        self.running = Some(Running { stop: Some(stop), task });
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().stop().await;
    }

    pub(crate) async fn start_again(&mut self) {
        self.start(bind(self.address).await);
    }

    /// Starts the gateway again such that it can be killed.
    pub(crate) async fn restart_as_process(&mut self) {
        self.running.take().unwrap().stop().await;
        self.start_process().await;
    }

    /// Kills the gateway with all that it does, and starts it again.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.end_process();
        let _ = soon("its end", self.running.take().unwrap().task).await;
        self.start_process().await;
    }

    async fn start_process(&mut self) {
        self.process = Some(Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
        self.start(bind(self.address).await);
    }

    fn end_process(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }
}

/// An agent, as its gateway sees it.
pub(crate) struct Agent {
    pub credentials: Credentials,
    pub client: RegistryClient<Channel>,
    /// The identity of the gateway that the agent is connected to.
    gateway: Identity,
}

impl Agent {
    /// The agent with this identity, connected to a gateway of its site.
    pub(crate) async fn at(gateway: &Gateway, credentials: Credentials) -> Self {
        let via = gateway.address.to_string();
        let channel = grpc::connect(&via, &format!("gateway.{}", gateway.site), &credentials).await.unwrap();
        let gateway = gateway.credentials.identity().clone();
        Self { credentials, client: RegistryClient::new(channel), gateway }
    }

    /// The agent's announcement, signed for its gateway, that it listens at this address.
    pub(crate) fn announcement(&self, address: &str) -> attach_up::Kind {
        let attachment = u64::try_from(since_1970().as_micros()).unwrap();
        signed(&self.credentials, &self.gateway, attachment, address)
    }

    /// Attaches, and announces that it listens at this address.
    pub(crate) async fn attach(&self, address: &str) -> Attachment {
        let hello = self.announcement(address);
        soon("attaching", Attachment::open(self.client.clone(), hello)).await.unwrap()
    }

    /// Attaches and waits for its virtual address.
    pub(crate) async fn up(&self, address: &str) -> (Attachment, u32) {
        let mut attachment = self.attach(address).await;
        let address = attachment.welcome().await;
        (attachment, address)
    }

    /// All records of a kind, which fit a single page.
    pub(crate) async fn list(&self, records: Records) -> proto::ListReply {
        list(&self.client, records).await
    }

    pub(crate) async fn lookup(&self, name: &str) -> Result<proto::LookupReply, Status> {
        let request = proto::LookupRequest { name: name.to_owned(), ..Default::default() };
        let mut client = self.client.clone();
        soon("an answer", client.lookup(request)).await.map(tonic::Response::into_inner)
    }

    /// The address of a node, as a lookup has it.
    pub(crate) async fn address_of(&self, name: &str) -> String {
        self.lookup(name).await.unwrap().node.unwrap().address
    }

    /// What the broker knows of two nodes, and their plan.
    pub(crate) async fn explain(&self, from: &str, to: &str) -> Result<proto::ExplainReply, Status> {
        let request =
            proto::ExplainRequest { from: from.to_owned(), to: to.to_owned(), without_broker: false };
        let mut client = self.client.clone();
        soon("an answer", client.explain(request)).await.map(tonic::Response::into_inner)
    }

    /// The dials of the plan to a node, and whether it is encrypted.
    pub(crate) async fn plan(&self, name: &str) -> (Vec<proto::Dial>, bool) {
        let plan = self.lookup(name).await.unwrap().plan.unwrap();
        (plan.steps.iter().map(proto::PlanStep::dial).collect(), plan.encrypted)
    }
}

/// An announcement as an agent signs it for a gateway, with what a gateway adds.
pub(crate) fn signed(
    agent: &Credentials,
    gateway: &Identity,
    attachment: u64,
    address: &str,
) -> attach_up::Kind {
    let contact = sign_contact(agent, gateway, (attachment, [0; 16]), vec![address.to_owned()]).unwrap();
    let seen = proto::Seen { way_out: proto::WayOut::Yes.into(), ..proto::Seen::default() };
    attach_up::Kind::NodeUp(proto::NodeUp {
        node: agent.identity().name().to_string(),
        owner: agent.identity().owner().unwrap().to_string(),
        address: address.to_owned(),
        attachment,
        seen: Some(seen),
        signed: Some(contact),
        ..proto::NodeUp::default()
    })
}

/// All records of a kind, which fit a single page.
pub(crate) async fn list(client: &RegistryClient<Channel>, records: Records) -> proto::ListReply {
    let request = proto::ListRequest { records: Some(records), ..proto::ListRequest::default() };
    soon("a page", client.clone().list(request)).await.unwrap().into_inner()
}

/// An attachment, as its lower end sees it.
pub(crate) struct Attachment {
    up_tx: mpsc::Sender<proto::AttachUp>,
    down: Streaming<proto::AttachDown>,
}

impl Attachment {
    pub(crate) async fn open(
        mut client: RegistryClient<Channel>,
        hello: attach_up::Kind,
    ) -> Result<Self, Status> {
        let (up_tx, up_rx) = mpsc::channel(16);
        up_tx.send(proto::AttachUp { kind: Some(hello) }).await.unwrap();
        let down = client.attach(ReceiverStream::new(up_rx)).await?.into_inner();
        Ok(Self { up_tx, down })
    }

    pub(crate) async fn send(&self, kind: attach_up::Kind) {
        self.up_tx.send(proto::AttachUp { kind: Some(kind) }).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> attach_down::Kind {
        loop {
            let message = soon("a message", self.down.message()).await.unwrap().unwrap().kind.unwrap();
            // These messages arrive whenever the broker or a relay attaches or detaches.
            use attach_down::Kind::{CutOff, Directory, SiteGateways};
            if !matches!(message, CutOff(_) | Directory(_) | SiteGateways(_)) {
                return message;
            }
        }
    }

    /// Waits until the service above has ended the attachment.
    pub(crate) async fn end(&mut self) {
        while let Ok(Some(_)) = soon("the end", self.down.message()).await {}
    }

    pub(crate) async fn welcome(&mut self) -> u32 {
        match self.next().await {
            attach_down::Kind::Welcome(welcome) => welcome.virtual_address,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn changed(&mut self) -> u32 {
        match self.next().await {
            attach_down::Kind::ContactChanged(changed) => changed.virtual_address,
            other => panic!("{other:?}"),
        }
    }
}

/// Binds an address that was bound before. Its former connections may take a
/// moment to end.
async fn bind(address: SocketAddr) -> TcpListener {
    soon("binding", async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// A virtual address as it is sent.
pub(crate) fn address(site: u8, node: u8) -> u32 {
    u32::from(std::net::Ipv4Addr::new(240, 64, site, node))
}
