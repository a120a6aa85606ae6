//! Trunks between the gateways of two sites, with a real broker: which nodes they join, and
//! what they refuse.

mod fair;
mod gone;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_broker::PairConfig;
use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::{Bbr, Notice, Stream, Trunk, config};
use isthmus_gateway::GatewayConfig;
use isthmus_identity::secured::Secured;
use isthmus_identity::{Credentials, Role};
use isthmus_reach::{Expected, secure};
use isthmus_rpc::{enrol, grpc};
use isthmus_service::mac;
use isthmus_service::mac::Secret;
use isthmus_splice::TicketKey;
use isthmus_splice::admission::{self, Intake, Limits};
use isthmus_trunk::{Config, Incarnation, Role as End, TrunkId};
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::own_gateway_client::OwnGatewayClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{
    self, Dial, Route, attach_down, attach_up, dial_request, rendezvous_reply, rendezvous_request,
};
use isthmus_wire::site_stream::{SITE_STREAM_LEN, SiteStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tonic::Code;
use tonic::transport::Channel;

use crate::grid::{self, Agent, Attachment, Gateway, Grid, soon};
use crate::promised::promised;

const PROTOCOL: &[u8] = b"isthmus-site-trunk/1";

/// A node of each of two sites, and a relay.
struct Two {
    _grid: Grid,
    alpha: Gateway,
    beta: Gateway,
    near: Agent,
    near_address: u32,
    near_attached: Attachment,
    far_address: u32,
    far_attached: Attachment,
    _relay: Attachment,
    to_relay: Cable,
}

/// The way to the relay, which can be cut.
struct Cable {
    address: SocketAddr,
    relay: SocketAddr,
    carries: JoinHandle<()>,
}

impl Cable {
    async fn to(relay: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, relay, carries: carry(listener, relay) }
    }

    async fn cut(&mut self) {
        self.carries.abort();
        let _ = (&mut self.carries).await;
    }

    async fn heal(&mut self) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        self.carries = carry(socket.listen(64).unwrap(), self.relay);
    }
}

