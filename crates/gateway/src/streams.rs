//! Streams between the site's nodes and the outside. A node connects to its
//! gateway and sends a ticket. The other side connects to the gateway's outside
//! port with the other ticket, or the gateway dials the address that the broker
//! sent. Tickets are matched and data is carried as at relays: the bytes never
//! enter this process' memory, and no gRPC thread carries them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use isthmus_net::dial::{SocketOptions, direct};
use isthmus_net::relay_places::RelayPlaces;
use isthmus_rpc::rendezvous::{Leg, SealedTicket};
use isthmus_service::mac::Secret;
use isthmus_service::{Deadline, Late, lock};
use isthmus_splice::TicketKey;
use isthmus_splice::admission::{Candidate, Origin};
use isthmus_wire::ConnectionId;
use isthmus_wire::proto;
use isthmus_wire::ticket::{TICKET_LEN, Ticket};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::{debug, error, warn};

use crate::expected::Expected;
use crate::far_agents::FarAgents;

/// How long a connect may take: as long as between agents.
const DIAL: Duration = Duration::from_secs(4);
/// Most connections that are being dialed at once.
const DIALS: usize = 1024;
/// How much later than a node's ticket the broker's order to expect the node may
/// arrive.
const ORDER_LAG: Duration = Duration::from_secs(2);
/// Most connections with tickets that wait to be matched.
pub(crate) const ARRIVALS: usize = 1024;

/// A connection with its ticket, opened by a peer or by the gateway.
pub(crate) type Arrival = ([u8; TICKET_LEN], Candidate);

/// The streams over this gateway, as the rest of the gateway sees them.
pub(crate) struct Streams {
    keys_tx: watch::Sender<Option<TicketKey>>,
    arrivals_tx: mpsc::Sender<Arrival>,
    expected: Mutex<Expected>,
    /// Sent whenever a further node is expected.
    further: watch::Sender<()>,
    dials: Arc<Semaphore>,
    far_agents: FarAgents,
}

impl Streams {
    pub(crate) fn new(
        keys_tx: watch::Sender<Option<TicketKey>>,
        arrivals_tx: mpsc::Sender<Arrival>,
        far_agents: FarAgents,
    ) -> Self {
        let dials = Arc::new(Semaphore::new(DIALS));
        let (expected, further) = (Mutex::default(), watch::Sender::new(()));
        Self { keys_tx, arrivals_tx, expected, further, dials, far_agents }
    }

    /// Takes the key of tickets from the broker.
    pub(crate) fn set_key(&self, proto::RelayKey { key, unix_seconds }: &proto::RelayKey) {
        match Secret::from_slice(key) {
            Some(secret) => {
                let key = TicketKey::received(secret, *unix_seconds, SystemTime::now());
                self.keys_tx.send_replace(Some(key));
            }
            None => error!(
                bytes = key.len(),
                "the broker sent a key that is not of 32 bytes: no connection goes over this gateway"
            ),
        }
    }

    /// A ticket for this gateway; `None` if the broker has sent no key so far.
    pub(crate) fn seal(&self, ticket: &Ticket) -> Option<SealedTicket> {
        self.keys_tx.borrow().as_ref().map(|key| key.secret.seal_ticket(ticket))
    }

    /// Expects the node at this address, which was given a ticket.
    pub(crate) fn expect(&self, connection: ConnectionId, node: IpAddr) {
        lock(&self.expected).add(connection, node, Instant::now());
        self.further.send_replace(());
    }

    /// Takes a connection to the inside port whose peer has sent a ticket.
    pub(crate) async fn arrived_inside(&self, ticket: [u8; TICKET_LEN], stream: TcpStream, peer: SocketAddr) {
        let read = match Ticket::decode(&ticket) {
            Ok((read, _)) => read,
            Err(error) => return debug!(%peer, %error, "not a ticket"),
        };
        if !self.is_expected(&read, peer.ip()).await {
            return warn!(%peer, connection = %read.connection, "refused a ticket that was given to another node");
        }
        self.arrive(ticket, Candidate { stream, peer, origin: Origin::Inside }).await;
    }

    /// Whether the broker has announced the node at this address, or does so in a moment. The
    /// broker's order to another gateway's node may arrive before its order to this gateway.
    async fn is_expected(&self, ticket: &Ticket, from: IpAddr) -> bool {
        let (until, mut further) = (tokio::time::Instant::now() + ORDER_LAG, self.further.subscribe());
        while !lock(&self.expected).allows(ticket.connection, from, Instant::now()) {
            if tokio::time::timeout_at(until, further.changed()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Opens a connection to another site, for a node that connects to this gateway.
    /// `relays` are where relays may be. `own` is true for addresses of this site, which are
    /// refused. Only the agent that the broker names, a relay or a gateway gets a byte of the
    /// node's.
    ///
    /// # Errors
    /// What failed, with both addresses.
    pub(crate) async fn dial(
        &self,
        leg: &Leg,
        relays: &RelayPlaces,
        own: impl Fn(IpAddr) -> bool,
    ) -> Result<(), String> {
        let deadline = Deadline::within(DIAL + DIAL);
        let dialing = async {
            let _slot = self.dials.acquire().await.map_err(|error| error.to_string())?;
            let address = match leg.relay {
                true => relays.resolve(&leg.address).await.map_err(|error| error.to_string())?,
                false => {
                    let address = isthmus_reach::service_address(&leg.address).await;
                    address.map_err(|error| error.to_string())?
                }
            };
            if own(address.ip()) || is_this_machine(address.ip()) {
                return Err(format!("{address} is in this site, and gateways dial only outside their site"));
            }
            let (to, until) = (address.to_string(), deadline.part(DIAL));
            let dialing = async {
                let options = SocketOptions { segment: leg.segment, ..SocketOptions::default() };
                direct(&to, options, until).await.map_err(|error| error.to_string())
            };
            let verifying = async {
                match &leg.agent {
                    Some(agent) => self.far_agents.verify(agent, (address, leg.segment), until).await,
                    None => Ok(()),
                }
            };
            let (mut stream, ()) = tokio::try_join!(dialing, verifying)?;
            let sent = stream.write_all(&leg.first.to_bytes()).await;
            sent.map_err(|error| format!("cannot send to {address}: {error}"))?;
            Ok((stream, address))
        };
        let late = |Late(limit)| format!("no connection to {} within {limit:?}", leg.address);
        let (stream, peer) = deadline.bound(dialing).await.map_err(late)??;
        self.arrive(leg.ticket, Candidate { stream, peer, origin: Origin::Outside }).await;
        Ok(())
    }

    async fn arrive(&self, ticket: [u8; TICKET_LEN], candidate: Candidate) {
        // This fails only when the gateway ends.
        let _ = self.arrivals_tx.send((ticket, candidate)).await;
    }
}

/// Whether an address is this machine's. Only this machine's addresses can be bound.
pub(crate) fn is_this_machine(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}
