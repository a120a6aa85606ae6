//! Dials nodes and gateways for reach tests, on the broker's order.
//!
//! A relay must not become a scanner of the networks that it reaches. So these rules
//! hold:
//! - It dials only addresses from which a client has recently asked for its outside
//!   address. That was over TCP, so the address is the client's own.
//! - It dials no port of system services.
//! - The number of dials under way is bounded.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_net::callback::{FIRST_PORT, HTTPS};
use isthmus_net::dial::{self, DialError, SilentPort, SocketOptions};
use isthmus_net::lock;
use isthmus_splice::RecentClients;
use isthmus_wire::proto::{ProbeKind, ProbeOrder, ProbeOutcome, ProbeReply, ProbeReport};
use isthmus_wire::{ConnectionId, hello};
use tokio::sync::{Semaphore, mpsc};

/// How long a node may take to answer: a SYN and two that the kernel repeats.
const DEADLINE: Duration = Duration::from_secs(3);
/// Dials under way at most.
const AT_ONCE: usize = 64;
/// How long a port stays prepared, and the most prepared ports at once.
const PREPARED_FOR: Duration = Duration::from_secs(15);
const MAX_PREPARED: usize = 64;

/// Carries orders out.
#[derive(Debug)]
pub(crate) struct Prober {
    recent_clients: Arc<RecentClients>,
    prepared: Mutex<HashMap<ConnectionId, (Arc<SilentPort>, Instant)>>,
    running: Semaphore,
}

impl Prober {
    pub(crate) fn new(recent_clients: Arc<RecentClients>) -> Self {
        Self { recent_clients, prepared: Mutex::default(), running: Semaphore::new(AT_ONCE) }
    }

    /// Carries an order out in a task of its own, which reports the result.
    pub(crate) fn order(self: &Arc<Self>, order: ProbeOrder, reports_tx: mpsc::Sender<ProbeReport>) {
        let prober = self.clone();
        tokio::spawn(async move {
            let reply = prober.carry_out(&order).await;
            tracing::debug!(address = order.address, outcome = ?reply.outcome(), reply.detail, "probed");
            // The attachment may have ended.
            let _ = reports_tx.send(ProbeReport { id: order.id, reply: Some(reply) }).await;
        });
    }

    async fn carry_out(&self, order: &ProbeOrder) -> ProbeReply {
        let Ok(nonce) = ConnectionId::try_from(order.nonce.as_slice()) else {
            return not_done("the nonce is not 16 bytes");
        };
        match order.kind() {
            ProbeKind::ProbePrepare => self.prepare(nonce, Instant::now()),
            ProbeKind::ProbeDial | ProbeKind::ProbeDialPrepared | ProbeKind::ProbeDialGateway => {
                let Ok(_permit) = self.running.try_acquire() else {
                    return not_done("the relay has too many probes under way");
                };
                let address = match self.allowed(&order.address, order.kind()).await {
                    Ok(address) => address,
                    Err(reason) => return not_done(&reason),
                };
                let hello = hello::RENDEZVOUS.encode(nonce);
                let dial = async |first: &[u8]| {
                    dial::introduced(&address.to_string(), first, SocketOptions::default(), DEADLINE).await
                };
                let dialed = match order.kind() {
                    ProbeKind::ProbeDialPrepared => {
                        let prepared = lock(&self.prepared).remove(&nonce);
                        let Some((port, _)) = prepared else {
                            return not_done("no port is prepared for this");
                        };
                        port.introduced(address, &hello, DEADLINE).await
                    }
                    ProbeKind::ProbeDialGateway => dial(&hello::REACH_TEST.encode(nonce)).await,
                    _ => dial(&hello).await,
                };
                outcome(dialed.map(drop))
            }
            ProbeKind::ProbeUnknown => not_done("this relay does not have this kind of probe"),
        }
    }

    fn prepare(&self, nonce: ConnectionId, now: Instant) -> ProbeReply {
        let mut prepared = lock(&self.prepared);
        prepared.retain(|_, (_, at)| now.saturating_duration_since(*at) < PREPARED_FOR);
        if prepared.len() >= MAX_PREPARED {
            return not_done("the relay has too many probes under way");
        }
        match SilentPort::open() {
            Ok(port) => {
                let number = port.port().into();
                prepared.insert(nonce, (Arc::new(port), now));
                ProbeReply { port: number, outcome: ProbeOutcome::Prepared.into(), ..ProbeReply::default() }
            }
            Err(error) => not_done(&format!("the relay cannot take a port: {error}")),
        }
    }

    /// The address to dial, if the rules allow it.
    async fn allowed(&self, address: &str, kind: ProbeKind) -> Result<SocketAddr, String> {
        let resolving = tokio::time::timeout(DEADLINE, dial::resolve(address)).await;
        let resolved = resolving.map_err(|_| format!("{address} is not resolved in time"))?;
        let to = resolved.map_err(|error| error.to_string())?;
        let gateway = kind == ProbeKind::ProbeDialGateway && to.port() == HTTPS;
        if to.port() < FIRST_PORT && !gateway {
            return Err(format!("{to} has a port of system services"));
        }
        if !self.recent_clients.know(to.ip(), Instant::now()) {
            return Err(format!("no client has recently connected to the relay from {}", to.ip()));
        }
        Ok(to)
    }
}

