//! The acceptor's part of each dial: the broker sends a request, and this party
//! dials the initiator, or whoever stands between.

use isthmus_net::callback;
use isthmus_net::dial::{PunchPort, SocketOptions, introduced, resolve};
use isthmus_wire::proto::{self, attach_up};
use isthmus_wire::{ConnectionId, hello};
use tokio::net::TcpStream;

use crate::dialer::Dialer;
use crate::words::dial_name;
use std::time::Duration;

/// How long a dial may take that another node asked for.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);

/// Opens the connection that a request asks for.
///
/// # Errors
/// Why there is none.
pub async fn dial(request: &proto::DialRequest, dialer: &Dialer) -> Result<TcpStream, String> {
    let options = SocketOptions::default();
    let dialed = match request.dial() {
        _ if request.via_gateway => {
            introduced(&request.gateway_address, &request.ticket, options, DIAL_DEADLINE).await
        }
        // The initiator's gateway, where a ticket is shown as at a relay.
        proto::Dial::Reverse if !request.ticket.is_empty() => {
            let gateway = resolve(&request.relay_address).await.map_err(|error| error.to_string())?;
            callback::check_service(gateway).map_err(|error| error.to_string())?;
            introduced(&gateway.to_string(), &request.ticket, options, DIAL_DEADLINE).await
        }
        proto::Dial::Relay => {
            introduced(&request.relay_address, &request.ticket, options, DIAL_DEADLINE).await
        }
        proto::Dial::Reverse => {
            let initiator = initiator(request).await?;
            let id = ConnectionId::try_from(request.rendezvous.as_slice());
            let hello = hello::RENDEZVOUS.encode(id.map_err(|error| error.to_string())?);
            introduced(&initiator, &hello, options, DIAL_DEADLINE).await
        }
        proto::Dial::Punch => {
            let initiator = initiator(request).await?;
            let reflector = request.reflectors.first().map(String::as_str);
            let port = dialer.outside.port(request.ask, reflector).await;
            let seen = port.as_ref().map(PunchPort::seen);
            dialer
                .control
                .send(attach_up::Kind::DialAnswer(proto::DialAnswer {
                    rendezvous: request.rendezvous.clone(),
                    address: seen.as_ref().map(ToString::to_string).unwrap_or_default(),
                    failure: seen.err().cloned().unwrap_or_default(),
                }))
                .await;
            port?.connect(&initiator, options, DIAL_DEADLINE).await
        }
        other => return Err(format!("this agent does not know what to do for {}", dial_name(other))),
    };
    dialed.map_err(|error| error.to_string())
}

/// Where the initiator is to be dialed, if this party may dial there.
async fn initiator(request: &proto::DialRequest) -> Result<String, String> {
    let address = resolve(&request.initiator_address).await.map_err(|error| error.to_string())?;
    callback::check(address).map_err(|error| error.to_string())?;
    Ok(address.to_string())
}
