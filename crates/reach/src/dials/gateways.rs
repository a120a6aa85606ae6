//! Routes over gateways: the broker names where to show which ticket. The
//! initiator's gateway has dialed its part by then, so a failure there comes back
//! as the error of the call that arranges the rendezvous.

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::dial::{SocketOptions, introduced};
use isthmus_net::rendezvous::{Place, Stop, Way};
use isthmus_plan::{Dial, Route, Step};
use tokio::net::TcpStream;

use super::direct::CONNECT;
use crate::attempt::{Attempt, Opened, checked};

/// How long the connection may take to come that the other site's gateway dials
/// to here, the broker's part included.
const COME: Duration = Duration::from_secs(8);

impl Attempt<'_> {
    pub(super) async fn over_gateways(&mut self, step: &Step) -> Opened<TcpStream> {
        let (route, dial, avoid) = (step.route, step.dial, self.named.clone());
        if (route, dial) == (Route::OneGateway, Dial::Reverse) {
            let way = |rendezvous| Way::DialedByGateway { rendezvous, avoid };
            let stream = self.dialed_back(way, self.deadline.part(COME)).await?;
            return Ok((stream, String::new()));
        }
        let stop = self.rendezvous(Way::OverGateways { route, dial, avoid }).await?;
        self.to_stop(stop, self.deadline.part(CONNECT)).await
    }
}

/// The acceptor shows its ticket to a relay or a gateway.
pub(super) async fn accept(stop: &Stop, deadline: Deadline) -> Result<TcpStream, String> {
    let address = match stop.place {
        Place::OtherSite => checked(&stop.address).await?.to_string(),
        Place::Relay | Place::OwnSite => stop.address.clone(),
    };
    introduced(&address, &stop.ticket, SocketOptions::default(), deadline).await.map_err(super::text)
}
