//! Decides which reach tests relays are ordered to make. A node has its own agent
//! dialed, a gateway its own port outside. The rate is bounded. The relay itself
//! checks that the address belongs to a client of its own.

use std::collections::BTreeMap;
use std::fmt;

use isthmus_net::callback::FIRST_PORT;
use isthmus_rpc::probe::Task;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{ConnectionId, DecodeError, Label, RelayName, VirtualAddress};

use super::site::SiteEntry;
use super::{Effect, Party, Registry};

/// Most probes of a node within [`WINDOW_SECONDS`]: twice as many as a round of probing takes. The
/// next round follows minutes later.
const MOST: u32 = 30;
const WINDOW_SECONDS: u64 = 60;
/// Most probes of a gateway within [`WINDOW_SECONDS`]. A gateway asks two relays, every minute at
/// most.
const MOST_OF_GATEWAY: u32 = 6;

/// Why no probe is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeError {
    /// The request is malformed, or the address isn't the requester's.
    NotYours(String),
    /// The requester exceeds its rate.
    TooOften,
    /// The relay isn't attached.
    NoRelay(String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYours(reason) => f.write_str(reason),
            Self::TooOften => {
                write!(
                    f,
                    "a node may have itself dialed {MOST} times in {WINDOW_SECONDS} s, a gateway \
                     {MOST_OF_GATEWAY} times, not more often"
                )
            }
            Self::NoRelay(relay) => write!(f, "no relay {relay:?} is attached to the broker"),
        }
    }
}

/// The party that asks for a probe, and is to be dialed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Requester {
    Node(VirtualAddress),
    /// A gateway of a site, by its address outside.
    GatewayOf(Label, String),
}

/// A party's request for a probe.
#[derive(Debug, Clone)]
pub struct Request {
    /// Virtual address of the node; 0 for a gateway.
    pub(crate) initiator: u32,
    /// Name of the relay.
    pub(crate) relay: String,
    pub(crate) task: Task,
}

impl TryFrom<proto::ProbeRequest> for Request {
    type Error = DecodeError;

    fn try_from(request: proto::ProbeRequest) -> Result<Self, DecodeError> {
        let task = Task::try_from(&request.task.unwrap_or_default())?;
        Ok(Self { initiator: request.initiator, relay: request.relay, task })
    }
}

/// When each requester's window began, in Unix seconds, and how many probes came since.
#[derive(Debug, Default)]
pub(super) struct Probed(BTreeMap<Requester, (u64, u32)>);

impl Probed {
    fn allow(&mut self, requester: Requester, now: u64) -> bool {
        let most = match requester {
            Requester::Node(_) => MOST,
            Requester::GatewayOf(..) => MOST_OF_GATEWAY,
        };
        let (since, count) = self.0.entry(requester).or_insert((now, 0));
        if now.saturating_sub(*since) >= WINDOW_SECONDS {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= most
    }
}

impl Registry {
    /// Orders a relay to dial the requester: a node of `site` or its gateway.
    ///
    /// # Errors
    /// [`ProbeError`] says why no relay is ordered.
    pub fn probe(
        &mut self,
        site: &Label,
        request: &Request,
        id: ConnectionId,
        now_unix_seconds: u64,
    ) -> Result<Effect, ProbeError> {
        let requester = match &request.task {
            Task::DialGateway(to) => {
                self.check_gateway(site, &to.address)?;
                Requester::GatewayOf(site.clone(), to.address.clone())
            }
            Task::Dial(to) | Task::DialPrepared(to) => {
                let node = self.requester(site, request)?;
                check(&to.address)?;
                node
            }
            Task::Prepare(_) => self.requester(site, request)?,
        };
        let attached = |name: &RelayName| self.relays.get(name).is_some_and(|relay| relay.session.is_some());
        let relay = request.relay.parse().ok().filter(attached);
        let to = Party::Relay(relay.ok_or_else(|| ProbeError::NoRelay(request.relay.clone()))?);
        if !self.probed.allow(requester, now_unix_seconds) {
            return Err(ProbeError::TooOften);
        }
        let order = proto::ProbeOrder { id: id.0.to_vec(), task: Some(request.task.clone().into()) };
        Ok(Effect::Send { to, message: attach_down::Kind::Probe(order) })
    }

    fn requester(&self, site: &Label, request: &Request) -> Result<Requester, ProbeError> {
        let node = self.own_node(site, request.initiator);
        node.map(Requester::Node).map_err(|error| ProbeError::NotYours(error.to_string()))
    }

    /// Checks that a gateway of `site` has declared this port outside.
    fn check_gateway(&self, site: &Label, address: &str) -> Result<(), ProbeError> {
        let declared =
            |site: &SiteEntry| site.attached().any(|(_, gateway)| gateway.outside_address == address);
        if address.is_empty() || !self.sites.get(site).is_some_and(declared) {
            return Err(ProbeError::NotYours(format!(
                "{address:?} is not the port outside of a gateway of site {site}"
            )));
        }
        Ok(())
    }
}

/// Checks that an agent may listen at an address.
fn check(address: &str) -> Result<(), ProbeError> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(port) if port >= FIRST_PORT => Ok(()),
        _ => Err(ProbeError::NotYours(format!("{address:?} is no address of an agent"))),
    }
}
