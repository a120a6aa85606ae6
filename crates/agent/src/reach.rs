//! The initiator's side: opens a connection to another node's agent along the
//! plan, the first step that works wins.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_net::contact::{dial_to_wire, plan_from_wire, plan_to_wire, route_to_wire};
use isthmus_net::dial::{self, DialError, SocketOptions};
use isthmus_net::{Identity, Role, grpc, mac};
use isthmus_plan::failures::Due;
use isthmus_plan::{Dial, Failure, Failures, LeftOut, Route, Step};
use isthmus_wire::preamble::{Answer, Preamble, Status};
use isthmus_wire::{GridName, proto};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};
use tokio_util::sync::CancellationToken;

use crate::carrier::{Carrier, keep_alive};
use crate::job::{Job, lock};
use crate::meetings::Meetings;
use crate::outside::Outside;
use crate::raw::RawHelper;
use crate::traverse;
use crate::upstream::Upstream;

/// How long an acceptor may take to answer a preamble: its own deadline for
/// knocking and a margin for the way.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);
/// How long a TLS handshake between agents may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long `punch` may take by what is foreseen of the two NATs, before both
/// sides ask: a lost SYN is repeated after 1 s.
const FORESEEN: Duration = Duration::from_millis(2500);
/// Relays and gateways tried per connection; the broker names others each time.
const ATTEMPTS: usize = 3;

/// TLS for the two things that agents say to each other.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// One program's connection.
    pub stream: Arc<ClientConfig>,
    /// gRPC.
    pub grpc: Arc<ClientConfig>,
    /// A measurement.
    pub measure: Arc<ClientConfig>,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    /// A program's connection.
    Program {
        /// The job it belongs to.
        job: &'a Job,
        /// Its ends; the nonce is this one's alone.
        preamble: Preamble,
        /// What the program wants of its socket.
        options: SocketOptions,
        /// The program wants the connection no more.
        given_up: &'a CancellationToken,
    },
    /// The agents' own calls.
    Peer,
    /// To measure how fast the way is.
    Measure,
    /// The pulse of a job's agents.
    Pulse {
        /// The job.
        job: &'a Job,
        /// Its ends.
        preamble: Preamble,
    },
}

/// A connection to another node's agent.
#[derive(Debug)]
pub struct Reached {
    /// The connection.
    pub carrier: Carrier,
    /// Who stands between.
    pub route: proto::Route,
    /// How it was opened.
    pub dial: proto::Dial,
    /// Over which relay, empty for none.
    pub relay: String,
    /// The grid name across.
    pub node: GridName,
    /// How long all of it took.
    pub setup: Duration,
    /// Ways that were tried before and failed, each with what it met.
    pub failures: Vec<String>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ReachError {
    /// The other agent was reached and says why not.
    Answered(Status),
    /// The grid doesn't know the node, or it can't be asked.
    Unknown(String),
    /// No step of the plan worked; each with its reason.
    NoWay(Vec<String>),
    /// The program wanted it no more before the other agent was told of it.
    GivenUp,
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => f.write_str(match status {
                Status::Connected => "connected",
                Status::Refused => "nobody listens there",
                Status::TimedOut => "the listener does not accept: its backlog stayed full",
                Status::UnknownJob => "the node does not take part in this job (did its agent restart?)",
                Status::Denied => "the node denied it: the job's token does not match",
                Status::WrongNode => {
                    "another node answered: does the contact's address belong to somebody else?"
                }
                Status::Failed => "the node's agent failed; see its log",
            }),
            Self::Unknown(reason) => f.write_str(reason),
            Self::NoWay(reasons) if reasons.is_empty() => f.write_str("the plan has no step"),
            Self::NoWay(reasons) => f.write_str(&reasons.join("; ")),
            Self::GivenUp => f.write_str("the program gave up"),
        }
    }
}

/// A dial's name as docs and messages have it.
pub fn dial_name(dial: proto::Dial) -> String {
    dial.as_str_name().trim_start_matches("DIAL_").to_lowercase().replace('_', "-")
}

/// A route's name as docs and messages have it.
pub fn route_name(route: proto::Route) -> String {
    route.as_str_name().trim_start_matches("ROUTE_").to_lowercase().replace('_', "-")
}

