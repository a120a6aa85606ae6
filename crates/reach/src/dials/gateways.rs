//! Routes over gateways. The broker's reply has the gateway's address and a
//! ticket. The initiator's gateway dials before it passes that reply on, so its
//! failure is the error of the rendezvous call.

use std::time::Duration;

use isthmus_net::dial::{SocketOptions, introduced};
use isthmus_plan::{Dial, Route, Step};
use isthmus_rpc::rendezvous::{RequestWay, Stop, StopKind};
use isthmus_service::Deadline;
use tokio::net::TcpStream;

use super::direct::CONNECT;
use crate::address::service_address;
use crate::attempt::{Attempt, Opened};
use crate::dialer::Dialer;
use crate::failed::DialFailed;

/// Limit from the rendezvous call until the other site's gateway has connected to this node.
const ARRIVAL: Duration = Duration::from_secs(8);

impl Attempt<'_> {
    pub(super) async fn over_gateways(&mut self, step: &Step) -> Opened<TcpStream> {
        let (route, dial, avoid) = (step.route, step.dial, self.named.clone());
        if (route, dial) == (Route::OneGateway, Dial::Reverse) {
            let way = |rendezvous| RequestWay::DialedByGateway { rendezvous, avoid };
            let stream = self.dialed_back(way, self.part(ARRIVAL)).await?;
            return Ok((stream, String::new()));
        }
        let stop = self.rendezvous(RequestWay::OverGateways { route, dial, avoid, job: self.job }).await?;
        self.to_stop(stop, self.part(CONNECT)).await
    }
}

/// The acceptor's part: connects to a relay or a gateway, and shows the ticket there.
pub(super) async fn accept(
    dialer: &Dialer,
    stop: &Stop,
    (options, deadline): (SocketOptions, Deadline),
) -> Result<TcpStream, DialFailed> {
    let address = match stop.kind {
        StopKind::OtherSite => service_address(&stop.address).await?.to_string(),
        StopKind::Relay => dialer.relay_address(&stop.address, deadline).await?.to_string(),
        StopKind::OwnSite => stop.address.clone(),
    };
    Ok(introduced(&address, &stop.ticket, options, deadline).await?)
}
