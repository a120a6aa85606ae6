//! `punch`: both sides connect to each other at once. Each uses a port whose
//! outside address it predicts or has learned from a relay.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_net::callback;
use isthmus_net::dial::{PunchPort, SocketOptions};
use isthmus_rpc::connection;
use isthmus_rpc::rendezvous::{ReplyWay, RequestWay, answer_to_wire};
use isthmus_service::Deadline;
use isthmus_wire::ConnectionId;
use isthmus_wire::proto::attach_up;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, StepError, unexpected};
use crate::dialer::Dialer;
use crate::failed::{DialFailed, NotDialed};

/// How long `punch` may take until both sides are connected.
const CONNECT: Duration = Duration::from_secs(6);
/// How long `punch` may take with predicted addresses, before both sides ask a relay. A lost SYN is
/// repeated after 1 s.
const PREDICTED: Duration = Duration::from_millis(2500);

impl Attempt<'_> {
    pub(super) async fn punch(&mut self) -> Result<TcpStream, StepError> {
        let outside = &self.dialer.outside;
        let deadline = self.part(CONNECT);
        let mut wrong = false;
        if outside.predicts() {
            let mut arranged = false;
            let predicted = self.punch_once(false, self.part(PREDICTED), &mut arranged).await;
            if predicted.is_ok() {
                return predicted;
            }
            // Without an arrangement nobody dialed the predicted port.
            wrong = arranged;
        }
        let punched = self.punch_once(true, deadline, &mut false).await?;
        if wrong {
            // The prediction may have been wrong at this side.
            outside.drop_prediction();
        }
        Ok(punched)
    }

    /// Dials once. With `ask`, both sides learn their addresses from a relay; without it, they
    /// predict them. `arranged` is set once both sides know where to dial.
    async fn punch_once(
        &mut self,
        ask: bool,
        deadline: Deadline,
        arranged: &mut bool,
    ) -> Result<TcpStream, StepError> {
        let punched = async {
            let port = self.dialer.outside.port(ask, None).await?;
            let rendezvous = connection::new_id();
            let own = self.dialer.signatures.port(rendezvous, port.seen());
            let way = RequestWay::Punch { rendezvous, port: own, ask };
            let ReplyWay::Punch(acceptor) = self.rendezvous(way).await? else { return Err(unexpected()) };
            *arranged = true;
            check(acceptor.address, self.dialer)?;
            self.unsigned |= !self.found.has_signed(rendezvous, &acceptor);
            Ok(port.connect(&acceptor.address.to_string(), self.options, deadline).await?)
        };
        let late = |_| {
            StepError::next(format!(
                "both sides dialed, and no connection stood within {:?}",
                deadline.limit()
            ))
        };
        deadline.bound(punched).await.map_err(late)?
    }
}

/// The acceptor's part: sends the broker the address that this side dials from, and dials.
pub(super) async fn accept(
    (rendezvous, initiator): (ConnectionId, SocketAddr),
    (reflectors, ask): (&[String], bool),
    dialer: &Dialer,
    (options, deadline): (SocketOptions, Deadline),
) -> Result<TcpStream, DialFailed> {
    // A reflector that is where no relay may be isn't asked. Another relay may have answered
    // before.
    let reflector = match reflectors.first() {
        Some(reflector) => dialer.relay_address(reflector, deadline).await.ok(),
        None => None,
    };
    let port = match check(initiator, dialer) {
        Ok(()) => dialer.outside.port(ask, reflector).await,
        Err(error) => Err(error.into()),
    };
    let own = |port: &PunchPort| Some(dialer.signatures.port(rendezvous, port.seen()));
    let answer = answer_to_wire(rendezvous, port.as_ref().map(own).map_err(ToString::to_string));
    dialer.control.send(attach_up::Kind::DialAnswer(answer)).await;
    Ok(port?.connect(&initiator.to_string(), options, deadline).await?)
}

/// Whether a port may be dialed that the other party says it punches from.
fn check(port: SocketAddr, dialer: &Dialer) -> Result<(), NotDialed> {
    callback::check(port)?;
    dialer.control.check_address(port.ip())
}
