//! The dials for which the broker arranges a rendezvous.

use std::time::{Duration, Instant};

use isthmus_net::{dial, mac};
use isthmus_wire::proto;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, Opened, StepError};

/// How long `punch` may take by what is foreseen of the two NATs, before both
/// sides ask: a lost SYN is repeated after 1 s.
const FORESEEN: Duration = Duration::from_millis(2500);

impl Attempt<'_> {
    pub(crate) async fn relay(&mut self, deadline: Duration) -> Opened<TcpStream> {
        let request = proto::RendezvousRequest {
            dial: proto::Dial::Relay.into(),
            avoid: self.named.clone(),
            ..proto::RendezvousRequest::default()
        };
        let rendezvous = self.meet(request).await?;
        let stream =
            dial::introduced(&rendezvous.relay_address, &rendezvous.ticket, self.options(), deadline)
                .await
                .map_err(|error| StepError::Next(format!("relay {}: {error}", rendezvous.relay)))?;
        Ok((stream, rendezvous.relay))
    }

    pub(crate) async fn reverse(&mut self, deadline: Duration) -> Result<TcpStream, StepError> {
        let mut rendezvous = self.dialer.rendezvous.begin();
        let id = rendezvous.id();
        let dialed = async {
            let request = proto::RendezvousRequest {
                dial: proto::Dial::Reverse.into(),
                rendezvous: id.0.to_vec(),
                ..proto::RendezvousRequest::default()
            };
            self.meet(request).await?;
            rendezvous.stream().await.ok_or_else(|| StepError::Next("the agent ends".to_owned()))
        };
        let late = || StepError::Next(format!("the other side did not dial this node within {deadline:?}"));
        let stream = tokio::time::timeout(deadline, dialed).await.map_err(|_| late())??;
        self.options().apply_late(&stream);
        Ok(stream)
    }

    pub(crate) async fn punch(&mut self, deadline: Duration) -> Result<TcpStream, StepError> {
        let outside = &self.dialer.outside;
        let until = Instant::now() + deadline;
        if outside.foresees() {
            let foreseen = self.punch_once(false, FORESEEN.min(deadline)).await;
            if foreseen.is_ok() {
                return foreseen;
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let punched = self.punch_once(true, left).await?;
        // One of the two NATs did not do as it was seen to.
        outside.foresee_nothing();
        Ok(punched)
    }

    /// `ask`: both ask how they are seen, rather than go by what they foresee.
    async fn punch_once(&mut self, ask: bool, deadline: Duration) -> Result<TcpStream, StepError> {
        let punched = async {
            let port = self.dialer.outside.port(ask, None).await.map_err(StepError::Next)?;
            let request = proto::RendezvousRequest {
                dial: proto::Dial::Punch.into(),
                rendezvous: mac::new_connection().0.to_vec(),
                initiator_address: port.seen().to_string(),
                ask,
                ..proto::RendezvousRequest::default()
            };
            let reply = self.meet(request).await?;
            Ok(port.connect(&reply.acceptor_address, self.options(), deadline).await?)
        };
        let late = || StepError::Next(format!("both sides dialed, and nothing came within {deadline:?}"));
        tokio::time::timeout(deadline, punched).await.map_err(|_| late())?
    }
}
