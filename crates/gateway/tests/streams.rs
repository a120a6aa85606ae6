//! Streams through a gateway, with a real broker: whom it joins, and whom it
//! sends away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod grid;

use std::net::SocketAddr;

use grid::{Agent, Attachment, Gateway, Grid, soon};
use isthmus_gateway::GatewayConfig;
use isthmus_wire::proto::{
    self, Dial, Route, attach_down, dial_request, rendezvous_reply, rendezvous_request,
};
use isthmus_wire::ticket::TICKET_LEN;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tonic::Code;

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

/// Both tickets of a stream, and where the gateway waits outside.
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
        let over = rendezvous_request::OverGateways { route: route.into(), dial: dial.into(), avoid: vec![] };
        let request = proto::RendezvousRequest {
            destination,
            initiator: self.near_address,
            way: Some(rendezvous_request::Way::OverGateways(over)),
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

/// Comes from an address and says something first.
async fn come_from(from: &str, to: &str, first: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let mut stream = soon("a connection", socket.connect(to.parse().unwrap())).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

async fn come(to: &str, first: &[u8]) -> TcpStream {
    come_from("127.0.0.1", to, first).await
}

/// Whether bytes get from one to the other.
async fn joined(near: &mut TcpStream, far: &mut TcpStream) {
    near.write_all(b"there").await.unwrap();
    let mut got = [0; 5];
    soon("bytes", far.read_exact(&mut got)).await.unwrap();
    assert_eq!(&got, b"there");
}

/// Closed or reset without a byte.
async fn sent_away(mut stream: TcpStream, what: &str) {
    let mut got = Vec::new();
    let _ = soon(what, stream.read_to_end(&mut got)).await;
    assert!(got.is_empty(), "{what}: {got:?}");
}

#[tokio::test]
async fn a_node_is_joined_with_who_comes_from_outside_once() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let mut near = come(&tickets.outside, &tickets.initiator).await;
    let mut far = come(&two.inside(), &tickets.acceptor).await;
    joined(&mut near, &mut far).await;
    joined(&mut far, &mut near).await;
    for (to, ticket, what) in [
        (tickets.outside.clone(), &tickets.initiator, "the initiator's ticket again"),
        (two.inside(), &tickets.acceptor, "the acceptor's ticket again"),
        (two.inside(), &tickets.initiator, "the initiator's ticket inside"),
        (tickets.outside.clone(), &tickets.acceptor, "the acceptor's ticket outside"),
    ] {
        sent_away(come(&to, ticket).await, what).await;
    }
    // What stands isn't touched by any of it.
    joined(&mut near, &mut far).await;
}

#[tokio::test]
async fn a_ticket_is_for_one_node() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let thief = come_from("127.0.0.2", &two.inside(), &tickets.acceptor).await;
    sent_away(thief, "another node with the ticket").await;
    let mut near = come(&tickets.outside, &tickets.initiator).await;
    let mut far = come(&two.inside(), &tickets.acceptor).await;
    joined(&mut near, &mut far).await;
}

#[tokio::test]
async fn two_strangers_are_not_joined() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let near = come(&tickets.outside, &tickets.initiator).await;
    sent_away(come(&tickets.outside, &tickets.acceptor).await, "the other side, from outside").await;
    sent_away(near, "the first").await;
}

#[tokio::test]
async fn garbage_and_tickets_made_up_are_sent_away() {
    let mut two = Two::start().await;
    let tickets = two.tickets().await;
    let mut changed = tickets.initiator.clone();
    changed[40] ^= 1;
    let forged = isthmus_net::mac::Secret::random().seal_ticket(
        &isthmus_wire::ticket::Ticket::decode(tickets.initiator.as_slice().try_into().unwrap()).unwrap().0,
    );
    for (first, what) in
        [(changed.as_slice(), "a changed ticket"), (&forged, "another key"), (&[b'I'; TICKET_LEN], "garbage")]
    {
        sent_away(come(&tickets.outside, first).await, what).await;
        sent_away(come(&two.inside(), first).await, what).await;
    }
    // A good one is good afterwards.
    let mut near = come(&tickets.outside, &tickets.initiator).await;
    let mut far = come(&two.inside(), &tickets.acceptor).await;
    joined(&mut near, &mut far).await;
}

/// An agent can't name an address: it names a node, and the broker knows where
/// that is and what is in the plan.
#[tokio::test]
async fn a_gateway_dials_for_nobody_who_is_not_in_the_plan() {
    let two = Two::start().await;
    for (route, dial, destination, code, want) in [
        (Route::OneGateway, Dial::Direct, grid::address(9, 9), Code::NotFound, "no node 240.64.9.9 is known"),
        (Route::OneGateway, Dial::Direct, 0x0a00_0001, Code::NotFound, "no node 10.0.0.1 is known"),
        (Route::GatewayOut, Dial::Direct, two.far_address, Code::Unavailable, "has a way out itself"),
        (Route::TwoGateway, Dial::Direct, two.far_address, Code::Unavailable, "has a way out itself"),
    ] {
        let status = two.ask(route, dial, destination).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(want), "{status}");
    }
}