/// A way in words: the dial, and the route unless nobody stands between.
fn way(route: Route, dial: Dial) -> String {
    match route {
        Route::EndToEnd => dial.to_string(),
        Route::OneGateway | Route::GatewayOut | Route::TwoGateway => format!("{dial} {route}"),
    }
}

/// What was left out, those of one reason together.
fn left_out(left_out: &[LeftOut]) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for LeftOut { route, dial, reason } in left_out {
        let way = way(*route, *dial);
        match by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, ways)) => ways.push(way),
            None => by_reason.push((reason, vec![way])),
        }
    }
    by_reason.into_iter().map(|(reason, ways)| format!("{} left out: {reason}", ways.join(", "))).collect()
}

/// Opens connections to other agents.
#[derive(Debug, Clone)]
pub struct Reacher {
    /// Contacts and plans.
    pub upstream: Upstream,
    /// TLS.
    pub tls: ClientTls,
    /// Others who were asked to dial this node.
    pub meetings: Arc<Meetings>,
    /// How this node is seen from outside.
    pub outside: Arc<Outside>,
    /// Raw packets, where this agent has a right to them.
    pub raw: Option<Arc<RawHelper>>,
    /// What failed not long ago.
    pub failures: Arc<Mutex<Failures>>,
}

/// What one step met: go on with the next, or nothing else can help.
pub(crate) enum StepError {
    Next(String),
    Final(Status),
    GivenUp,
}

impl From<DialError> for StepError {
    fn from(error: DialError) -> Self {
        Self::Next(error.to_string())
    }
}

impl Reacher {
    /// Opens a connection to the agent of the node with this virtual address.
    ///
    /// # Errors
    /// [`ReachError`]; every step has its deadline.
    ///
    /// Once the other agent may have been told of a program's connection,
    /// `given_up` ends nothing any more: that connection is to be ended as one
    /// that stands, because its program may have accepted it already.
    pub async fn reach(&self, destination: Ipv4Addr, purpose: Purpose<'_>) -> Result<Reached, ReachError> {
        let started = Instant::now();
        let found = self.upstream.lookup(destination).await.map_err(|status| {
            ReachError::Unknown(format!("cannot find {destination} in the grid: {}", grpc::reason(&status)))
        })?;
        let (Some(node), Some(plan)) = (&found.node, &found.plan) else {
            return Err(ReachError::Unknown(format!("the gateway says nothing of {destination}")));
        };
        let name: GridName =
            node.name.parse().map_err(|error| ReachError::Unknown(format!("bad contact: {error}")))?;
        let mut plan = plan_from_wire(plan);
        let towards = (destination, name.site.as_str());
        plan.demote(&lock(&self.failures).towards(towards, started));
        let mut reasons: Vec<String> = Vec::new();
        // Relays and gateways, named by the broker so far.
        let relays = Mutex::new(Vec::new());
        for step in &plan.steps {
            let (route, dial) = (route_to_wire(step.route), dial_to_wire(step.dial));
            // Grid names, with a dot: a gateway that failed by one dial may do by another.
            lock(&relays).retain(|name: &String| !name.contains('.'));
            let others = step.dial == Dial::Relay || step.route != Route::EndToEnd;
            let attempts = if others { ATTEMPTS } else { 1 };
            for attempt in 0..attempts {
                let tried = lock(&relays).len();
                match self.step(step, destination, node, &name, plan.encrypted, &purpose, &relays).await {
                    Ok((carrier, relay)) => {
                        lock(&self.failures).clear(towards, step.route, step.dial);
                        let setup = started.elapsed();
                        return Ok(Reached {
                            carrier,
                            route,
                            dial,
                            relay,
                            node: name,
                            setup,
                            failures: reasons,
                        });
                    }
                    Err(StepError::Final(status)) => return Err(ReachError::Answered(status)),
                    Err(StepError::GivenUp) => return Err(ReachError::GivenUp),
                    // The broker knew nobody else.
                    Err(StepError::Next(_)) if attempt > 0 && lock(&relays).len() == tried => break,
                    Err(StepError::Next(reason)) => {
                        tracing::debug!(node = %name, route = %step.route, dial = %step.dial, reason, "a step failed");
                        let failure = Failure { route: step.route, dial: step.dial, reason: reason.clone() };
                        lock(&self.failures).note(towards, failure, Instant::now());
                        let reason = format!("{}: {reason}", way(step.route, step.dial));
                        if reasons.last() != Some(&reason) {
                            reasons.push(reason);
                        }
                    }
                }
            }
        }
        // The node may have moved since the contact was cached.
        self.upstream.forget(destination);
        reasons.extend(left_out(&plan.left_out));
        Err(ReachError::NoWay(reasons))
    }

