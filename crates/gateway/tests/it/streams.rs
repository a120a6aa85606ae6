//! Streams over a gateway, with a real broker: which it splices, and which it
//! refuses.

use std::net::SocketAddr;

use isthmus_gateway::GatewayConfig;
use isthmus_wire::proto::{
    self, Dial, Route, attach_down, dial_request, rendezvous_reply, rendezvous_request,
};
use isthmus_wire::ticket::TICKET_LEN;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tonic::Code;

use crate::grid::{self, Agent, Attachment, Gateway, Grid, soon};

/// Two sites, the second with a port outside.
struct Two {
    _grid: Grid,
    near: Agent,
    near_address: u32,
    _near_attached: Attachment,
    beta: Gateway,
    far_address: u32,
    far_attached: Attachment,
    _alpha: Gateway,
}

/// Both tickets of a stream, and the gateway's outside address.
struct Tickets {
    outside: String,
    initiator: Vec<u8>,
    acceptor: Vec<u8>,
}

impl Two {
    async fn start() -> Self {
        let grid = Grid::start().await;
        let config =
            GatewayConfig { outside: Some("127.0.0.1:0".parse().unwrap()), ..GatewayConfig::default() };
        let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway_with("beta", config).await);
        let near = grid.agent(&alpha, "n1").await;
        let (near_attached, near_address) = near.up("10.0.0.1:7730").await;
        let far = grid.agent(&beta, "n1").await;
        let (far_attached, far_address) = far.up("10.0.0.1:7730").await;
        Self {
            _grid: grid,
            near,
            near_address,
            _near_attached: near_attached,
            beta,
            far_address,
            far_attached,
            _alpha: alpha,
        }
    }

    async fn ask(
        &self,
        route: Route,
        dial: Dial,
        destination: u32,
    ) -> Result<proto::RendezvousReply, tonic::Status> {
        let over = rendezvous_request::OverGateways {
            route: route.into(),
            dial: dial.into(),
            avoid: vec![],
            job: vec![],
        };
        let request = proto::RendezvousRequest {
            destination,
            initiator: self.near_address,
            way: Some(rendezvous_request::Way::OverGateways(over)),
            ..Default::default()
        };
        let mut client = self.near.client.clone();
        soon("an answer", client.rendezvous(request)).await.map(tonic::Response::into_inner)
    }

    async fn tickets(&mut self) -> Tickets {
        let reply = self.ask(Route::OneGateway, Dial::Direct, self.far_address).await.unwrap();
        let Some(rendezvous_reply::Way::Gateway(near)) = reply.way else { panic!("{reply:?}") };
        let attach_down::Kind::Dial(dial) = self.far_attached.next().await else {
            panic!("not asked to dial")
        };
        let Some(dial_request::Way::OwnGateway(far)) = dial.way else { panic!("{dial:?}") };
        assert!(far.leg.is_none());
        Tickets { outside: near.address, initiator: near.ticket, acceptor: far.ticket }
    }

    fn inside(&self) -> String {
        self.beta.address.to_string()
    }
}

/// Connects from an address and sends some bytes.
async fn connect_from(from: &str, to: &str, first: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let mut stream = soon("a connection", socket.connect(to.parse().unwrap())).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

async fn connect(to: &str, first: &[u8]) -> TcpStream {
    connect_from("127.0.0.1", to, first).await
}

/// Checks that bytes get from `near` to `far`.
async fn assert_spliced(near: &mut TcpStream, far: &mut TcpStream) {
    near.write_all(b"there").await.unwrap();
    let mut got = [0; 5];
    soon("bytes", far.read_exact(&mut got)).await.unwrap();
    assert_eq!(&got, b"there");
}

/// Checks that a connection ends without a byte.
async fn assert_refused(mut stream: TcpStream, what: &str) {
    let mut got = Vec::new();
    let _ = soon(what, stream.read_to_end(&mut got)).await;
    assert!(got.is_empty(), "{what}: {got:?}");
}

#[tokio::test]
async fn a_node_is_spliced_with_a_peer_outside_once() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let mut near = connect(&tickets.outside, &tickets.initiator).await;
    let mut far = connect(&two.inside(), &tickets.acceptor).await;
    assert_spliced(&mut near, &mut far).await;
    assert_spliced(&mut far, &mut near).await;
    for (to, ticket, what) in [
        (tickets.outside.clone(), &tickets.initiator, "the initiator's ticket again"),
        (two.inside(), &tickets.acceptor, "the acceptor's ticket again"),
        (two.inside(), &tickets.initiator, "the initiator's ticket inside"),
        (tickets.outside.clone(), &tickets.acceptor, "the acceptor's ticket outside"),
    ] {
        assert_refused(connect(&to, ticket).await, what).await;
    }
    // The spliced connection still works.
    assert_spliced(&mut near, &mut far).await;
}

#[tokio::test]
async fn a_ticket_is_for_one_node() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let thief = connect_from("127.0.0.2", &two.inside(), &tickets.acceptor).await;
    assert_refused(thief, "another node with the ticket").await;
    let mut near = connect(&tickets.outside, &tickets.initiator).await;
    let mut far = connect(&two.inside(), &tickets.acceptor).await;
    assert_spliced(&mut near, &mut far).await;
}

#[tokio::test]
async fn two_peers_from_outside_are_not_spliced() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let near = connect(&tickets.outside, &tickets.initiator).await;
    assert_refused(connect(&tickets.outside, &tickets.acceptor).await, "the other side, from outside").await;
    assert_refused(near, "the first").await;
}

#[tokio::test]
async fn garbage_and_forged_tickets_are_refused() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let mut changed = tickets.initiator.clone();
    changed[40] ^= 1;
    let forged = isthmus_service::mac::Secret::random().seal_ticket(
        &isthmus_wire::ticket::Ticket::decode(tickets.initiator.as_slice().try_into().unwrap()).unwrap().0,
    );
    for (first, what) in
        [(changed.as_slice(), "a changed ticket"), (&forged, "another key"), (&[b'I'; TICKET_LEN], "garbage")]
    {
        assert_refused(connect(&tickets.outside, first).await, what).await;
        assert_refused(connect(&two.inside(), first).await, what).await;
    }
    // A valid ticket is accepted afterwards.
    let mut near = connect(&tickets.outside, &tickets.initiator).await;
    let mut far = connect(&two.inside(), &tickets.acceptor).await;
    assert_spliced(&mut near, &mut far).await;
}

/// An agent names a node, not an address. The broker has the node's address and the
/// plan.
#[tokio::test]
async fn a_gateway_dials_only_what_is_in_the_plan() {
    let two = Two::start().await;
    for (route, dial, destination, code, want) in [
        (
            Route::OneGateway,
            Dial::Direct,
            grid::address(9, 9),
            Code::NotFound,
            "no node 240.64.9.9 in the grid",
        ),
        (Route::OneGateway, Dial::Direct, 0x0a00_0001, Code::NotFound, "no node 10.0.0.1 in the grid"),
        (Route::GatewayOut, Dial::Direct, two.far_address, Code::Unavailable, "has a way out itself"),
        (Route::TwoGateway, Dial::Direct, two.far_address, Code::Unavailable, "has a way out itself"),
    ] {
        let status = two.ask(route, dial, destination).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(want), "{status}");
    }
}
