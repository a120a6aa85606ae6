//! The dial `traverse` (Traversing TCP). The initiator connects, and the acceptor's
//! firewall drops its SYN. The broker carries a copy of the SYN to the acceptor's
//! agent, which injects it into its host's IP stack. The kernel's answer leaves
//! through the firewall, and the connection arrives at the agent's listener.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_net::callback;
use isthmus_net::dial::{SocketOptions, TraverseSocket, resolve};
use isthmus_plan::Mapping;
use isthmus_raw::Syn;
use isthmus_rpc::connection;
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{Peer, RequestWay, answer_to_wire};
use isthmus_service::{Deadline, Late};
use isthmus_wire::ConnectionId;
use isthmus_wire::proto::attach_up;
use tokio::net::TcpStream;
use tracing::debug;

use crate::attempt::{Attempt, StepError};
use crate::dialer::Dialer;
use crate::failed::{DialFailed, NotInjected};
use crate::outside::REFLECTION_DEADLINE;

/// How long the connect may take. It survives two lost SYNs in that time.
const CONNECT: Duration = Duration::from_secs(4);

impl Attempt<'_> {
    pub(super) async fn traverse(&self) -> Result<TcpStream, StepError> {
        let address = &self.found.node.address;
        let deadline = self.part(CONNECT);
        let late = |Late(limit)| {
            StepError::next(format!(
                "the first segment was carried to {address}, but no answer came within {limit:?}"
            ))
        };
        let begun = begin(self.dialer, &self.found.peer, address, self.options, deadline);
        deadline.bound(begun).await.map_err(late)?
    }
}

async fn begin(
    dialer: &Dialer,
    peer: &Peer,
    address: &str,
    options: SocketOptions,
    deadline: Deadline,
) -> Result<TcpStream, StepError> {
    let helper = dialer.raw.as_ref();
    let helper = helper.ok_or_else(|| StepError::next("this agent has no right to raw packets"))?;
    let SocketAddr::V4(to) = resolve(address).await? else {
        return Err(StepError::next(format!("{address} is no IPv4 address")));
    };
    let reflector = match dialer.outside.mapping() {
        Mapping::Untranslated => None,
        _ => Some(dialer.outside.reflector().ok_or(DialFailed::NoRelay)?),
    };
    let socket = TraverseSocket::open(reflector, options, REFLECTION_DEADLINE).await?;
    let syn = helper.connect(std::os::fd::AsFd::as_fd(&socket), to).await.map_err(StepError::next)?;
    let syn = match socket.seen() {
        Some(SocketAddr::V4(seen)) => syn.translated(seen),
        Some(SocketAddr::V6(seen)) => {
            return Err(StepError::next(format!("this node is seen at {seen}, no IPv4 address")));
        }
        None => syn,
    };
    let way = RequestWay::Traverse { rendezvous: connection::new_id(), syn };
    let carried = async {
        match dialer.control.rendezvous(peer, (way, options.segment), deadline).await {
            Ok(_) => std::future::pending().await,
            Err(status) => grpc::told(&status)
                .within(|reason| format!("the first segment could not be carried: {reason}")),
        }
    };
    // The connection may stand before the acceptor's answer arrives.
    tokio::select! {
        connected = socket.connected(to.into()) => Ok(connected?),
        failed = carried => Err(StepError::Next(failed)),
    }
}

/// The acceptor's part: injects the initiator's SYN, and reports the result to the broker.
pub(super) async fn accept(rendezvous: ConnectionId, syn: &Syn, dialer: &Dialer) -> Result<(), NotInjected> {
    let injected = inject(syn, dialer).await;
    let answer = answer_to_wire(rendezvous, injected.as_ref().map(|()| None).map_err(ToString::to_string));
    dialer.control.send(attach_up::Kind::DialAnswer(answer)).await;
    injected
}

async fn inject(syn: &Syn, dialer: &Dialer) -> Result<(), NotInjected> {
    let helper = dialer.raw.as_ref().ok_or(NotInjected::NoRight)?;
    let own = resolve(&dialer.address).await?;
    check(syn, own)?;
    debug!(source = %syn.source, "a SYN is injected");
    Ok(helper.inject(syn).await?)
}

/// Whether a segment begins a connection from another node to this agent.
fn check(syn: &Syn, own: SocketAddr) -> Result<(), NotInjected> {
    if SocketAddr::from(syn.destination) != own {
        return Err(NotInjected::Elsewhere { to: syn.destination, own });
    }
    Ok(callback::check(syn.source.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_raw::syn::Options;

    #[test]
    fn only_a_syn_from_another_node_to_this_agent_is_injected() {
        let own = "192.0.2.7:7730";
        let from = "198.51.100.1:40000";
        for (name, source, destination, want) in [
            ("good", from, own, ""),
            ("another port here", from, "192.0.2.7:22", "the SYN is for 192.0.2.7:22"),
            ("another node here", from, "192.0.2.8:7730", "the SYN is for 192.0.2.8:7730"),
            ("loopback", from, "127.0.0.1:7730", "the SYN is for 127.0.0.1:7730"),
            ("from loopback", "127.0.0.1:40000", own, "no address of another node"),
            ("from a service", "198.51.100.1:53", own, "system's services"),
        ] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let syn = Syn { source, destination, sequence: 7, window: 64_240, options: Options::default() };
            match check(&syn, own.parse().unwrap()) {
                Ok(()) => assert_eq!(want, "", "{name}"),
                Err(error) => {
                    assert!(!want.is_empty() && error.to_string().contains(want), "{name}: {error}");
                }
            }
        }
    }
}
