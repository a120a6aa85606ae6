//! The initiator's part of a way over gateways: the broker says whom to show
//! which ticket. Its own gateway has dialed what is to be dialed by then, so that
//! what fails there comes back as that call's error.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_net::callback;
use isthmus_net::contact::{dial_to_wire, route_to_wire};
use isthmus_net::dial::{introduced, resolve};
use isthmus_plan::{Dial, Route, Step};
use isthmus_wire::proto;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, Opened, StepError};

/// As between agents: two lost SYN are repeated by then.
const CONNECT: Duration = Duration::from_secs(4);

impl Attempt<'_> {
    /// Opens a connection to the destination's agent, or to whoever will join it
    /// with that one's; gives the relay's name, where there is one.
    pub(crate) async fn over_gateways(&mut self, step: &Step) -> Opened<TcpStream> {
        let deadline = step.deadline;
        let late = || StepError::Next(format!("no connection within {deadline:?}"));
        tokio::time::timeout(deadline, self.open_over_gateways(step)).await.map_err(|_| late())?
    }

    async fn open_over_gateways(&mut self, step: &Step) -> Opened<TcpStream> {
        let options = self.options();
        let request = proto::RendezvousRequest {
            route: route_to_wire(step.route).into(),
            dial: dial_to_wire(step.dial).into(),
            avoid: self.named.clone(),
            ..proto::RendezvousRequest::default()
        };
        if (step.route, step.dial) == (Route::OneGateway, Dial::Reverse) {
            let mut rendezvous = self.dialer.rendezvous.begin();
            let request = proto::RendezvousRequest { rendezvous: rendezvous.id().0.to_vec(), ..request };
            self.meet(request).await?;
            let stream = rendezvous.stream().await;
            let stream = stream.ok_or_else(|| StepError::Next("the agent ends".to_owned()))?;
            options.apply_late(&stream);
            return Ok((stream, String::new()));
        }
        let reply = self.meet(request).await?;
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
}

/// Another site's gateway says itself where it is.
async fn checked(address: &str) -> Result<SocketAddr, StepError> {
    let address = resolve(address).await?;
    callback::check_service(address).map_err(|error| StepError::Next(error.to_string()))?;
    Ok(address)
}
