//! What is let in to a port from which this node has connected: relays dial it
//! from another address, from the same with another port, and from the very
//! port that the node has sent a SYN to (RFC 5780 section 4.4, for TCP).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::dial::{self, PunchPort};
use isthmus_net::lock;
use isthmus_net::mac;
use isthmus_plan::filtering::{Observed, Simultaneous};
use isthmus_plan::{Filtering, Mapping, Unsolicited};
use isthmus_wire::proto::{ProbeKind, ProbeOutcome, ProbeReply, ProbeRequest};
use isthmus_wire::{ConnectionId, hello};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::Probing;
use crate::outside::{REFLECTION_DEADLINE, Relay};

/// How much later than the relay's word that it is connected its connection may
/// come.
const LAG: Duration = Duration::from_secs(2);
/// How long a SYN of the relay's may take to come, once lost on the way and
/// repeated by its kernel after 1 s, before the node sends its own.
const OWN_SYN_AFTER: Duration = Duration::from_millis(1500);
/// How long that one may take to be answered.
const OWN_SYN_DEADLINE: Duration = Duration::from_millis(1300);
/// Times that a simultaneous open must fail alike: a lost SYN looks the same.
const TIMES: usize = 2;

/// What was found out.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// What is let in.
    pub(super) filtering: Filtering,
    /// What becomes of the rest.
    pub(super) unsolicited: Unsolicited,
}

