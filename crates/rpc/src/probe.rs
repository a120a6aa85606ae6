//! Probes: orders to a relay, and their results, read from the protocol into types in
//! which each kind has only its own fields.

use isthmus_wire::bounds::TEXT;
use isthmus_wire::proto::{self, probe_reply, probe_task};
use isthmus_wire::{ConnectionId, DecodeError};

const TASK: &str = "probe";

/// The work that a relay is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Dial an agent from any port.
    Dial(ProbeTarget),
    /// Take a port that doesn't answer. The id names the port.
    Prepare(ConnectionId),
    /// Dial an agent from the port that was prepared under the target's id.
    DialPrepared(ProbeTarget),
    /// Dial the port outside of a gateway from any port.
    DialGateway(ProbeTarget),
}

/// The destination of a relay's dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTarget {
    /// `HOST:PORT` of the requester.
    pub address: String,
    /// The id that the relay sends first.
    pub nonce: ConnectionId,
}

impl ProbeTarget {
    /// A target at this address, with this id.
    pub fn new(address: impl Into<String>, nonce: ConnectionId) -> Self {
        Self { address: address.into(), nonce }
    }
}

/// The result of a probe. Texts are for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The relay's connection was accepted by some host.
    Connected,
    /// The connection was refused.
    Refused(String),
    /// There was no answer in time.
    NoAnswer(String),
    /// The relay did not try, or its own network failed.
    NotDone(String),
    /// The relay has taken this port, which doesn't answer.
    Prepared(u16),
}

impl TryFrom<&proto::ProbeTask> for Task {
    type Error = DecodeError;

    fn try_from(task: &proto::ProbeTask) -> Result<Self, DecodeError> {
        use probe_task::Kind;
        Ok(match task.kind.as_ref().ok_or_else(|| malformed("no kind that this version has"))? {
            Kind::Dial(to) => Self::Dial(target(to)?),
            Kind::Prepare(prepare) => Self::Prepare(ConnectionId::try_from(prepare.nonce.as_slice())?),
            Kind::DialPrepared(to) => Self::DialPrepared(target(to)?),
            Kind::DialGateway(to) => Self::DialGateway(target(to)?),
        })
    }
}

impl From<Task> for proto::ProbeTask {
    fn from(task: Task) -> Self {
        use probe_task::Kind;
        let to = |to: ProbeTarget| probe_task::Dial { address: to.address, nonce: to.nonce.0.to_vec() };
        let kind = match task {
            Task::Dial(target) => Kind::Dial(to(target)),
            Task::Prepare(nonce) => Kind::Prepare(probe_task::Prepare { nonce: nonce.0.to_vec() }),
            Task::DialPrepared(target) => Kind::DialPrepared(to(target)),
            Task::DialGateway(target) => Kind::DialGateway(to(target)),
        };
        Self { kind: Some(kind) }
    }
}

impl From<proto::ProbeReply> for Outcome {
    /// A result of an unknown kind counts as not done.
    fn from(reply: proto::ProbeReply) -> Self {
        use probe_reply::Result;
        match reply.result {
            Some(Result::Connected(_)) => Self::Connected,
            Some(Result::Refused(detail)) => Self::Refused(detail),
            Some(Result::NoAnswer(detail)) => Self::NoAnswer(detail),
            Some(Result::NotDone(detail)) => Self::NotDone(detail),
            Some(Result::Prepared(port)) => match u16::try_from(port) {
                Ok(port) if port > 0 => Self::Prepared(port),
                _ => Self::NotDone(format!("the relay prepared port {port}, which is none")),
            },
            None => Self::NotDone("the relay's reply has no result that this version has".to_owned()),
        }
    }
}

impl From<Outcome> for proto::ProbeReply {
    fn from(outcome: Outcome) -> Self {
        use probe_reply::Result;
        let result = match outcome {
            Outcome::Connected => Result::Connected(probe_reply::Connected {}),
            Outcome::Refused(detail) => Result::Refused(detail),
            Outcome::NoAnswer(detail) => Result::NoAnswer(detail),
            Outcome::NotDone(detail) => Result::NotDone(detail),
            Outcome::Prepared(port) => Result::Prepared(port.into()),
        };
        Self { result: Some(result) }
    }
}

fn target(dial: &probe_task::Dial) -> Result<ProbeTarget, DecodeError> {
    if dial.address.is_empty() || dial.address.len() > TEXT {
        return Err(malformed(format!("an address of {} bytes", dial.address.len())));
    }
    Ok(ProbeTarget::new(&dial.address, ConnectionId::try_from(dial.nonce.as_slice())?))
}

fn malformed(reason: impl Into<String>) -> DecodeError {
    DecodeError { message: TASK, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: ConnectionId = ConnectionId([3; 16]);

    #[test]
    fn tasks_and_outcomes_survive() {
        let target = || ProbeTarget::new("192.0.2.1:7730", NONCE);
        for task in [
            Task::Dial(target()),
            Task::Prepare(NONCE),
            Task::DialPrepared(target()),
            Task::DialGateway(target()),
        ] {
            assert_eq!(Task::try_from(&proto::ProbeTask::from(task.clone())), Ok(task));
        }
        for outcome in [
            Outcome::Connected,
            Outcome::Refused("a".to_owned()),
            Outcome::NoAnswer("b".to_owned()),
            Outcome::NotDone("c".to_owned()),
            Outcome::Prepared(65_535),
        ] {
            assert_eq!(Outcome::from(proto::ProbeReply::from(outcome.clone())), outcome);
        }
    }

    #[test]
    fn malformed_tasks_and_replies() {
        use probe_task::{Dial, Kind, Prepare};
        let dial = |address: &str, nonce: usize| {
            Some(Kind::Dial(Dial { address: address.to_owned(), nonce: vec![1; nonce] }))
        };
        for (kind, want) in [
            (None, "malformed probe: no kind that this version has"),
            (dial("", 16), "malformed probe: an address of 0 bytes"),
            (dial(&"a".repeat(TEXT + 1), 16), "malformed probe: an address of 264 bytes"),
            (dial("192.0.2.1:7730", 15), "malformed connection id: expected 16 bytes, got 15"),
            (
                Some(Kind::Prepare(Prepare { nonce: Vec::new() })),
                "malformed connection id: expected 16 bytes, got 0",
            ),
        ] {
            let error = Task::try_from(&proto::ProbeTask { kind }).unwrap_err();
            assert_eq!(error.to_string(), want);
        }
        for result in
            [None, Some(probe_reply::Result::Prepared(0)), Some(probe_reply::Result::Prepared(1 << 16))]
        {
            let outcome = Outcome::from(proto::ProbeReply { result });
            assert!(matches!(outcome, Outcome::NotDone(_)), "{outcome:?}");
        }
    }
}
