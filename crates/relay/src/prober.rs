//! Dials nodes and gateways for reach tests, on the broker's order.
//!
//! A relay must not become a scanner of the networks that it reaches. So these rules
//! hold:
//! - It dials only the address from which a client has named the test, when it asked for
//!   its outside address. That was over TCP, so the address is the client's own.
//! - It dials no port of system services.
//! - The number of dials under way is bounded.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_net::callback::{FIRST_PORT, HTTPS};
use isthmus_net::dial::{self, DialError, SilentPort, SocketOptions};
use isthmus_rpc::probe::{Outcome, ProbeTarget, Task};
use isthmus_service::lock;
use isthmus_splice::Claims;
use isthmus_wire::proto::{ProbeOrder, ProbeReport};
use isthmus_wire::{ConnectionId, hello};
use tokio::sync::{Semaphore, mpsc};

/// How long a node may take to answer: long enough for a SYN that the kernel repeats twice.
const DEADLINE: Duration = Duration::from_secs(3);
/// Most dials that are under way at once.
const AT_ONCE: usize = 64;
/// How long a prepared port waits for its dial; at most [`MAX_PREPARED`] ports wait.
const PREPARED_FOR: Duration = Duration::from_secs(15);
const MAX_PREPARED: usize = 64;

/// Makes the connections of reach tests that the broker orders.
#[derive(Debug)]
pub struct Prober {
    claims: Arc<Claims>,
    prepared: Mutex<HashMap<ConnectionId, (Arc<SilentPort>, Instant)>>,
    running: Semaphore,
}

impl Prober {
    /// A prober that dials whom clients of the port with these claims have named.
    pub fn new(claims: Arc<Claims>) -> Self {
        Self { claims, prepared: Mutex::default(), running: Semaphore::new(AT_ONCE) }
    }

    /// Carries an order out in a task of its own, which reports the result.
    pub(crate) fn order(self: &Arc<Self>, order: ProbeOrder, reports_tx: mpsc::Sender<ProbeReport>) {
        let prober = self.clone();
        tokio::spawn(async move {
            let outcome = match Task::try_from(&order.task.unwrap_or_default()) {
                Ok(task) => {
                    let outcome = prober.carry_out(&task).await;
                    tracing::debug!(?task, ?outcome, "probed");
                    outcome
                }
                Err(error) => Outcome::NotDone(error.to_string()),
            };
            // The attachment may have ended.
            let _ = reports_tx.send(ProbeReport { id: order.id, reply: Some(outcome.into()) }).await;
        });
    }

    async fn carry_out(&self, task: &Task) -> Outcome {
        match task {
            Task::Prepare(nonce) => self.prepare(*nonce, Instant::now()),
            Task::Dial(to) => self.dial(to, false, &hello::RENDEZVOUS.encode(to.nonce)).await,
            Task::DialGateway(to) => self.dial(to, true, &hello::REACH_TEST.encode(to.nonce)).await,
            Task::DialPrepared(to) => self.dial_prepared(to).await,
        }
    }

    /// Dials from any port and sends `first`, the message that the dialed party expects.
    async fn dial(&self, to: &ProbeTarget, gateway: bool, first: &[u8]) -> Outcome {
        let Ok(_permit) = self.running.try_acquire() else { return too_many() };
        let address = match self.allowed(to, gateway).await {
            Ok(address) => address.to_string(),
            Err(reason) => return Outcome::NotDone(reason),
        };
        outcome(dial::introduced(&address, first, SocketOptions::default(), DEADLINE).await.map(drop))
    }

    async fn dial_prepared(&self, to: &ProbeTarget) -> Outcome {
        let Ok(_permit) = self.running.try_acquire() else { return too_many() };
        let address = match self.allowed(to, false).await {
            Ok(address) => address,
            Err(reason) => return Outcome::NotDone(reason),
        };
        let prepared = lock(&self.prepared).remove(&to.nonce);
        let Some((port, _)) = prepared else {
            return Outcome::NotDone("no port is prepared for this".to_owned());
        };
        let hello = hello::RENDEZVOUS.encode(to.nonce);
        outcome(port.introduced(address, &hello, DEADLINE).await.map(drop))
    }

    fn prepare(&self, nonce: ConnectionId, now: Instant) -> Outcome {
        let mut prepared = lock(&self.prepared);
        prepared.retain(|_, (_, at)| now.saturating_duration_since(*at) < PREPARED_FOR);
        if prepared.len() >= MAX_PREPARED {
            return too_many();
        }
        match SilentPort::open() {
            Ok(port) => {
                let number = port.port();
                prepared.insert(nonce, (Arc::new(port), now));
                Outcome::Prepared(number)
            }
            Err(error) => Outcome::NotDone(format!("the relay cannot take a port: {error}")),
        }
    }