/// Finds out, with one relay or two.
pub(super) async fn find(probing: &Probing, relays: &[Relay], mapping: Mapping) -> Filter {
    let Some(first) = relays.first() else { return Filter::default() };
    let port = match PunchPort::open(&first.address, REFLECTION_DEADLINE).await {
        Ok(port) => port,
        Err(error) => {
            tracing::debug!(%error, "cannot find out what is let in");
            return Filter::default();
        }
    };
    let come = match Come::at(&port) {
        Ok(come) => come,
        Err(error) => {
            tracing::debug!(%error, "cannot listen at a port that is connected from");
            return Filter::default();
        }
    };
    let seen = port.seen().to_string();
    let (other_address, other_port) = tokio::join!(
        async { Some(come.probe(probing, &relays.get(1)?.name, ProbeKind::ProbeDial, &seen).await) },
        come.probe(probing, &first.name, ProbeKind::ProbeDial, &seen),
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

/// What came of a relay's attempt.
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

/// What a relay's word means if it didn't come here.
fn kept_out(reply: &ProbeReply) -> Tried {
    match reply.outcome() {
        ProbeOutcome::Refused => Tried::KeptOut(Unsolicited::Reset),
        ProbeOutcome::NoAnswer => Tried::KeptOut(Unsolicited::Dropped),
        // It came to somebody else: nothing was let in to here.
        ProbeOutcome::Connected => Tried::KeptOut(Unsolicited::Unknown),
        ProbeOutcome::Unknown | ProbeOutcome::NotDone | ProbeOutcome::Prepared => Tried::Nothing,
    }
}

/// Who comes to a port, by what they say.
struct Come {
    listener: TcpListener,
    nonces: Mutex<HashSet<ConnectionId>>,
}

impl Come {
    fn at(port: &PunchPort) -> std::io::Result<Self> {
        Ok(Self { listener: port.listen()?, nonces: Mutex::default() })
    }

    /// Has a relay dial, and waits whether it comes.
    async fn probe(&self, probing: &Probing, relay: &str, kind: ProbeKind, address: &str) -> Tried {
        self.probe_as(probing, relay, kind, address, mac::new_connection()).await
    }

    async fn probe_as(
        &self,
        probing: &Probing,
        relay: &str,
        kind: ProbeKind,
        address: &str,
        nonce: ConnectionId,
    ) -> Tried {
        let dialing = dial(probing, relay, kind, address, nonce);
        tokio::pin!(dialing);
        let reply = tokio::select! {
            () = self.comes(nonce) => return Tried::LetIn,
            reply = &mut dialing => reply,
        };
        if reply.outcome() == ProbeOutcome::Connected && timeout(LAG, self.comes(nonce)).await.is_ok() {
            return Tried::LetIn;
        }
        kept_out(&reply)
    }

    /// Until somebody has come with this nonce. Several may wait at once: any of
    /// them takes in whoever comes.
    async fn comes(&self, nonce: ConnectionId) {
        loop {
            if lock(&self.nonces).contains(&nonce) {
                return;
            }
            tokio::select! {
                accepted = self.listener.accept() => {
                    let Ok((stream, _)) = accepted else { continue };
                    if let Some(said) = said(stream).await {
                        lock(&self.nonces).insert(said);
                    }
                }
                // Another one may have taken it in.
                () = sleep(Duration::from_millis(50)) => {}
            }
        }
    }
}

/// What somebody says first.
async fn said(mut stream: TcpStream) -> Option<ConnectionId> {
    let mut hello = [0; hello::RENDEZVOUS_LEN];
    timeout(LAG, stream.read_exact(&mut hello)).await.ok()?.ok()?;
    hello::RENDEZVOUS.decode(&hello).ok()
}

async fn dial(
    probing: &Probing,
    relay: &str,
    kind: ProbeKind,
    address: &str,
    nonce: ConnectionId,
) -> ProbeReply {
    let request = ProbeRequest {
        relay: relay.to_owned(),
        kind: kind.into(),
        address: address.to_owned(),
        nonce: nonce.0.to_vec(),
        ..ProbeRequest::default()
    };
    probing.control.probe(request).await.unwrap_or_else(|status| {
        tracing::debug!(relay, %status, "a relay does not probe this node");
        ProbeReply::default()
    })
}

/// Whether a SYN is let in from exactly where one was sent to.
async fn simultaneous(probing: &Probing, relay: &Relay) -> Option<Simultaneous> {
    for _ in 0..TIMES {
        match try_simultaneous(probing, relay).await? {
            Simultaneous::LetIn => return Some(Simultaneous::LetIn),
            Simultaneous::OnlyAnswered => {}
        }
    }
    Some(Simultaneous::OnlyAnswered)
}

/// The node sends a SYN to a port of the relay's that doesn't answer, and
/// forgets it; whatever keeps state on the way doesn't. Then the relay dials
/// from that port. If nothing comes, the node dials the same port once more,
/// while the relay still does: an answer shows that both have meant the same
/// port, and only the relay's SYN was kept out.
async fn try_simultaneous(probing: &Probing, relay: &Relay) -> Option<Simultaneous> {
    let port = PunchPort::open(&relay.address, REFLECTION_DEADLINE).await.ok()?;
    let come = Come::at(&port).ok()?;
    let nonce = mac::new_connection();
    let prepared = dial(probing, &relay.name, ProbeKind::ProbePrepare, "", nonce).await;
    let silent = u16::try_from(prepared.port).ok().filter(|port| *port != 0)?;
    let ip = dial::resolve(&relay.address).await.ok()?.ip();
    let there = SocketAddr::new(ip, silent);
    port.touch(there).ok()?;
    let seen = port.seen().to_string();
    let own_syn = async {
        sleep(OWN_SYN_AFTER).await;
        let stream = timeout(OWN_SYN_DEADLINE, port.reach(there)).await.ok()?.ok()?;
        (said(stream).await? == nonce).then_some(Simultaneous::OnlyAnswered)
    };
    let its_syn = come.probe_as(probing, &relay.name, ProbeKind::ProbeDialPrepared, &seen, nonce);
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
    fn what_a_relay_met_says_what_becomes_of_the_rest() {
        for (outcome, want) in [
            (ProbeOutcome::Refused, Tried::KeptOut(Unsolicited::Reset)),
            (ProbeOutcome::NoAnswer, Tried::KeptOut(Unsolicited::Dropped)),
            (ProbeOutcome::Connected, Tried::KeptOut(Unsolicited::Unknown)),
            (ProbeOutcome::NotDone, Tried::Nothing),
        ] {
            let reply = ProbeReply { outcome: outcome.into(), ..ProbeReply::default() };
            assert_eq!(kept_out(&reply), want, "{outcome:?}");
        }
    }
}
