//! One node, and the steps of its plan taken one after another.

use isthmus_net::dial::{self, DialError, SocketOptions};
use isthmus_net::grpc;
use isthmus_plan::{Dial, Route, Step};
use isthmus_wire::preamble::Status;
use isthmus_wire::proto;
use tokio::net::TcpStream;

use crate::carrier::Carrier;
use crate::dialer::{Dialer, Found, Purpose};
use crate::far_end::{introduce, secure};
use crate::traverse;

/// What one step met: go on with the next, or nothing else can help.
pub enum StepError {
    /// The next step may help; why this one failed.
    Next(String),
    /// The other agent refused the connection.
    Final(Status),
    /// The initiator gave the connection up.
    GivenUp,
}

impl From<DialError> for StepError {
    fn from(error: DialError) -> Self {
        Self::Next(error.to_string())
    }
}

/// An opened connection, and the relay that it goes over, empty for none.
pub(crate) type Opened<T> = Result<(T, String), StepError>;

/// To get to one node.
pub(crate) struct Attempt<'a> {
    pub dialer: &'a Dialer,
    pub found: &'a Found,
    pub purpose: &'a Purpose<'a>,
    /// Relays and gateways that the broker has named so far; if it is asked
    /// once more, it is to name others.
    pub named: Vec<String>,
}

impl Attempt<'_> {
    /// Takes one step, to the end: the other agent knows what the connection is
    /// for.
    pub async fn step(&mut self, step: &Step) -> Opened<Carrier> {
        let purpose = self.purpose;
        let opening = self.open(step);
        let (token, preamble, (carrier, relay)) = match purpose {
            Purpose::Peer | Purpose::Measure => return opening.await,
            Purpose::Heartbeat { token, preamble } => (token, preamble, opening.await?),
            Purpose::Program { token, preamble, given_up, .. } => tokio::select! {
                opened = opening => (token, preamble, opened?),
                () = given_up.cancelled() => return Err(StepError::GivenUp),
            },
        };
        Ok((introduce(carrier, token, preamble).await?, relay))
    }

    /// Opens a connection to the other agent, who knows nothing of its purpose
    /// yet.
    pub async fn open(&mut self, step: &Step) -> Opened<Carrier> {
        let (stream, relay) = match step.route {
            Route::EndToEnd => self.dial(step).await?,
            Route::OneGateway | Route::GatewayOut | Route::TwoGateway => self.over_gateways(step).await?,
        };
        let Found { name, plan, .. } = self.found;
        let tls = &self.dialer.tls;
        let carrier = match self.purpose {
            Purpose::Peer => secure(stream, name, &tls.grpc).await?,
            Purpose::Measure => secure(stream, name, &tls.measure).await?,
            Purpose::Program { .. } if plan.encrypted => secure(stream, name, &tls.stream).await?,
            Purpose::Program { .. } | Purpose::Heartbeat { .. } => Carrier::Raw(stream),
        };
        Ok((carrier, relay))
    }

    async fn dial(&mut self, step: &Step) -> Opened<TcpStream> {
        let Self { dialer, found: Found { destination, node, .. }, .. } = *self;
        let (options, deadline) = (self.options(), step.deadline);
        let stream = match step.dial {
            Dial::Direct => dial::direct(&node.address, options, deadline).await?,
            Dial::PortRange => dial::direct(&node.outside_address, options, deadline).await?,
            Dial::Reverse => self.reverse(deadline).await?,
            Dial::Punch => self.punch(deadline).await?,
            Dial::Traverse => traverse::dial(dialer, *destination, &node.address, options, deadline)
                .await
                .map_err(StepError::Next)?,
            Dial::Relay => return self.relay(deadline).await,
        };
        Ok((stream, String::new()))
    }

    /// What the program wants of its socket.
    pub fn options(&self) -> SocketOptions {
        match self.purpose {
            Purpose::Program { options, .. } => *options,
            Purpose::Peer | Purpose::Measure | Purpose::Heartbeat { .. } => SocketOptions::default(),
        }
    }

    /// Asks the broker for a rendezvous with the destination, and notes whom it
    /// names to stand between: if the step fails, the next one is to do without
    /// them.
    pub async fn meet(
        &mut self,
        request: proto::RendezvousRequest,
    ) -> Result<proto::RendezvousReply, StepError> {
        let request = proto::RendezvousRequest { destination: self.found.destination.into(), ..request };
        let arranging = self.dialer.control.rendezvous(request).await;
        let reply = arranging.map_err(|status| {
            StepError::Next(format!("no rendezvous arranged: {}", grpc::reason(&status)))
        })?;
        let relay = Some(&reply.relay).filter(|relay| !relay.is_empty());
        self.named.extend(reply.gateways.iter().chain(relay).cloned());
        Ok(reply)
    }
}
