//! The dials and the routes over gateways. Each file has the initiator's part and
//! the acceptor's part.
//!
//! The acceptor's part begins when the broker sends a request to dial: this
//! party dials the initiator, a relay or a gateway.

mod direct;
mod gateways;
mod punch;
mod relay;
mod reverse;
mod traverse;

use std::time::Duration;

use isthmus_net::dial::SocketOptions;
use isthmus_plan::{Dial, Route, Step};
use isthmus_rpc::rendezvous::{Order, OrderWay};
use isthmus_service::Deadline;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, Opened, unexpected};
use crate::dialer::Dialer;
use crate::failed::DialFailed;

/// How long a dial on the broker's request may take.
const ACCEPTOR_DEADLINE: Duration = Duration::from_secs(10);

impl Attempt<'_> {
    /// The initiator's part of a step. Opens a connection to the other party, or to the relay or
    /// gateway that splices it with the other party's connection. Returns the relay's name as well,
    /// which is empty without a relay.
    pub(crate) async fn dial(&mut self, step: &Step) -> Opened<TcpStream> {
        let stream = match (step.route, step.dial) {
            (Route::OneGateway | Route::GatewayOut | Route::TwoGateway, _) => {
                return self.over_gateways(step).await;
            }
            (Route::EndToEnd, Dial::Relay) => return self.relay().await,
            (Route::EndToEnd, Dial::Direct) => self.direct(&self.found.node.address).await?,
            (Route::EndToEnd, Dial::PortRange) => self.direct(&self.found.node.outside_address).await?,
            (Route::EndToEnd, Dial::Reverse) => self.reverse().await?,
            (Route::EndToEnd, Dial::Punch) => self.punch().await?,
            (Route::EndToEnd, Dial::Traverse) => self.traverse().await?,
            (Route::EndToEnd, Dial::Trunk) => return Err(unexpected()),
        };
        Ok((stream, String::new()))
    }
}

impl Dialer {
    /// The acceptor's part of a dial; `None` if the connection will arrive at
    /// this party's listener.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn accept(&self, order: &Order) -> Result<Option<TcpStream>, DialFailed> {
        let deadline = Deadline::within(ACCEPTOR_DEADLINE);
        let options = SocketOptions { segment: order.segment, ..SocketOptions::default() };
        let dialed = match &order.way {
            OrderWay::Stop(stop) | OrderWay::SiteTrunk(stop) => {
                gateways::accept(self, stop, (options, deadline)).await
            }
            OrderWay::Reverse { rendezvous, address } => {
                let initiator = (&order.initiator, address.as_str());
                reverse::accept(*rendezvous, initiator, self, (options, deadline)).await
            }
            OrderWay::Punch { rendezvous, port, reflectors, ask } => {
                let initiator = (*rendezvous, port.address);
                punch::accept(initiator, (reflectors, *ask), self, (options, deadline)).await
            }
            OrderWay::Traverse { rendezvous, syn } => {
                traverse::accept(*rendezvous, syn, self).await?;
                return Ok(None);
            }
        };
        dialed.map(Some)
    }
}