fn not_done(reason: &str) -> ProbeReply {
    ProbeReply { outcome: ProbeOutcome::NotDone.into(), detail: reason.to_owned(), ..ProbeReply::default() }
}

fn outcome(dialed: Result<(), DialError>) -> ProbeReply {
    use std::io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let (outcome, detail) = match dialed {
        Ok(()) => (ProbeOutcome::Connected, "connected".to_owned()),
        Err(DialError::TimedOut { waited, .. }) => {
            let seconds = waited.as_secs();
            (ProbeOutcome::NoAnswer, format!("no answer within {seconds} s; is a firewall dropping it?"))
        }
        Err(DialError::Connect { source, .. }) => match source.kind() {
            ConnectionRefused | ConnectionReset => {
                (ProbeOutcome::Refused, "the connection was refused".to_owned())
            }
            HostUnreachable | NetworkUnreachable | TimedOut => (ProbeOutcome::NoAnswer, source.to_string()),
            _ => (ProbeOutcome::NotDone, source.to_string()),
        },
        Err(other) => (ProbeOutcome::NotDone, other.to_string()),
    };
    ProbeReply { outcome: outcome.into(), detail, ..ProbeReply::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    const NONCE: ConnectionId = ConnectionId([3; 16]);

    fn prober(known: &[&str]) -> Prober {
        let recent_clients = RecentClients::default();
        for ip in known {
            recent_clients.note(ip.parse().unwrap(), Instant::now());
        }
        Prober::new(Arc::new(recent_clients))
    }

    fn order(kind: ProbeKind, address: &str) -> ProbeOrder {
        let nonce = NONCE.0.to_vec();
        ProbeOrder { id: vec![1; 16], kind: kind.into(), address: address.to_owned(), nonce }
    }

    #[tokio::test]
    async fn only_recent_clients_are_dialed_and_no_port_of_system_services() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stranger = prober(&[]).carry_out(&order(ProbeKind::ProbeDial, &address)).await;
        assert_eq!(stranger.outcome(), ProbeOutcome::NotDone);
        assert_eq!(stranger.detail, "no client has recently connected to the relay from 127.0.0.1");
        let prober = prober(&["127.0.0.1"]);
        let system = prober.carry_out(&order(ProbeKind::ProbeDial, "127.0.0.1:22")).await;
        assert_eq!(system.detail, "127.0.0.1:22 has a port of system services");
        for wrong in [
            ProbeOrder { nonce: vec![1], ..order(ProbeKind::ProbeDial, &address) },
            order(ProbeKind::ProbeUnknown, &address),
            order(ProbeKind::ProbeDial, "nowhere"),
            order(ProbeKind::ProbeDialPrepared, &address),
        ] {
            assert_eq!(prober.carry_out(&wrong).await.outcome(), ProbeOutcome::NotDone, "{wrong:?}");
        }
        let known = prober.carry_out(&order(ProbeKind::ProbeDial, &address)).await;
        assert_eq!(known.outcome(), ProbeOutcome::Connected);
        let mut hello = [0; hello::RENDEZVOUS_LEN];
        listener.accept().await.unwrap().0.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello::RENDEZVOUS.decode(&hello), Ok(NONCE));
        drop(listener);
        let gone = prober.carry_out(&order(ProbeKind::ProbeDial, &address)).await;
        assert_eq!(
            (gone.outcome(), gone.detail.as_str()),
            (ProbeOutcome::Refused, "the connection was refused")
        );
    }

    #[tokio::test]
    async fn a_gateway_receives_the_reach_test() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let prober = prober(&["127.0.0.1"]);
        let reply = prober.carry_out(&order(ProbeKind::ProbeDialGateway, &address)).await;
        assert_eq!(reply.outcome(), ProbeOutcome::Connected);
        let mut shown = [0; hello::REACH_TEST_LEN];
        listener.accept().await.unwrap().0.read_exact(&mut shown).await.unwrap();
        assert_eq!(hello::REACH_TEST.decode(&shown), Ok(NONCE));
        let system = prober.carry_out(&order(ProbeKind::ProbeDialGateway, "127.0.0.1:22")).await;
        assert_eq!(system.outcome(), ProbeOutcome::NotDone);
        let https = prober.carry_out(&order(ProbeKind::ProbeDialGateway, "127.0.0.1:443")).await;
        assert_ne!(https.outcome(), ProbeOutcome::NotDone, "{}", https.detail);
    }

    #[tokio::test]
    async fn a_prepared_port_is_dialed_from_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let prober = prober(&["127.0.0.1"]);
        let prepared = prober.carry_out(&order(ProbeKind::ProbePrepare, "")).await;
        assert_eq!(prepared.outcome(), ProbeOutcome::Prepared);
        let dial = order(ProbeKind::ProbeDialPrepared, &address);
        assert_eq!(prober.carry_out(&dial).await.outcome(), ProbeOutcome::Connected);
        assert_eq!(u32::from(listener.accept().await.unwrap().1.port()), prepared.port);
        assert_eq!(prober.carry_out(&dial).await.outcome(), ProbeOutcome::NotDone, "it is used up");
    }
}
