//! One destination, and the steps of its plan taken one after another.

use isthmus_net::dial::{DialError, SocketOptions};
use isthmus_net::{Deadline, Late, grpc};
use isthmus_plan::Step;
use isthmus_wire::preamble::Status;
use isthmus_wire::proto;
use tokio_util::sync::CancellationToken;

use crate::carrier::Carrier;
use crate::dialer::{Dialer, Found};
use crate::far_end::{Expected, secure};
use crate::purpose::{Purpose, Security, Unaccepted};

/// What one step met: go on with the next, or nothing else can help.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The next step may help; why this one failed.
    Next(String),
    /// The other party refused the connection.
    Final(Status),
    /// The initiator gave the connection up.
    GivenUp,
}

impl From<DialError> for StepError {
    fn from(error: DialError) -> Self {
        Self::Next(error.to_string())
    }
}

impl From<Unaccepted> for StepError {
    fn from(error: Unaccepted) -> Self {
        match error {
            Unaccepted::Next(reason) => Self::Next(reason),
            Unaccepted::Final(status) => Self::Final(status),
        }
    }
}

/// An opened connection, and the relay that it goes over, empty for none.
pub(crate) type Opened<T> = Result<(T, String), StepError>;

/// To get to one destination.
pub(crate) struct Attempt<'a> {
    pub dialer: &'a Dialer,
    pub found: &'a Found,
    pub options: SocketOptions,
    /// Relays and gateways that the broker has named so far; if it is asked
    /// once more, it is to name others.
    pub named: Vec<String>,
    /// Of the step under way.
    pub deadline: Deadline,
}

impl Attempt<'_> {
    /// Takes one step, to the end: the other party knows what the connection is
    /// for. All of it ends by the step's deadline.
    pub async fn step(&mut self, step: &Step, purpose: &mut Purpose<'_>) -> Opened<Carrier> {
        let (mut carrier, relay) = tokio::select! {
            opened = self.open(step, purpose.security) => opened?,
            () = cancelled(purpose.given_up) => return Err(StepError::GivenUp),
        };
        if let Some(introduction) = &mut purpose.introduction {
            let ends = carrier.ends();
            let late = |late: Late| StepError::Next(format!("{ends}: {late}"));
            self.deadline.bound(introduction.introduce(&mut carrier)).await.map_err(late)??;
        }
        Ok((carrier, relay))
    }

    /// Opens a connection to the other party, which is not yet told what it is
    /// for.
    pub async fn open(&mut self, step: &Step, security: Security<'_>) -> Opened<Carrier> {
        self.deadline = Deadline::within(step.deadline);
        let late = |Late(limit)| StepError::Next(format!("no connection within {limit:?}"));
        let (stream, relay) = self.deadline.bound(self.dial(step)).await.map_err(late)??;
        let carrier = match security.tls(self.found.plan.encrypted) {
            None => Carrier::Raw(stream),
            Some(tls) => {
                let expected = Expected::agent(&self.found.name);
                secure(stream, &expected, tls, self.deadline).await.map_err(StepError::Next)?
            }
        };
        Ok((carrier, relay))
    }

    /// Asks the broker for a rendezvous with the destination, and notes whom it
    /// names to stand between: if the step fails, the next one is to do without
    /// them.
    pub async fn rendezvous(
        &mut self,
        request: proto::RendezvousRequest,
    ) -> Result<proto::RendezvousReply, StepError> {
        let request = proto::RendezvousRequest { destination: self.found.destination.into(), ..request };
        let arranging = self.dialer.control.rendezvous(request, self.deadline).await;
        let reply = arranging.map_err(|status| {
            StepError::Next(format!("no rendezvous arranged: {}", grpc::reason(&status)))
        })?;
        let relay = Some(&reply.relay).filter(|relay| !relay.is_empty());
        self.named.extend(reply.gateways.iter().chain(relay).cloned());
        Ok(reply)
    }
}

async fn cancelled(given_up: Option<&CancellationToken>) {
    match given_up {
        Some(given_up) => given_up.cancelled().await,
        None => std::future::pending().await,
    }
}
