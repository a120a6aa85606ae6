//! `direct` and `port-range`: the initiator connects.

use std::time::Duration;

use isthmus_net::dial;
use isthmus_rpc::rendezvous::Peer;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, StepError};

/// How long a connect to another site may take before the next step, over a way of usual length.
/// The connect survives two lost SYNs, which the kernel repeats after 1 and 3 s (RFC 6298). A plan
/// for a node of this site has no other step, so its connect gets the whole deadline.
pub(super) const CONNECT: Duration = Duration::from_secs(4);

impl Attempt<'_> {
    pub(super) async fn direct(&self, address: &str) -> Result<TcpStream, StepError> {
        let inside = self.found.name.site.as_str() == self.dialer.control.site();
        let deadline = if inside { self.deadline } else { self.part(CONNECT) };
        let address = match &self.found.peer {
            Peer::Node(_) => address.to_owned(),
            Peer::Gateway(_) => self.dialer.gateway_address(address, deadline).await?.to_string(),
        };
        Ok(dial::direct(&address, self.options, deadline).await?)
    }
}
