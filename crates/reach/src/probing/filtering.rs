//! What is let in to a port from which this node has connected. Relays dial it
//! from another address, from another port of the same address, and from the port
//! that the node sent a SYN to (RFC 5780 section 4.4, for TCP).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::dial::PunchPort;
use isthmus_plan::filtering::{Observed, Simultaneous};
use isthmus_plan::{Filtering, Mapping, Unsolicited};
use isthmus_rpc::connection;
use isthmus_rpc::grpc;
use isthmus_rpc::probe::{Outcome, ProbeTarget, Task};
use isthmus_service::lock;
use isthmus_wire::proto::ProbeRequest;
use isthmus_wire::{ConnectionId, hello};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::{PROBE, Probing};
use crate::outside::{REFLECTION_DEADLINE, Relay};
use crate::reachability::{LAG, reply_unless_arrived};

/// How long the relay's SYN may take before the node sends its own. The relay's SYN may be lost
/// once: the relay's kernel repeats it after 1 s.
const OWN_SYN_AFTER: Duration = Duration::from_millis(1500);
/// How long the answer to the node's own SYN may take.
const OWN_SYN_DEADLINE: Duration = Duration::from_millis(1300);
/// After how many failures a simultaneous open counts as impossible. A lost SYN looks like a
/// failure.
const TIMES: usize = 2;

/// What the site's filter does with connections from outside.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Which peers may connect to a port that the node has connected from.
    pub(super) filtering: Filtering,
    /// What the filter does with the SYNs of other peers.
    pub(super) unsolicited: Unsolicited,
}

/// Measures what is let in, by the first two of the relays, or by the only one.
pub(super) async fn find(probing: &Probing, relays: &[Relay], mapping: Mapping) -> Filter {
    let Some((first, at)) = relays.first().and_then(|first| Some((first, first.at?))) else {
        return Filter::default();
    };
    let port = match PunchPort::open(at, REFLECTION_DEADLINE).await {
        Ok(port) => port,
        Err(error) => {
            tracing::debug!(%error, "cannot find out what is let in");
            return Filter::default();
        }
    };
    let arrivals = match Arrivals::at(&port) {
        Ok(arrivals) => arrivals,
        Err(error) => {
            tracing::debug!(%error, "cannot listen at a port that is connected from");
            return Filter::default();
        }
    };
    let seen = port.seen().to_string();
    let (other_address, other_port) = tokio::join!(
        async { Some(arrivals.probe(probing, relays.get(1)?, &seen).await) },
        arrivals.probe(probing, first, &seen),
    );
    let mut observed = Observed {
        translated: matches!(mapping, Mapping::EndpointIndependent | Mapping::PortDependent),
        from_other_address: other_address.as_ref().and_then(Tried::let_in),
        from_other_port: other_port.let_in(),
        simultaneous: None,
    };
    if !observed.translated && observed.from_other_port == Some(false) {
        observed.simultaneous = simultaneous(probing, first).await;
    }
    let tried = [other_address, Some(other_port)];
    let unsolicited = tried.into_iter().flatten().find_map(|tried| match tried {
        Tried::KeptOut(unsolicited) => Some(unsolicited),
        Tried::LetIn | Tried::Nothing => None,
    });
    Filter { filtering: Filtering::of(&observed), unsolicited: unsolicited.unwrap_or_default() }
}

/// What came of a relay's dial to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    LetIn,
    KeptOut(Unsolicited),
    Nothing,
}

impl Tried {
    fn let_in(&self) -> Option<bool> {
        match self {
            Self::LetIn => Some(true),
            Self::KeptOut(_) => Some(false),
            Self::Nothing => None,
        }
    }
}

/// What the relay's reply shows, if no connection has arrived here.
fn kept_out(outcome: &Outcome) -> Tried {
    match outcome {
        Outcome::Refused(_) => Tried::KeptOut(Unsolicited::Reset),
        Outcome::NoAnswer(_) => Tried::KeptOut(Unsolicited::Dropped),
        // The connection arrived at another host: nothing was let in to this node.
        Outcome::Connected => Tried::KeptOut(Unsolicited::Unknown),
        Outcome::NotDone(_) | Outcome::Prepared(_) => Tried::Nothing,
    }
}

/// Connections that arrive at a port, by the id that they send first.
struct Arrivals {
    listener: TcpListener,
    nonces: Mutex<HashSet<ConnectionId>>,
}

impl Arrivals {
    fn at(port: &PunchPort) -> std::io::Result<Self> {
        Ok(Self { listener: port.listen()?, nonces: Mutex::default() })
    }

    /// Asks a relay to dial this node, and waits whether its connection arrives.
    async fn probe(&self, probing: &Probing, relay: &Relay, address: &str) -> Tried {
        let nonce = connection::new_id();
        // From another port: no connection may have left the tested one to this relay.
        let Some(at) = relay.at else { return Tried::Nothing };
        if PunchPort::open_for(at, nonce, REFLECTION_DEADLINE).await.is_err() {
            return Tried::Nothing;
        }
        self.result(probing, &relay.name, Task::Dial(ProbeTarget::new(address, nonce)), nonce).await
    }

