//! `reverse`: the acceptor connects to the initiator's port, and first sends the
//! rendezvous' id.

use std::time::Duration;

use isthmus_net::callback;
use isthmus_net::dial::{SocketOptions, introduced, resolve};
use isthmus_rpc::rendezvous::{Peer, RequestWay};
use isthmus_service::Deadline;
use isthmus_wire::{ConnectionId, hello};
use tokio::net::TcpStream;

use crate::attempt::{Attempt, StepError};
use crate::dialer::Dialer;
use crate::failed::{DialFailed, NotDialed};

/// Limit from the rendezvous call until the acceptor has connected.
const ARRIVAL: Duration = Duration::from_secs(6);

impl Attempt<'_> {
    pub(super) async fn reverse(&mut self) -> Result<TcpStream, StepError> {
        self.dialed_back(|rendezvous| RequestWay::Reverse { rendezvous }, self.part(ARRIVAL)).await
    }

    /// Waits for the connection that the other side, or its gateway, opens to this
    /// node.
    pub(super) async fn dialed_back(
        &mut self,
        way: impl FnOnce(ConnectionId) -> RequestWay,
        deadline: Deadline,
    ) -> Result<TcpStream, StepError> {
        let dialer = self.dialer;
        let mut rendezvous = dialer.rendezvous.begin();
        let way = way(rendezvous.id());
        let dialed = async {
            self.rendezvous(way).await?;
            rendezvous.stream().await.ok_or_else(|| StepError::next("this node stops"))
        };
        let late = |_| {
            StepError::next(format!("the other side did not dial this node within {:?}", deadline.limit()))
        };
        let stream = deadline.bound(dialed).await.map_err(late)??;
        self.options.apply_late(&stream);
        Ok(stream)
    }
}

pub(super) async fn accept(
    rendezvous: ConnectionId,
    (initiator, address): (&Peer, &str),
    dialer: &Dialer,
    (options, deadline): (SocketOptions, Deadline),
) -> Result<TcpStream, DialFailed> {
    let initiator = match initiator {
        Peer::Node(_) => {
            let address = resolve(address).await?;
            callback::check(address).map_err(NotDialed::from)?;
            address
        }
        Peer::Gateway(_) => dialer.gateway_address(address, deadline).await?,
    };
    let hello = hello::RENDEZVOUS.encode(rendezvous);
    Ok(introduced(&initiator.to_string(), &hello, options, deadline).await?)
}
