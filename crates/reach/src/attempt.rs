//! An attempt to reach one destination: the steps of its plan, one after another.

use std::fmt;
use std::time::Duration;

use isthmus_identity::Owner;
use isthmus_identity::secured::{ClientTls, Secured};
use isthmus_net::dial::{DialError, SocketOptions, introduced};
use isthmus_plan::{Step, Told, limits};
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{Reply, ReplyWay, RequestWay, Stop, StopKind};
use isthmus_service::{Deadline, Late};
use isthmus_wire::JobId;
use isthmus_wire::preamble::Status;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::address::service_address;
use crate::carrier::{Carrier, reset_if_dropped};
use crate::dialer::{Dialer, Found};
use crate::failed::{DialFailed, NotDialed};
use crate::far_end::{Expected, Unverified, secure};
use crate::purpose::{Purpose, Security, Unaccepted};

/// How long a TLS handshake is silent before the step is taken once more beside it, with shorter
/// segments. Large packets may vanish on the way.
const HANGS: Duration = Duration::from_secs(3);
/// The longest segments of the further tries, in bytes: IPv4 packets of 1280 and 540 bytes.
const SHORTER: [u16; 2] = [1240, 500];

/// Why a step failed, and whether the next one is tried.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The step failed for this reason; the next step is tried.
    Next(Told),
    /// The other party's agent hasn't signed where the step leads, and the connection must not be
    /// encrypted. The next step is tried.
    Unsigned(String),
    /// The other party refused the connection.
    Final(Status),
    /// The initiator gave the connection up.
    GivenUp,
    /// The other party belongs to another user.
    OtherOwner(String),
}

impl StepError {
    /// The step failed for a reason that no person can mend, as far as is known.
    pub(crate) fn next(reason: impl fmt::Display) -> Self {
        Self::Next(reason.to_string().into())
    }
}

impl From<Unverified> for StepError {
    fn from(error: Unverified) -> Self {
        match error {
            Unverified::Failed(reason) => Self::next(reason),
            Unverified::OtherOwner(reason) => Self::OtherOwner(reason),
        }
    }
}

impl From<NotDialed> for StepError {
    fn from(error: NotDialed) -> Self {
        Self::next(error)
    }
}

impl From<DialFailed> for StepError {
    fn from(error: DialFailed) -> Self {
        Self::next(error)
    }
}

impl From<DialError> for StepError {
    fn from(error: DialError) -> Self {
        Self::next(error)
    }
}

impl From<Unaccepted> for StepError {
    fn from(error: Unaccepted) -> Self {
        match error {
            Unaccepted::Next(reason) => Self::next(reason),
            Unaccepted::Final(status) => Self::Final(status),
        }
    }
}

/// An opened connection with the name of its relay, which is empty if it has none.
pub(crate) type Opened<T> = Result<(T, String), StepError>;

/// An attempt to reach a destination by the steps of its plan.
#[derive(Clone)]
pub(crate) struct Attempt<'a> {
    pub dialer: &'a Dialer,
    pub found: &'a Found,
    pub options: SocketOptions,
    /// The job to whose account gateways add the connection's bytes; `None` for no job.
    pub job: Option<JobId>,
    /// Relays and gateways that the broker has named so far. The next request asks the broker for
    /// others.
    pub named: Vec<String>,
    /// The longest segment of the connection that was opened last, in bytes; `None` if each kernel
    /// chooses it.
    pub segment: Option<u16>,
    /// When the current step ends.
    pub deadline: Deadline,
    /// Whether the current step leads to an address that the other party's agent hasn't signed.
    pub unsigned: bool,
}

impl<'a> Attempt<'a> {
    /// An attempt that has taken no step so far.
    pub(crate) fn new(dialer: &'a Dialer, found: &'a Found, options: SocketOptions) -> Self {
        let deadline = Deadline::within(Duration::ZERO);
        let (named, segment, unsigned) = (Vec::new(), None, false);
        Self { dialer, found, options, job: None, named, segment, deadline, unsigned }
    }

    /// The deadline of a part of the current step. The part has `usual` where the step has the
    /// limit of ways of usual length, and grows with the step's limit.
    pub(crate) fn part(&self, usual: Duration) -> Deadline {
        self.deadline.part(limits::part(usual, self.deadline.limit()))
    }

    /// Takes a step: opens a connection and introduces it. All of that ends by the step's deadline.
    pub(crate) async fn step(&mut self, step: &Step, purpose: &mut Purpose<'_>) -> Opened<Carrier> {
        let (mut carrier, relay) = tokio::select! {
            opened = self.open(step, purpose.security, purpose.owner) => opened?,
            () = cancelled(purpose.given_up) => return Err(StepError::GivenUp),
        };
        if let Some(introduction) = &mut purpose.introduction {
            reset_if_dropped(carrier.socket(), true);
            let ends = carrier.ends();
            let late = |late: Late| StepError::next(format!("{ends}: {late}"));
            self.deadline.bound(introduction.introduce(&mut carrier)).await.map_err(late)??;
            reset_if_dropped(carrier.socket(), false);
        }
        Ok((carrier, relay))
    }

