//! `punch`: both connect to each other at once, each from a port whose outside
//! address is foreseen, or a relay has told.

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::dial::{PunchPort, SocketOptions};
use isthmus_net::mac;
use isthmus_wire::proto::{self, attach_up};
use tokio::net::TcpStream;

use crate::attempt::{Attempt, StepError};
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
            let request = proto::RendezvousRequest {
                dial: proto::Dial::Punch.into(),
                rendezvous: mac::new_connection().0.to_vec(),
                initiator_address: port.seen().to_string(),
                ask,
                ..proto::RendezvousRequest::default()
            };
            let reply = self.rendezvous(request).await?;
            Ok(port.connect(&reply.acceptor_address, self.options, deadline).await?)
        };
        let late =
            |_| StepError::Next(format!("both sides dialed, and nothing came within {:?}", deadline.limit()));
        deadline.bound(punched).await.map_err(late)?
    }
}

/// Sends the broker where this side will dial from, and dials.
pub(super) async fn accept(
    request: &proto::DialRequest,
    dialer: &Dialer,
    deadline: Deadline,
) -> Result<TcpStream, String> {
    let initiator = super::initiator(request).await?;
    let reflector = request.reflectors.first().map(String::as_str);
    let port = dialer.outside.port(request.ask, reflector).await;
    let seen = port.as_ref().map(PunchPort::seen);
    let answer = proto::DialAnswer {
        rendezvous: request.rendezvous.clone(),
        address: seen.as_ref().map(ToString::to_string).unwrap_or_default(),
        failure: seen.err().cloned().unwrap_or_default(),
    };
    dialer.control.send(attach_up::Kind::DialAnswer(answer)).await;
    port?.connect(&initiator, SocketOptions::default(), deadline).await.map_err(super::text)
}