    async fn result(&self, probing: &Probing, relay: &str, task: Task, nonce: ConnectionId) -> Tried {
        match reply_unless_arrived(self.arrival(nonce), ask(probing, relay, task)).await {
            None => Tried::LetIn,
            Some(Ok(outcome)) => kept_out(&outcome),
            Some(Err(_)) => Tried::Nothing,
        }
    }

    /// Waits until a connection with this nonce has arrived. Several calls may wait
    /// at once: each accepts the others' connections, too.
    async fn arrival(&self, nonce: ConnectionId) {
        loop {
            if lock(&self.nonces).contains(&nonce) {
                return;
            }
            tokio::select! {
                accepted = self.listener.accept() => {
                    let Ok((stream, _)) = accepted else { continue };
                    if let Some(received) = read_nonce(stream).await {
                        lock(&self.nonces).insert(received);
                    }
                }
                // Another call may have accepted it.
                () = sleep(Duration::from_millis(50)) => {}
            }
        }
    }
}

/// Reads the nonce that the other end sends first.
async fn read_nonce(mut stream: TcpStream) -> Option<ConnectionId> {
    let mut hello = [0; hello::RENDEZVOUS_LEN];
    timeout(LAG, stream.read_exact(&mut hello)).await.ok()?.ok()?;
    hello::RENDEZVOUS.decode(&hello).ok()
}

/// Asks a relay to carry out a task.
async fn ask(probing: &Probing, relay: &str, task: Task) -> Result<Outcome, Status> {
    let request =
        ProbeRequest { relay: relay.to_owned(), task: Some(task.into()), ..ProbeRequest::default() };
    let reply = probing.control.probe(request, PROBE.into()).await;
    reply.map(Outcome::from).inspect_err(|status| {
        tracing::debug!(relay, reason = grpc::reason(status), "a relay does not probe this node");
    })
}

/// Whether a SYN is let in from exactly the address and port to which the node has sent one.
async fn simultaneous(probing: &Probing, relay: &Relay) -> Option<Simultaneous> {
    for _ in 0..TIMES {
        match try_simultaneous(probing, relay).await? {
            Simultaneous::LetIn => return Some(Simultaneous::LetIn),
            Simultaneous::OnlyAnswered => {}
        }
    }
    Some(Simultaneous::OnlyAnswered)
}

/// Tries a simultaneous open once. The node sends a SYN to a port of the relay that doesn't answer,
/// and closes the socket; firewalls on the way keep state of it. Then the relay dials from that
/// port. If nothing arrives, the node dials the same port once more, while the relay still dials.
/// An answer shows two things: both used the same port, and only the relay's SYN was dropped.
async fn try_simultaneous(probing: &Probing, relay: &Relay) -> Option<Simultaneous> {
    let nonce = connection::new_id();
    let at = relay.at?;
    let port = PunchPort::open_for(at, nonce, REFLECTION_DEADLINE).await.ok()?;
    let arrivals = Arrivals::at(&port).ok()?;
    let Ok(Outcome::Prepared(silent)) = ask(probing, &relay.name, Task::Prepare(nonce)).await else {
        return None;
    };
    let there = SocketAddr::new(at.ip(), silent);
    port.touch(there).ok()?;
    let seen = port.seen().to_string();
    let own_syn = async {
        sleep(OWN_SYN_AFTER).await;
        let stream = timeout(OWN_SYN_DEADLINE, port.reach(there)).await.ok()?.ok()?;
        (read_nonce(stream).await? == nonce).then_some(Simultaneous::OnlyAnswered)
    };
    let its_syn =
        arrivals.result(probing, &relay.name, Task::DialPrepared(ProbeTarget::new(seen, nonce)), nonce);
    tokio::pin!(own_syn);
    tokio::pin!(its_syn);
    tokio::select! {
        tried = &mut its_syn => match tried {
            Tried::LetIn => Some(Simultaneous::LetIn),
            Tried::KeptOut(_) | Tried::Nothing => own_syn.await,
        },
        answered = &mut own_syn => match answered {
            Some(answered) => Some(answered),
            None => matches!(its_syn.await, Tried::LetIn).then_some(Simultaneous::LetIn),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relays_reply_shows_what_happens_to_other_syns() {
        for (outcome, want) in [
            (Outcome::Refused(String::new()), Tried::KeptOut(Unsolicited::Reset)),
            (Outcome::NoAnswer(String::new()), Tried::KeptOut(Unsolicited::Dropped)),
            (Outcome::Connected, Tried::KeptOut(Unsolicited::Unknown)),
            (Outcome::NotDone(String::new()), Tried::Nothing),
        ] {
            assert_eq!(kept_out(&outcome), want, "{outcome:?}");
        }
    }
}
