//! Routes over gateways: the broker names where to show which ticket. The
//! initiator's gateway has dialed its part by then, so a failure there comes back
//! as the error of the call that arranges the rendezvous.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_net::contact::{dial_to_wire, route_to_wire};
use isthmus_net::dial::{SocketOptions, introduced, resolve};
use isthmus_net::{Deadline, callback};
use isthmus_plan::{Dial, Route, Step};
use isthmus_wire::proto;
use tokio::net::TcpStream;

use super::direct::CONNECT;
use crate::attempt::{Attempt, Opened, StepError};

/// How long the connection may take to come that the other site's gateway dials
/// to here, the broker's part included.
const COME: Duration = Duration::from_secs(8);

impl Attempt<'_> {
    pub(super) async fn over_gateways(&mut self, step: &Step) -> Opened<TcpStream> {
        let request = proto::RendezvousRequest {
            route: route_to_wire(step.route).into(),
            dial: dial_to_wire(step.dial).into(),
            avoid: self.named.clone(),
            ..proto::RendezvousRequest::default()
        };
        if (step.route, step.dial) == (Route::OneGateway, Dial::Reverse) {
            let stream = self.dialed_back(request, self.deadline.part(COME)).await?;
            return Ok((stream, String::new()));
        }
        let reply = self.rendezvous(request).await?;
        let (address, at) = if reply.via_gateway {
            (reply.gateway_address, "this site's gateway".to_owned())
        } else if reply.relay.is_empty() {
            let address = checked(&reply.relay_address).await.map_err(StepError::Next)?;
            (address.to_string(), "the other site's gateway".to_owned())
        } else {
            (reply.relay_address, format!("relay {}", reply.relay))
        };
        let dialed = introduced(&address, &reply.ticket, self.options, self.deadline.part(CONNECT)).await;
        let stream = dialed.map_err(|error| StepError::Next(format!("{at} at {address}: {error}")))?;
        Ok((stream, reply.relay))
    }
}

/// The acceptor shows its ticket to its own site's gateway.
pub(super) async fn accept_from_inside(
    request: &proto::DialRequest,
    deadline: Deadline,
) -> Result<TcpStream, String> {
    introduced(&request.gateway_address, &request.ticket, SocketOptions::default(), deadline)
        .await
        .map_err(super::text)
}

/// The acceptor shows its ticket to the initiator's gateway, as at a relay.
pub(super) async fn accept_from_outside(
    request: &proto::DialRequest,
    deadline: Deadline,
) -> Result<TcpStream, String> {
    let gateway = checked(&request.relay_address).await?;
    introduced(&gateway.to_string(), &request.ticket, SocketOptions::default(), deadline)
        .await
        .map_err(super::text)
}

/// Another site's gateway names its own address: it must not be inside this
/// site's machines' systems.
async fn checked(address: &str) -> Result<SocketAddr, String> {
    let address = resolve(address).await.map_err(|error| error.to_string())?;
    callback::check_service(address).map_err(|error| error.to_string())?;
    Ok(address)
}