    /// Opens a connection to the other party, without the introduction. The other party's owner
    /// must be `owner`.
    pub(crate) async fn open(
        &mut self,
        step: &Step,
        security: Security<'_>,
        owner: Option<&Owner>,
    ) -> Opened<Carrier> {
        self.deadline = Deadline::within(step.deadline);
        self.job = security.job();
        self.unsigned = !self.found.is_vouched_for(step, owner);
        self.check_raw(security)?;
        let late = |Late(limit)| StepError::next(format!("no connection within {limit:?}"));
        let (stream, relay) = self.deadline.bound(self.dial(step)).await.map_err(late)??;
        reset_if_dropped(&stream, true);
        self.check_raw(security)?;
        self.segment = self.options.segment;
        let (carrier, relay) = match security.tls() {
            None => (Carrier::Raw(stream), relay),
            Some(tls) => {
                let expected = self.found.expected(owner);
                let (secured, relay) = self.shake(step, (stream, relay), tls, &expected).await?;
                (Carrier::Tls(Box::new(secured)), relay)
            }
        };
        reset_if_dropped(carrier.socket(), false);
        Ok((carrier, relay))
    }

    /// Refuses to open a connection that must not be encrypted and leads to an unsigned address.
    fn check_raw(&self, security: Security<'_>) -> Result<(), StepError> {
        if self.unsigned && matches!(security, Security::Raw | Security::WithoutData) {
            let name = &self.found.name;
            let reason = format!("the agent of {name} has not signed that it is there; see this agent's log");
            return Err(StepError::Unsigned(reason));
        }
        Ok(())
    }

    /// Makes the TLS handshake of a step. While the handshake hangs, the step is taken anew with
    /// shorter segments. The handshake that is done first counts.
    async fn shake(
        &mut self,
        step: &Step,
        (stream, relay): (TcpStream, String),
        tls: &ClientTls,
        expected: &Expected,
    ) -> Opened<Secured> {
        let shaking = secure(stream, expected, tls, self.deadline);
        tokio::pin!(shaking);
        if let Ok(done) = timeout(self.part(HANGS).left(), &mut shaking).await {
            return Ok((done?, relay));
        }
        let shorter = self.clone();
        tokio::select! {
            done = shaking => Ok((done?, relay)),
            (segment, opened) = shorter.with_shorter(step, tls, expected) => {
                self.segment = Some(segment);
                Ok(opened)
            }
        }
    }

    /// Takes the whole step with shorter and shorter segments; never returns if none helps. Returns
    /// the longest segment that helped, in bytes.
    async fn with_shorter(
        mut self,
        step: &Step,
        tls: &ClientTls,
        expected: &Expected,
    ) -> (u16, (Secured, String)) {
        let longest = self.options.segment.unwrap_or(u16::MAX);
        for segment in SHORTER.into_iter().filter(|segment| *segment < longest) {
            self.options.segment = Some(segment);
            let deadline = self.part(HANGS);
            let trying = async {
                let (stream, relay) = self.dial(step).await.ok()?;
                reset_if_dropped(&stream, true);
                Some((secure(stream, expected, tls, deadline).await.ok()?, relay))
            };
            if let Ok(Some(opened)) = deadline.bound(trying).await {
                tracing::info!(
                    node = %self.found.name, dial = %step.dial, segment,
                    "large packets vanish on the way: a connection stands with shorter segments"
                );
                return (segment, opened);
            }
        }
        std::future::pending().await
    }

    /// Asks the broker for a rendezvous with the destination. Keeps the names of the relay and the
    /// gateways in the broker's reply: the next try asks for others.
    pub(crate) async fn rendezvous(&mut self, way: RequestWay) -> Result<ReplyWay, StepError> {
        let wanted = (way, self.options.segment);
        let arranging = self.dialer.control.rendezvous(&self.found.peer, wanted, self.deadline).await;
        let Reply { way, gateways } = arranging.map_err(|status| {
            let told = grpc::told(&status);
            StepError::Next(told.within(|reason| format!("no rendezvous arranged: {reason}")))
        })?;
        let relay = match &way {
            ReplyWay::Stop(stop) => stop.relay.clone(),
            ReplyWay::Awaited | ReplyWay::Punch(_) | ReplyWay::TakenIn => None,
        };
        self.named.extend(gateways.into_iter().chain(relay));
        Ok(way)
    }

    /// Connects to the relay or gateway that the broker named. Returns the relay's
    /// name as well.
    pub(crate) async fn to_stop(&self, way: ReplyWay, deadline: Deadline) -> Opened<TcpStream> {
        let ReplyWay::Stop(Stop { kind, address, ticket, relay }) = way else { return Err(unexpected()) };
        let (at, address) = match (kind, &relay) {
            (StopKind::OtherSite, _) => (kind.to_string(), service_address(&address).await?.to_string()),
            (StopKind::Relay, relay) => {
                let at = relay.as_ref().map_or_else(|| kind.to_string(), |relay| format!("relay {relay}"));
                let found = self.dialer.relay_address(&address, deadline).await;
                (at, found?.to_string())
            }
            (StopKind::OwnSite, _) => (kind.to_string(), address),
        };
        let stream = introduced(&address, &ticket, self.options, deadline).await;
        stream
            .map(|stream| (stream, relay.unwrap_or_default()))
            .map_err(|error| StepError::next(format!("{at} at {address}: {error}")))
    }
}

async fn cancelled(given_up: Option<&CancellationToken>) {
    match given_up {
        Some(given_up) => given_up.cancelled().await,
        None => std::future::pending().await,
    }
}

pub(crate) fn unexpected() -> StepError {
    StepError::next("the broker's reply is for another way than the request")
}