fn carry(listener: TcpListener, to: SocketAddr) -> JoinHandle<()> {
    tokio::spawn(async move {
        // The connections end with this task.
        let mut connections = JoinSet::new();
        while let Ok((mut from, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut to = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    })
}

fn plane() -> Arc<Plane> {
    Arc::new(Plane::start(NonZeroUsize::MIN).unwrap().0)
}

impl Two {
    /// Starts two sites. Alpha's gateway keeps trunks, and beta's does with `beta_too`.
    async fn start(beta_too: bool) -> Self {
        Self::start_with(beta_too, None).await
    }

    /// Starts two sites whose trunks take this many streams.
    async fn start_with(beta_too: bool, streams_per_trunk: Option<u32>) -> Self {
        let grid = Grid::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to_relay = Cable::to(listener.local_addr().unwrap()).await;
        let (relay, key) = grid.relay_at("hub", &to_relay.address.to_string()).await;
        let (_, keys) = watch::channel(Secret::from_slice(&key).map(TicketKey::from));
        let intake = Intake::open(listener);
        let relaying = admission::serve(
            intake,
            Limits::default(),
            keys,
            plane(),
            Arc::default(),
            std::future::pending(),
        );
        tokio::spawn(relaying);
        let with = |site_trunk| GatewayConfig { site_trunk, streams_per_trunk, ..GatewayConfig::default() };
        let (alpha, beta) =
            (grid.gateway_with("alpha", with(true)).await, grid.gateway_with("beta", with(beta_too)).await);
        let near = grid.agent(&alpha, "n1").await;
        let (near_attached, near_address) = near.up("10.0.0.1:7730").await;
        let far = grid.agent(&beta, "n1").await;
        let (far_attached, far_address) = far.up("10.0.0.1:7730").await;
        Self {
            _grid: grid,
            alpha,
            beta,
            near,
            near_address,
            near_attached,
            far_address,
            far_attached,
            _relay: relay,
            to_relay,
        }
    }

    /// The near node attaches to its gateway again.
    async fn near_again(&mut self) {
        self.near_attached.end().await;
        (self.near_attached, self.near_address) = self.near.up("10.0.0.1:7730").await;
    }

    async fn ask(&self) -> Result<proto::AtOwnGateway, tonic::Status> {
        ask(self.near.client.clone(), self.near_address, self.far_address).await
    }

    /// Waits for the order to the far node; returns its ticket.
    async fn ordered(&mut self) -> Vec<u8> {
        let order = next_order(&mut self.far_attached).await;
        assert_eq!((order.node.as_str(), order.initiator), ("n1", self.near_address));
        match order.way {
            Some(dial_request::Way::SiteTrunk(at)) => at.ticket,
            other => panic!("{other:?}"),
        }
    }
}

/// The next order to a node to dial.
async fn next_order(attached: &mut Attachment) -> proto::DialRequest {
    loop {
        match attached.next().await {
            attach_down::Kind::Dial(order) => return order,
            // A gateway has found how it is seen from outside.
            attach_down::Kind::ContactChanged(proto::ContactChanged { virtual_address: 0 }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The job that connections are for.
const JOB: [u8; 16] = [7; 16];

/// A node asks its gateway for a stream.
async fn answer(
    mut client: RegistryClient<Channel>,
    initiator: u32,
    destination: u32,
) -> Result<proto::RendezvousReply, tonic::Status> {
    let over = rendezvous_request::OverGateways {
        route: Route::TwoGateway.into(),
        dial: Dial::Trunk.into(),
        avoid: vec![],
        job: JOB.to_vec(),
    };
    let way = Some(rendezvous_request::Way::OverGateways(over));
    let request = proto::RendezvousRequest { destination, initiator, way, ..Default::default() };
    Ok(soon("an answer", client.rendezvous(request)).await?.into_inner())
}

/// Has a node ask its gateway for a stream to a node of beta.
async fn ask(
    client: RegistryClient<Channel>,
    initiator: u32,
    destination: u32,
) -> Result<proto::AtOwnGateway, tonic::Status> {
    let reply = answer(client, initiator, destination).await?;
    assert_eq!(reply.gateways, ["gateway.beta"]);
    match reply.way {
        Some(rendezvous_reply::Way::OwnGateway(at)) => Ok(at),
        other => panic!("{other:?}"),
    }
}

async fn connect_from(from: &str, to: &Gateway, ticket: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from.parse::<std::net::IpAddr>().unwrap(), 0).into()).unwrap();
    let mut stream = soon("a connection", socket.connect(to.address)).await.unwrap();
    stream.write_all(ticket).await.unwrap();
    stream
}

async fn connect(to: &Gateway, ticket: &[u8]) -> TcpStream {
    connect_from("127.0.0.1", to, ticket).await
}

async fn assert_refused(mut stream: TcpStream, what: &str) {
    let mut got = Vec::new();
    let _ = soon(what, stream.read_to_end(&mut got)).await;
    assert!(got.is_empty(), "{what}: {got:?}");
}

#[tokio::test]
async fn nodes_are_joined_over_a_trunk_that_stands() {
    let mut two = Two::start(true).await;
    let mut times = Vec::new();
    for round in 0..20 {
        let begun = Instant::now();
        let near_ticket = two.ask().await.unwrap().ticket;
        let mut near = connect(&two.alpha, &near_ticket).await;
        near.write_all(b"preamble").await.unwrap();
        let far_ticket = two.ordered().await;
        if round == 0 {
            let stranger = connect_from("127.0.0.2", &two.beta, &far_ticket).await;
            assert_refused(stranger, "another node's ticket").await;
        }
        let mut far = connect(&two.beta, &far_ticket).await;
        let mut got = [0; 8];
        soon("the preamble", far.read_exact(&mut got)).await.unwrap();
        assert_eq!(&got, b"preamble");
        far.write_all(b"answer").await.unwrap();
        let mut got = [0; 6];
        soon("the answer", near.read_exact(&mut got)).await.unwrap();
        assert_eq!(&got, b"answer");
        times.push(begun.elapsed());
        if round == 0 {
            for (gateway, ticket) in [(&two.alpha, near_ticket), (&two.beta, far_ticket)] {
                assert_refused(connect(gateway, &ticket).await, "a ticket again").await;
            }
        }
        drop(near);
        assert_refused(far, "what the other end has closed").await;
    }
    times[1..].sort_unstable();
    println!("set-up, the first: {:?}; over the trunk that stands, the median: {:?}", times[0], times[10]);
}

#[tokio::test]
async fn a_trunk_that_is_full_gets_another_one_beside_it() {
    let mut two = Two::start_with(true, Some(2)).await;
    let credentials = two.near.credentials.clone();
    let via = two.alpha.address.to_string();
    let channel = grpc::connect(&via, "gateway.alpha", &credentials).await.unwrap();
    let mut own_gateway = OwnGatewayClient::new(channel);
    let mut pairs = Vec::new();
    // As many trunks as one gateway may have, with two streams each.
    for index in 0..16_u8 {
        let near_ticket = two.ask().await.unwrap().ticket;
        let mut near = connect(&two.alpha, &near_ticket).await;
        let far_ticket = two.ordered().await;
        let far = connect(&two.beta, &far_ticket).await;
        near.write_all(&[index]).await.unwrap();
        pairs.push((near, far));
    }
    for (index, (_, far)) in pairs.iter_mut().enumerate() {
        assert_eq!(usize::from(soon("a byte", far.read_u8()).await.unwrap()), index);
    }
    let shown = own_gateway.trunks(proto::TrunksRequest {}).await.unwrap().into_inner().trunks;
    let streams: Vec<u32> = shown.iter().map(|trunk| trunk.streams).collect();
    assert_eq!(streams, [2; 8], "{shown:#?}");
    let refused = soon("a refusal", two.ask()).await.unwrap_err();
    assert!(refused.message().contains("all streams of the 8 trunks"), "{refused:?}");
    // Streams that end make room for a stream that waits.
    let ending = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        pairs.clear();
    };
    let (room, ()) = tokio::join!(two.ask(), ending);
    room.unwrap();

    let ask = || proto::CarriedRequest { job: JOB.to_vec() };
    let carried = own_gateway.carried(ask()).await.unwrap().into_inner().carried;
    let want = proto::Carried { acceptor: two.far_address, bytes_sent: 16, bytes_received: 0 };
    assert_eq!(carried, [want]);
    let carried = own_gateway.carried(ask()).await.unwrap().into_inner().carried;
    assert_eq!(carried, [], "it has told all that there was");
}

#[tokio::test]
async fn without_both_sites_there_is_none() {
    let two = Two::start(false).await;
    let refused = two.ask().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("not in the plan"), "{refused:?}");
}

async fn joined(grid: &Grid, role: Role, site: &str, name: Option<&str>, via: Option<&str>) -> Credentials {
    let token = grid.token(role, Some(site), name);
    soon("joining", enrol::join(&token, None, via)).await.unwrap()
}

/// A carrier to beta's port outside, before its HELLO.
async fn carrier_of(credentials: &Credentials, to: &str) -> Result<Secured, String> {
    let tcp = TcpStream::connect(to).await.unwrap();
    let expected = Expected::gateway(&"gateway.beta".parse().unwrap());
    let tls = credentials.client_config(&[PROTOCOL]).unwrap();
    secure(tcp, &expected, &tls, grid::SOON.into()).await.map_err(|error| error.to_string())
}

/// A gateway that has joined and attaches to the broker, with a key of which the test has a
/// copy.
async fn attached(
    grid: &Grid,
    site: &str,
    name: Option<&str>,
    site_trunk: bool,
) -> (Credentials, Attachment) {
    let credentials = joined(grid, Role::Gateway, site, name, None).await;
    let hello = proto::GatewayUp { site: site.to_owned(), site_trunk, ..proto::GatewayUp::default() };
    let registry = RegistryClient::new(to_broker(grid, &credentials).await);
    let attached = Attachment::open(registry, attach_up::Kind::GatewayUp(hello)).await.unwrap();
    (credentials, attached)
}

async fn to_broker(grid: &Grid, credentials: &Credentials) -> Channel {
    grpc::connect(&grid.broker_address.to_string(), "broker", credentials).await.unwrap()
}

/// A stream of a trunk that a party of another site makes with the port outside of beta's gateway,
/// which may refuse.
async fn stream_of(plane: &Plane, credentials: &Credentials, to: &str) -> Result<(Trunk, Stream), String> {
    stream_since(plane, credentials, to, None).await
}

/// A stream of a trunk that a party of another site makes with beta's gateway. The party tells its
/// start.
async fn stream_since(
    plane: &Plane,
    credentials: &Credentials,
    to: &str,
    incarnation: Option<Incarnation>,
) -> Result<(Trunk, Stream), String> {
    let tls = carrier_of(credentials, to).await?;
    let (trunk, mut notices) = plane
        .trunk(Config { incarnation, ..config(End::Initiator, TrunkId(mac::random()), &[], Bbr::Auto) })
        .unwrap();
    trunk.join(tls.into_parts().0).await?;
    let ended = async {
        while let Some(notice) = notices.recv().await {
            if let Notice::CarrierEnded(_, why) | Notice::Closed(why) = notice {
                return why;
            }
        }
        "no notice".to_owned()
    };
    let opened = async {
        let mut ended = pin!(ended);
        tokio::select! {
            // A trunk that has ended says why in its notices alone.
            opened = trunk.open() => match opened {
                Ok(stream) => Ok(stream),
                Err(_) => Err(ended.await),
            },
            why = &mut ended => Err(why),
        }
    };
    let stream = soon("a stream, or its carrier's end", opened).await?;
    Ok((trunk, stream))
}

/// Only alpha's gateway may dial the trunk, as beta's has the port outside.
#[tokio::test]
async fn a_site_that_may_not_dial_the_trunk_takes_streams_of_it() {
    let outside = free_port().await;
    let one_way = PairConfig {
        sites: ["alpha".to_owned(), "beta".to_owned()],
        only: Some(vec!["direct".to_owned(), "trunk".to_owned()]),
        never: vec![],
        trunk: None,
    };
    let grid = Grid::start_under(one_way).await;
    let config = |outside| GatewayConfig { site_trunk: true, outside, ..GatewayConfig::default() };
    let alpha = grid.gateway_with("alpha", config(None)).await;
    let beta = grid.gateway_with("beta", config(Some(outside))).await;
    let near = grid.agent(&alpha, "n1").await;
    let (_near_attached, near_address) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (mut far_attached, far_address) = far.up("10.0.0.1:7730").await;
    let request = proto::LookupRequest { virtual_address: near_address, ..Default::default() };
    let plan = soon("a plan", far.client.clone().lookup(request)).await.unwrap().into_inner().plan.unwrap();
    let site_trunk = plan.ways.iter().any(|way| way.transport() == proto::Transport::SiteTrunk);
    assert!(plan.takes_site_trunk && !site_trunk, "{plan:#?}");
    let refused = ask(far.client.clone(), far_address, near_address).await.unwrap_err();
    assert!(refused.message().contains("not in the plan"), "{refused:?}");
    let plane = plane();
    let (_trunk, stream) = stream_of(&plane, &alpha.credentials, &outside.to_string()).await.unwrap();
    stream.send(&whom(far_address, near_address));
    let order = next_order(&mut far_attached).await;
    assert!(matches!(order.way, Some(dial_request::Way::SiteTrunk(_))), "{order:?}");
}

async fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// A gateway at beta with a node and a port outside, and parties of two other sites.
struct Three {
    grid: Grid,
    beta: Gateway,
    alpha: Gateway,
    near_address: u32,
    _near_attached: Attachment,
    far: Agent,
    far_address: u32,
    far_attached: Attachment,
    gamma: Credentials,
    _gammas: Attachment,
    outside: String,
}

impl Three {
    async fn start() -> Self {
        let grid = Grid::start().await;
        let outside = free_port().await;
        let config = |outside| GatewayConfig { site_trunk: true, outside, ..GatewayConfig::default() };
        let alpha = grid.gateway_with("alpha", config(None)).await;
        let beta = grid.gateway_with("beta", config(Some(outside))).await;
        let near = grid.agent(&alpha, "n1").await;
        let (near_attached, near_address) = near.up("10.0.0.1:7730").await;
        let far = grid.agent(&beta, "n1").await;
        let (far_attached, far_address) = far.up("10.0.0.1:7730").await;
        let (gamma, gammas) = attached(&grid, "gamma", None, true).await;
        Self {
            grid,
            beta,
            alpha,
            near_address,
            _near_attached: near_attached,
            far,
            far_address,
            far_attached,
            gamma,
            _gammas: gammas,
            outside: outside.to_string(),
        }
    }
}

/// A stream's first message.
fn whom(destination: u32, initiator: u32) -> [u8; SITE_STREAM_LEN] {
    let address = |ip: u32| VirtualAddress::new(ip.into()).unwrap();
    SiteStream { destination: address(destination), initiator: address(initiator) }.encode()
}

#[tokio::test]
async fn a_captured_gateway_speaks_for_its_own_site_alone() {
    let grid = Grid::start().await;
    let outside = free_port().await;
    let config = |outside| GatewayConfig { site_trunk: true, outside, ..GatewayConfig::default() };
    let alpha = grid.gateway_with("alpha", config(None)).await;
    let beta = grid.gateway_with("beta", config(Some(outside))).await;
    let near = grid.agent(&alpha, "n1").await;
    let (_near_attached, near_address) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (mut far_attached, far_address) = far.up("10.0.0.1:7730").await;
    let plane = plane();
    // Gamma's gateway names a node of alpha as the initiator, and other nonsense.
    let (gamma, _gammas) = attached(&grid, "gamma", None, true).await;
    for (message, why) in [
        (whom(far_address, near_address), "another site's node"),
        (whom(far_address, far_address), "a node of the site itself"),
        (whom(near_address, near_address), "a destination elsewhere"),
        ([0; 16], "no layout"),
    ] {
        let (_trunk, mut stream) = stream_of(&plane, &gamma, &outside.to_string()).await.unwrap();
        stream.send(&message);
        let ended = soon(why, stream.receive::<1>()).await;
        assert!(ended.is_err(), "{why}");
    }
    // Agents have no trunks with gateways, and gateways of one site none with each other.
    let agent = joined(&grid, Role::Agent, "alpha", Some("n2"), Some(&alpha.address.to_string())).await;
    let sibling = joined(&grid, Role::Gateway, "beta", Some("other"), None).await;
    for (party, why) in [(agent, "an agent"), (sibling, "a gateway of the site")] {
        assert!(stream_of(&plane, &party, &outside.to_string()).await.is_err(), "{why}");
    }
    // Alpha's own gateway is heard.
    let (_trunk, stream) = stream_of(&plane, &alpha.credentials, &outside.to_string()).await.unwrap();
    stream.send(&whom(far_address, near_address));
    let order = next_order(&mut far_attached).await;
    assert!(matches!(order.way, Some(dial_request::Way::SiteTrunk(_))), "{order:?}");
}

/// The gateways of a site that keeps no trunks carry nothing for it, so they may not make trunks
/// with others.
#[tokio::test]
async fn a_site_that_keeps_no_trunks_makes_none() {
    let three = Three::start().await;
    let (delta, _deltas) = attached(&three.grid, "delta", None, false).await;
    let plane = plane();
    let refused = stream_of(&plane, &delta, &three.outside).await.map(drop).unwrap_err();
    let why =
        "takes no trunk of gateway gateway.delta: the gateways of site delta keep no trunks with other sites";
    assert!(refused.contains(why), "{refused}");
    stream_of(&plane, &three.alpha.credentials, &three.outside).await.unwrap();
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    #[tokio::test]
    async fn connections_wait_for_a_trunk_through_a_short_cut_and_take_another_way_in_a_long_one() {
        let mut two = Two::start(true).await;
        two.ask().await.unwrap();
        two.to_relay.cut().await;
        let short = Duration::from_secs(2);
        let healing = async {
            tokio::time::sleep(short).await;
            two.to_relay.heal().await;
        };
        let (client, from, to) = (two.near.client.clone(), two.near_address, two.far_address);
        let waiting = async {
            loop {
                let begun = Instant::now();
                ask(client.clone(), from, to).await.unwrap();
                // The gateway may not have noticed the cut yet.
                if begun.elapsed() > short / 4 {
                    return;
                }
            }
        };
        tokio::join!(soon("an answer after the cut", waiting), healing);
        two.to_relay.cut().await;
        let cut = Instant::now();
        let refusing = async {
            loop {
                // The gateway may not have noticed the cut yet.
                if let Err(refused) = two.ask().await {
                    return refused;
                }
            }
        };
        let refused = soon("a refusal", refusing).await;
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("has been cut for 1"), "{refused:?}");
        assert!(cut.elapsed() >= Duration::from_secs(9), "{:?}", cut.elapsed());
        // The next caller is told at once.
        let begun = Instant::now();
        two.ask().await.unwrap_err();
        assert!(begun.elapsed() < promised(Duration::from_secs(2)), "{:?}", begun.elapsed());
        two.to_relay.heal().await;
        let healed = async {
            while two.ask().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        soon("the trunk is healed", healed).await;
    }
}
