//! The initiator's part of a way over gateways: the broker says whom to show
//! which ticket. Its own gateway has dialed what is to be dialed by then, so that
//! what fails there comes back as that call's error.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::contact::{dial_to_wire, route_to_wire};
use isthmus_net::dial::{SocketOptions, introduced, resolve};
use isthmus_net::{callback, grpc};
use isthmus_plan::{Dial, Route, Step};
use isthmus_wire::proto;
use tokio::net::TcpStream;

use crate::job::lock;
use crate::reach::{Reacher, StepError};

impl Reacher {
    /// Opens a connection to the destination's agent, or to whoever will join it
    /// with that one's; gives the relay's name, where there is one.
    pub(crate) async fn over_gateways(
        &self,
        step: &Step,
        destination: Ipv4Addr,
        options: SocketOptions,
        tried: &Mutex<Vec<String>>,
    ) -> Result<(TcpStream, String), StepError> {
        let deadline = step.deadline;
        let late = || StepError::Next(format!("no connection within {deadline:?}"));
        let opening = self.open_over_gateways(step, destination, options, tried);
        tokio::time::timeout(deadline, opening).await.map_err(|_| late())?
    }

    async fn open_over_gateways(
        &self,
        step: &Step,
        destination: Ipv4Addr,
        options: SocketOptions,
        tried: &Mutex<Vec<String>>,
    ) -> Result<(TcpStream, String), StepError> {
        let request = proto::RendezvousRequest {
            destination: destination.into(),
            route: route_to_wire(step.route).into(),
            dial: dial_to_wire(step.dial).into(),
            avoid: lock(tried).clone(),
            ..proto::RendezvousRequest::default()
        };
        if (step.route, step.dial) == (Route::OneGateway, Dial::Reverse) {
            let mut meeting = self.meetings.begin();
            let request = proto::RendezvousRequest { meeting: meeting.id().0.to_vec(), ..request };
            note(tried, &self.arrange(request).await?);
            let stream = meeting.stream().await;
            let stream = stream.ok_or_else(|| StepError::Next("the agent ends".to_owned()))?;
            options.apply_late(&stream);
            return Ok((stream, String::new()));
        }
        let reply = self.arrange(request).await?;
        note(tried, &reply);
        let (address, at) = if reply.via_gateway {
            (reply.gateway_address, "this site's gateway".to_owned())
        } else if reply.relay.is_empty() {
            (checked(&reply.relay_address).await?.to_string(), "the other site's gateway".to_owned())
        } else {
            (reply.relay_address, format!("relay {}", reply.relay))
        };
        let stream = introduced(&address, &reply.ticket, options, CONNECT).await;
        stream
            .map(|stream| (stream, reply.relay))
            .map_err(|error| StepError::Next(format!("{at} at {address}: {error}")))
    }

    async fn arrange(&self, request: proto::RendezvousRequest) -> Result<proto::RendezvousReply, StepError> {
        let arranging = self.upstream.rendezvous(request).await;
        arranging.map_err(|status| StepError::Next(format!("no meeting arranged: {}", grpc::reason(&status))))
    }
}

/// Those that stand between on this attempt: if it fails, the next one is to do
/// without them.
fn note(tried: &Mutex<Vec<String>>, reply: &proto::RendezvousReply) {
    let relay = Some(&reply.relay).filter(|relay| !relay.is_empty());
    lock(tried).extend(reply.gateways.iter().chain(relay).cloned());
}

/// As between agents: two lost SYN are repeated by then.
const CONNECT: Duration = Duration::from_secs(4);

/// Another site's gateway says itself where it is.
async fn checked(address: &str) -> Result<SocketAddr, StepError> {
    let address = resolve(address).await?;
    callback::check_service(address).map_err(|error| StepError::Next(error.to_string()))?;
    Ok(address)
}
