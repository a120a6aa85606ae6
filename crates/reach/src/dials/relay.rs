//! `relay`: both dial out to a relay, each with a ticket from the broker.

use isthmus_net::Deadline;
use isthmus_net::dial::{SocketOptions, introduced};
use isthmus_wire::proto;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, Opened, StepError};

impl Attempt<'_> {
    pub(super) async fn relay(&mut self) -> Opened<TcpStream> {
        let request = proto::RendezvousRequest {
            dial: proto::Dial::Relay.into(),
            avoid: self.named.clone(),
            ..proto::RendezvousRequest::default()
        };
        let rendezvous = self.rendezvous(request).await?;
        let dialed =
            introduced(&rendezvous.relay_address, &rendezvous.ticket, self.options, self.deadline).await;
        let stream =
            dialed.map_err(|error| StepError::Next(format!("relay {}: {error}", rendezvous.relay)))?;
        Ok((stream, rendezvous.relay))
    }
}

pub(super) async fn accept(request: &proto::DialRequest, deadline: Deadline) -> Result<TcpStream, String> {
    introduced(&request.relay_address, &request.ticket, SocketOptions::default(), deadline)
        .await
        .map_err(super::text)
}