    /// The address to dial; an error is the rule that forbids to dial it.
    async fn allowed(
        &self,
        ProbeTarget { address, nonce }: &ProbeTarget,
        gateway: bool,
    ) -> Result<SocketAddr, String> {
        let resolving = tokio::time::timeout(DEADLINE, dial::resolve(address)).await;
        let resolved = resolving.map_err(|_| format!("{address} is not resolved in time"))?;
        let to = resolved.map_err(|error| error.to_string())?;
        let https = gateway && to.port() == HTTPS;
        if to.port() < FIRST_PORT && !https {
            return Err(format!("{to} has a port of system services"));
        }
        if !self.claims.allow(*nonce, to.ip(), Instant::now()) {
            return Err(format!("no client has asked the relay for this test from {}", to.ip()));
        }
        Ok(to)
    }
}

fn too_many() -> Outcome {
    Outcome::NotDone("the relay has too many probes under way".to_owned())
}

fn outcome(dialed: Result<(), DialError>) -> Outcome {
    use std::io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    match dialed {
        Ok(()) => Outcome::Connected,
        Err(DialError::TimedOut { waited, .. }) => {
            let seconds = waited.as_secs();
            Outcome::NoAnswer(format!("no answer within {seconds} s; is a firewall dropping it?"))
        }
        Err(DialError::Connect { source, .. }) => match source.kind() {
            ConnectionRefused | ConnectionReset => Outcome::Refused("the connection was refused".to_owned()),
            HostUnreachable | NetworkUnreachable | TimedOut => Outcome::NoAnswer(source.to_string()),
            _ => Outcome::NotDone(source.to_string()),
        },
        Err(other) => Outcome::NotDone(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    const NONCE: ConnectionId = ConnectionId([3; 16]);

    fn prober(known: &[&str]) -> Prober {
        let claims = Claims::default();
        for ip in known {
            claims.note(NONCE, ip.parse().unwrap(), Instant::now());
        }
        Prober::new(Arc::new(claims))
    }

    fn target(address: &str) -> ProbeTarget {
        ProbeTarget::new(address, NONCE)
    }

    fn not_done(outcome: &Outcome) -> &str {
        match outcome {
            Outcome::NotDone(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn only_who_asked_is_dialed_and_no_port_of_system_services() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let dial = Task::Dial(target(&address));
        let unknown = prober(&[]).carry_out(&dial).await;
        assert_eq!(not_done(&unknown), "no client has asked the relay for this test from 127.0.0.1");
        let prober = prober(&["127.0.0.1"]);
        let of_another = Task::Dial(ProbeTarget::new(&address, ConnectionId([4; 16])));
        not_done(&prober.carry_out(&of_another).await);
        let system = prober.carry_out(&Task::Dial(target("127.0.0.1:22"))).await;
        assert_eq!(not_done(&system), "127.0.0.1:22 has a port of system services");
        for wrong in [Task::Dial(target("nowhere")), Task::DialPrepared(target(&address))] {
            not_done(&prober.carry_out(&wrong).await);
        }
        assert_eq!(prober.carry_out(&dial).await, Outcome::Connected);
        let mut hello = [0; hello::RENDEZVOUS_LEN];
        listener.accept().await.unwrap().0.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello::RENDEZVOUS.decode(&hello), Ok(NONCE));
        drop(listener);
        let refused = Outcome::Refused("the connection was refused".to_owned());
        assert_eq!(prober.carry_out(&dial).await, refused);
    }

    #[tokio::test]
    async fn a_malformed_order_is_reported_as_not_done() {
        let (reports_tx, mut reports_rx) = mpsc::channel(1);
        Arc::new(prober(&[])).order(ProbeOrder { id: vec![1; 16], task: None }, reports_tx);
        let report = reports_rx.recv().await.unwrap();
        assert_eq!(report.id, [1; 16]);
        let outcome = Outcome::from(report.reply.unwrap());
        assert_eq!(not_done(&outcome), "malformed probe: no kind that this version has");
    }

    #[tokio::test]
    async fn a_gateway_receives_the_reach_test() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let prober = prober(&["127.0.0.1"]);
        assert_eq!(prober.carry_out(&Task::DialGateway(target(&address))).await, Outcome::Connected);
        let mut shown = [0; hello::REACH_TEST_LEN];
        listener.accept().await.unwrap().0.read_exact(&mut shown).await.unwrap();
        assert_eq!(hello::REACH_TEST.decode(&shown), Ok(NONCE));
        not_done(&prober.carry_out(&Task::DialGateway(target("127.0.0.1:22"))).await);
        let https = prober.carry_out(&Task::DialGateway(target("127.0.0.1:443"))).await;
        assert!(!matches!(https, Outcome::NotDone(_)), "{https:?}");
    }

    #[tokio::test]
    async fn a_prepared_port_is_dialed_from_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let prober = prober(&["127.0.0.1"]);
        let Outcome::Prepared(port) = prober.carry_out(&Task::Prepare(NONCE)).await else {
            panic!("no port")
        };
        let dial = Task::DialPrepared(target(&address));
        assert_eq!(prober.carry_out(&dial).await, Outcome::Connected);
        assert_eq!(listener.accept().await.unwrap().1.port(), port);
        not_done(&prober.carry_out(&dial).await);
    }
}
