//! The dial `traverse` (Traversing TCP): the initiator connects as ever, and the
//! segment that begins the connection, which the acceptor's firewall drops, is
//! carried to the acceptor's agent by broker and gateways and put into its host's
//! IP stack. The answer leaves through the firewall, and the two kernels talk on
//! as on any connection; at the acceptor it comes to the agent's listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use isthmus_net::callback;
use isthmus_net::dial::{SocketOptions, TraverseSocket, resolve};
use isthmus_net::{Deadline, Late};
use isthmus_net::{grpc, mac};
use isthmus_plan::Mapping;
use isthmus_raw::Syn;
use isthmus_wire::proto::{self, attach_up};
use tokio::net::TcpStream;
use tracing::debug;

use crate::attempt::{Attempt, StepError};
use crate::dialer::Dialer;
use crate::outside::REFLECTION_DEADLINE;

/// How long the connection may take to stand: two lost SYNs are repeated by then.
const CONNECT: Duration = Duration::from_secs(4);

impl Attempt<'_> {
    pub(super) async fn traverse(&self) -> Result<TcpStream, StepError> {
        let address = &self.found.node.address;
        let deadline = self.deadline.part(CONNECT);
        let late = |Late(limit)| {
            format!("the first segment was carried to {address}, but no answer came within {limit:?}")
        };
        let begun = begin(self.dialer, self.found.destination, address, self.options, deadline);
        deadline.bound(begun).await.unwrap_or_else(|limit| Err(late(limit))).map_err(StepError::Next)
    }
}

async fn begin(
    dialer: &Dialer,
    destination: Ipv4Addr,
    address: &str,
    options: SocketOptions,
    deadline: Deadline,
) -> Result<TcpStream, String> {
    let helper = dialer.raw.as_ref().ok_or("this agent has no right to raw packets")?;
    let SocketAddr::V4(to) = resolve(address).await.map_err(|error| error.to_string())? else {
        return Err(format!("{address} is no IPv4 address"));
    };
    let reflector = match dialer.outside.mapping() {
        Mapping::Untranslated => None,
        _ => Some(dialer.outside.reflector().ok_or("no relay can be asked")?),
    };
    let socket = TraverseSocket::open(reflector.as_deref(), options, REFLECTION_DEADLINE)
        .await
        .map_err(|error| error.to_string())?;
    let syn = helper.connect(std::os::fd::AsFd::as_fd(&socket), to).await?;
    let syn = match socket.seen() {
        Some(SocketAddr::V4(seen)) => syn.translated(seen),
        Some(SocketAddr::V6(seen)) => return Err(format!("this node is seen at {seen}, no IPv4 address")),
        None => syn,
    };
    let request = proto::RendezvousRequest {
        destination: destination.into(),
        dial: proto::Dial::Traverse.into(),
        rendezvous: mac::new_connection().0.to_vec(),
        initiator_address: syn.source.to_string(),
        syn: syn.to_bytes(),
        ..proto::RendezvousRequest::default()
    };
    let carried = async {
        match dialer.control.rendezvous(request, deadline).await {
            Ok(_) => std::future::pending().await,
            Err(status) => format!("the first segment could not be carried: {}", grpc::reason(&status)),
        }
    };
    // The connection may stand before its acceptor has said that it took part.
    tokio::select! {
        connected = socket.connected(to.into()) => connected.map_err(|error| error.to_string()),
        failed = carried => Err(failed),
    }
}

/// Takes in the segment that an initiator had carried here, and answers whether
/// it did.
pub(super) async fn accept(request: &proto::DialRequest, dialer: &Dialer) -> Result<(), String> {
    let taken = take_in(request, dialer).await;
    let answer = proto::DialAnswer {
        rendezvous: request.rendezvous.clone(),
        address: String::new(),
        failure: taken.as_ref().err().cloned().unwrap_or_default(),
    };
    dialer.control.send(attach_up::Kind::DialAnswer(answer)).await;
    taken
}

async fn take_in(request: &proto::DialRequest, dialer: &Dialer) -> Result<(), String> {
    let helper = dialer.raw.as_ref().ok_or("the agent has no right to raw packets")?;
    let own = resolve(&dialer.address).await.map_err(|error| error.to_string())?;
    let syn = check(request, own)?;
    debug!(source = %syn.source, "a connection is taken in");
    helper.inject(&syn).await
}

/// The segment of a request, if it is one that begins a connection from where
/// the initiator says to this agent, and nothing else.
fn check(request: &proto::DialRequest, own: SocketAddr) -> Result<Syn, String> {
    let syn = Syn::parse(&request.syn).map_err(|error| format!("what came is no SYN: {error}"))?;
    if SocketAddr::from(syn.destination) != own {
        return Err(format!("the SYN is for {}, and this agent is at {own}", syn.destination));
    }
    let source = SocketAddr::from(syn.source);
    if source.to_string() != request.initiator_address {
        return Err(format!("the SYN is from {source}, and the initiator at {}", request.initiator_address));
    }
    callback::check(source).map_err(|error| error.to_string())?;
    Ok(syn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_raw::syn::Options;

    fn syn() -> Syn {
        Syn {
            source: "198.51.100.1:40000".parse().unwrap(),
            destination: "192.0.2.7:7730".parse().unwrap(),
            sequence: 7,
            window: 64_240,
            options: Options { max_segment: Some(1460), ..Options::default() },
        }
    }

    #[test]
    fn only_a_syn_from_the_initiator_to_this_agent_is_taken_in() {
        let own = "192.0.2.7:7730";
        let other = |source: &str, destination: &str| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            Syn { source, destination, ..syn() }.to_bytes()
        };
        let with = |offset: usize, value: u8| {
            let mut bytes = syn().to_bytes();
            bytes[offset] = value;
            bytes
        };
        let from = "198.51.100.1:40000";
        for (name, bytes, initiator, want) in [
            ("good", syn().to_bytes(), from, ""),
            ("nothing", vec![], from, "what came is no SYN"),
            ("cut off", syn().to_bytes()[..39].to_vec(), from, "what came is no SYN"),
            ("a reset", with(33, 4), from, "what came is no SYN"),
            ("SYN and FIN", with(33, 3), from, "what came is no SYN"),
            ("UDP", with(9, 17), from, "what came is no SYN"),
            ("a fragment", with(7, 1), from, "what came is no SYN"),
            ("another port here", other(from, "192.0.2.7:22"), from, "the SYN is for 192.0.2.7:22"),
            ("another node here", other(from, "192.0.2.8:7730"), from, "the SYN is for 192.0.2.8:7730"),
            ("loopback", other(from, "127.0.0.1:7730"), from, "the SYN is for 127.0.0.1:7730"),
            ("somebody else's source", other("198.51.100.2:40000", own), from, "and the initiator at"),
            ("another port there", syn().to_bytes(), "198.51.100.1:40001", "and the initiator at"),
            ("from loopback", other("127.0.0.1:40000", own), "127.0.0.1:40000", "no address of another node"),
            ("from a service", other("198.51.100.1:53", own), "198.51.100.1:53", "system's services"),
        ] {
            let request = proto::DialRequest {
                syn: bytes,
                initiator_address: initiator.to_owned(),
                ..proto::DialRequest::default()
            };
            let found = check(&request, own.parse().unwrap());
            match found {
                Ok(found) => assert_eq!((want, found), ("", syn()), "{name}"),
                Err(error) => assert!(!want.is_empty() && error.contains(want), "{name}: {error}"),
            }
        }
    }
}
