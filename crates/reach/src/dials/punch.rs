//! `punch`: both connect to each other at once, each from a port whose outside
//! address is foreseen, or a relay has told.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_net::dial::SocketOptions;
use isthmus_net::rendezvous::{ReplyWay, Way, answer_to_wire};
use isthmus_net::{Deadline, callback, mac};
use isthmus_wire::ConnectionId;
use isthmus_wire::proto::attach_up;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, StepError, unexpected};
use crate::dialer::Dialer;

/// How long it may take until both sides are connected.
const CONNECT: Duration = Duration::from_secs(6);
/// How long `punch` may take by what is foreseen of the two NATs, before both
/// sides ask: a lost SYN is repeated after 1 s.
const FORESEEN: Duration = Duration::from_millis(2500);

impl Attempt<'_> {
    pub(super) async fn punch(&mut self) -> Result<TcpStream, StepError> {
        let outside = &self.dialer.outside;
        let deadline = self.deadline.part(CONNECT);
        if outside.foresees() {
            let foreseen = self.punch_once(false, deadline.part(FORESEEN)).await;
            if foreseen.is_ok() {
                return foreseen;
            }
        }
        let punched = self.punch_once(true, deadline).await?;
        // One of the two NATs did not do as it was seen to.
        outside.foresee_nothing();
        Ok(punched)
    }

    /// `ask`: both ask how they are seen, rather than go by what they foresee.
    async fn punch_once(&mut self, ask: bool, deadline: Deadline) -> Result<TcpStream, StepError> {
        let punched = async {
            let port = self.dialer.outside.port(ask, None).await.map_err(StepError::Next)?;
            let way = Way::Punch { rendezvous: mac::new_connection(), address: port.seen(), ask };
            let ReplyWay::Punch(acceptor) = self.rendezvous(way).await? else { return Err(unexpected()) };
            Ok(port.connect(&acceptor.to_string(), self.options, deadline).await?)
        };
        let late =
            |_| StepError::Next(format!("both sides dialed, and nothing came within {:?}", deadline.limit()));
        deadline.bound(punched).await.map_err(late)?
    }
}

/// Sends the broker where this side will dial from, and dials.
pub(super) async fn accept(
    (rendezvous, initiator): (ConnectionId, SocketAddr),
    (reflectors, ask): (&[String], bool),
    dialer: &Dialer,
    deadline: Deadline,
) -> Result<TcpStream, String> {
    callback::check(initiator).map_err(|error| error.to_string())?;
    let port = dialer.outside.port(ask, reflectors.first().map(String::as_str)).await;
    let seen = port.as_ref().map(|port| Some(port.seen())).map_err(Clone::clone);
    let answer = answer_to_wire(rendezvous, seen);
    dialer.control.send(attach_up::Kind::DialAnswer(answer)).await;
    port?.connect(&initiator.to_string(), SocketOptions::default(), deadline).await.map_err(super::text)
}
