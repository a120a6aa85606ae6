//! `reverse`: the acceptor connects to the initiator's port, and first sends the
//! id of the rendezvous that it comes for.

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::dial::{SocketOptions, introduced};
use isthmus_wire::{ConnectionId, hello, proto};
use tokio::net::TcpStream;

use crate::attempt::{Attempt, StepError};

/// How long the acceptor's connection may take to come, the broker's part
/// included.
const COME: Duration = Duration::from_secs(6);

impl Attempt<'_> {
    pub(super) async fn reverse(&mut self) -> Result<TcpStream, StepError> {
        let request = proto::RendezvousRequest {
            dial: proto::Dial::Reverse.into(),
            ..proto::RendezvousRequest::default()
        };
        self.dialed_back(request, self.deadline.part(COME)).await
    }

    /// Waits for a connection that the other side, or its gateway, dials to here.
    pub(super) async fn dialed_back(
        &mut self,
        request: proto::RendezvousRequest,
        deadline: Deadline,
    ) -> Result<TcpStream, StepError> {
        let dialer = self.dialer;
        let mut rendezvous = dialer.rendezvous.begin();
        let request = proto::RendezvousRequest { rendezvous: rendezvous.id().0.to_vec(), ..request };
        let dialed = async {
            self.rendezvous(request).await?;
            rendezvous.stream().await.ok_or_else(|| StepError::Next("this node stops".to_owned()))
        };
        let late = |_| {
            StepError::Next(format!("the other side did not dial this node within {:?}", deadline.limit()))
        };
        let stream = deadline.bound(dialed).await.map_err(late)??;
        self.options.apply_late(&stream);
        Ok(stream)
    }
}

pub(super) async fn accept(request: &proto::DialRequest, deadline: Deadline) -> Result<TcpStream, String> {
    let initiator = super::initiator(request).await?;
    let id = ConnectionId::try_from(request.rendezvous.as_slice()).map_err(|error| error.to_string())?;
    introduced(&initiator, &hello::RENDEZVOUS.encode(id), SocketOptions::default(), deadline)
        .await
        .map_err(super::text)
}