    /// Puts what failed for this node not long ago behind the rest of a plan of
    /// its own, as it does when it dials.
    pub fn demote(&self, reply: &mut proto::ExplainReply) {
        let end = reply.facts.as_ref().and_then(|facts| facts.acceptor.as_ref());
        if let (Some(plan), Some(end)) = (&mut reply.plan, end)
            && let Ok(name) = end.node.parse::<GridName>()
        {
            let towards = (Ipv4Addr::from(end.virtual_address), name.site.as_str());
            let mut demoted = plan_from_wire(plan);
            demoted.demote(&lock(&self.failures).towards(towards, Instant::now()));
            *plan = plan_to_wire(&demoted);
        }
    }

    /// Sees whether something that failed works by now.
    pub async fn try_again(&self, due: &Due) {
        // One that can't be asked for says nothing of the way.
        let Ok(found) = self.upstream.lookup(due.node).await else { return };
        let (Some(node), Some(plan)) = (&found.node, &found.plan) else { return };
        let Ok(name) = node.name.parse::<GridName>() else { return };
        let towards = (due.node, name.site.as_str());
        let plan = plan_from_wire(plan);
        let step = plan.steps.iter().find(|step| (step.route, step.dial) == (due.route, due.dial));
        let tried = match step {
            Some(step) => {
                self.open(step, due.node, node, &name, plan.encrypted, &Purpose::Peer, &Mutex::default())
                    .await
            }
            None => return lock(&self.failures).clear(towards, due.route, due.dial),
        };
        match tried {
            Ok(_) => {
                tracing::info!(node = %name, dial = %due.dial, "works again");
                lock(&self.failures).clear(towards, due.route, due.dial);
            }
            Err(StepError::Next(reason)) => {
                tracing::debug!(node = %name, dial = %due.dial, reason, "still fails");
                let failure = Failure { route: due.route, dial: due.dial, reason };
                lock(&self.failures).note(towards, failure, Instant::now());
            }
            Err(StepError::Final(_) | StepError::GivenUp) => {}
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a step of a loop")]
    async fn step(
        &self,
        step: &Step,
        destination: Ipv4Addr,
        node: &proto::Node,
        name: &GridName,
        encrypted: bool,
        purpose: &Purpose<'_>,
        relays: &Mutex<Vec<String>>,
    ) -> Result<(Carrier, String), StepError> {
        let opening = self.open(step, destination, node, name, encrypted, purpose, relays);
        let (job, preamble, (carrier, relay)) = match purpose {
            Purpose::Peer | Purpose::Measure => return opening.await,
            Purpose::Pulse { job, preamble } => (job, preamble, opening.await?),
            Purpose::Program { job, preamble, given_up, .. } => tokio::select! {
                opened = opening => (job, preamble, opened?),
                () = given_up.cancelled() => return Err(StepError::GivenUp),
            },
        };
        Ok((introduce(carrier, job, preamble).await?, relay))
    }

    /// Opens a connection to the other agent, who knows nothing of its purpose
    /// yet.
    #[allow(clippy::too_many_arguments, reason = "a step of a loop")]
    async fn open(
        &self,
        step: &Step,
        destination: Ipv4Addr,
        node: &proto::Node,
        name: &GridName,
        encrypted: bool,
        purpose: &Purpose<'_>,
        relays: &Mutex<Vec<String>>,
    ) -> Result<(Carrier, String), StepError> {
        let deadline = step.deadline;
        let options = match purpose {
            Purpose::Program { options, .. } => *options,
            Purpose::Peer | Purpose::Measure | Purpose::Pulse { .. } => SocketOptions::default(),
        };
        let (stream, relay) = match step.dial {
            _ if step.route != Route::EndToEnd => {
                self.over_gateways(step, destination, options, relays).await?
            }
            Dial::Direct => (dial::direct(&node.address, options, deadline).await?, String::new()),
            Dial::PortRange => (dial::direct(&node.outside_address, options, deadline).await?, String::new()),
            Dial::Reverse => (self.reverse(destination, options, deadline).await?, String::new()),
            Dial::Punch => (self.punch(destination, options, deadline).await?, String::new()),
            Dial::Traverse => {
                let stream = traverse::dial(self, destination, &node.address, options, deadline).await;
                (stream.map_err(StepError::Next)?, String::new())
            }
            Dial::Relay => self.relay(destination, options, deadline, relays).await?,
        };
        let carrier = match purpose {
            Purpose::Peer => self.secure(stream, name, &self.tls.grpc).await?,
            Purpose::Measure => self.secure(stream, name, &self.tls.measure).await?,
            Purpose::Program { .. } if encrypted => self.secure(stream, name, &self.tls.stream).await?,
            Purpose::Program { .. } | Purpose::Pulse { .. } => Carrier::Raw(stream),
        };
        Ok((carrier, relay))
    }

    /// Asks the broker for a meeting with the destination.
    async fn meet(
        &self,
        destination: Ipv4Addr,
        request: proto::RendezvousRequest,
    ) -> Result<proto::RendezvousReply, StepError> {
        let request = proto::RendezvousRequest { destination: destination.into(), ..request };
        let arranging = self.upstream.rendezvous(request).await;
        arranging.map_err(|status| StepError::Next(format!("no meeting arranged: {}", grpc::reason(&status))))
    }

    async fn relay(
        &self,
        destination: Ipv4Addr,
        options: SocketOptions,
        deadline: Duration,
        relays: &Mutex<Vec<String>>,
    ) -> Result<(TcpStream, String), StepError> {
        let request = proto::RendezvousRequest {
            dial: proto::Dial::Relay.into(),
            avoid: lock(relays).clone(),
            ..proto::RendezvousRequest::default()
        };
        let meeting = self.meet(destination, request).await?;
        lock(relays).push(meeting.relay.clone());
        let stream = dial::introduced(&meeting.relay_address, &meeting.ticket, options, deadline)
            .await
            .map_err(|error| StepError::Next(format!("relay {}: {error}", meeting.relay)))?;
        Ok((stream, meeting.relay))
    }

    async fn reverse(
        &self,
        destination: Ipv4Addr,
        options: SocketOptions,
        deadline: Duration,
    ) -> Result<TcpStream, StepError> {
        let mut meeting = self.meetings.begin();
        let id = meeting.id();
        let dialed = async {
            let request = proto::RendezvousRequest {
                dial: proto::Dial::Reverse.into(),
                meeting: id.0.to_vec(),
                ..proto::RendezvousRequest::default()
            };
            self.meet(destination, request).await?;
            meeting.stream().await.ok_or_else(|| StepError::Next("the agent ends".to_owned()))
        };
        let late = || StepError::Next(format!("the other side did not dial this node within {deadline:?}"));
        let stream = tokio::time::timeout(deadline, dialed).await.map_err(|_| late())??;
        options.apply_late(&stream);
        Ok(stream)
    }

    async fn punch(
        &self,
        destination: Ipv4Addr,
        options: SocketOptions,
        deadline: Duration,
    ) -> Result<TcpStream, StepError> {
        let until = Instant::now() + deadline;
        if self.outside.foresees() {
            let foreseen = self.punch_once(destination, options, false, FORESEEN.min(deadline)).await;
            if foreseen.is_ok() {
                return foreseen;
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let punched = self.punch_once(destination, options, true, left).await?;
        // One of the two NATs did not do as it was seen to.
        self.outside.foresee_nothing();
        Ok(punched)
    }

    /// `ask`: both ask how they are seen, rather than go by what they foresee.
    async fn punch_once(
        &self,
        destination: Ipv4Addr,
        options: SocketOptions,
        ask: bool,
        deadline: Duration,
    ) -> Result<TcpStream, StepError> {
        let punched = async {
            let port = self.outside.port(ask, None).await.map_err(StepError::Next)?;
            let request = proto::RendezvousRequest {
                dial: proto::Dial::Punch.into(),
                meeting: mac::new_connection().0.to_vec(),
                initiator_address: port.seen().to_string(),
                ask,
                ..proto::RendezvousRequest::default()
            };
            let reply = self.meet(destination, request).await?;
            Ok(port.connect(&reply.acceptor_address, options, deadline).await?)
        };
        let late = || StepError::Next(format!("both sides dialed, and nothing came within {deadline:?}"));
        tokio::time::timeout(deadline, punched).await.map_err(|_| late())?
    }

    /// Makes sure by TLS that the other end is the agent of this node.
    pub(crate) async fn secure(
        &self,
        stream: TcpStream,
        name: &GridName,
        config: &Arc<ClientConfig>,
    ) -> Result<Carrier, StepError> {
        let ends = format!("{:?} to {:?}", stream.local_addr().ok(), stream.peer_addr().ok());
        let failed = |reason: String| StepError::Next(format!("TLS with {name} ({ends}): {reason}"));
        keep_alive(&stream);
        let server = ServerName::try_from(name.to_string()).map_err(|error| failed(error.to_string()))?;
        let handshake = TlsConnector::from(config.clone()).connect(server, stream);
        let stream = tokio::time::timeout(HANDSHAKE_DEADLINE, handshake)
            .await
            .map_err(|_| failed(format!("no answer within {HANDSHAKE_DEADLINE:?}")))?
            .map_err(|error| failed(error.to_string()))?;
        let stream = TlsStream::Client(stream);
        match peer_identity(&stream) {
            Some(identity)
                if identity.role() == Role::Agent && identity.grid_name().as_ref() == Some(name) =>
            {
                Ok(Carrier::Tls(Box::new(stream)))
            }
            other => Err(failed(format!("it is {other:?}"))),
        }
    }
}

/// Who is at the other end, by its certificate.
pub fn peer_identity(stream: &TlsStream<TcpStream>) -> Option<Identity> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    Identity::from_certificate(certificate).ok()
}

/// Says whose connection this is and waits for the answer.
async fn introduce(mut carrier: Carrier, job: &Job, preamble: &Preamble) -> Result<Carrier, StepError> {
    let ends = carrier.ends();
    let exchange = async {
        carrier.send(&job.token.seal_preamble(preamble)).await?;
        carrier.receive::<{ isthmus_wire::preamble::ANSWER_LEN }>().await
    };
    let failed = |error: io::Error| {
        StepError::Next(match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("{ends}: the other side closed the connection unanswered")
            }
            _ => format!("{ends}: {error}"),
        })
    };
    let answer = tokio::time::timeout(ANSWER_DEADLINE, exchange)
        .await
        .map_err(|_| StepError::Next(format!("{ends}: no answer within {ANSWER_DEADLINE:?}")))?
        .map_err(failed)?;
    let (answer, mac) =
        Answer::decode(&answer).map_err(|error| StepError::Next(format!("{ends}: {error}")))?;
    match answer.status {
        // Without the token anybody can say so; it is no reason to give up.
        Status::UnknownJob | Status::Denied | Status::WrongNode => {
            Err(StepError::Next(format!("{ends}: {}", ReachError::Answered(answer.status))))
        }
        _ if !job.token.verify(&answer.signed_bytes(&preamble.nonce), &mac) => {
            Err(StepError::Next(format!("{ends}: the answer is not from an agent of this job")))
        }
        Status::Connected => Ok(carrier),
        Status::Refused | Status::TimedOut | Status::Failed => Err(StepError::Final(answer.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_for_one_reason_is_said_once() {
        let left = |route, dial, reason: &str| LeftOut { route, dial, reason: reason.to_owned() };
        let told = left_out(&[
            left(Route::EndToEnd, Dial::Direct, "nothing is let in"),
            left(Route::EndToEnd, Dial::Relay, "no relay"),
            left(Route::GatewayOut, Dial::Direct, "nothing is let in"),
        ]);
        assert_eq!(
            told,
            ["direct, direct gateway-out left out: nothing is let in", "relay left out: no relay"]
        );
    }
}
