//! What a trunk does between two agents: streams that the peer opens, and its carriers'
//! dials along the plan.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use isthmus_carry::trunk::{Better, By, Dialed, Embedding, Stream, Undialed};
use isthmus_net::dial::ends;
use isthmus_net::rails::Rail;
use isthmus_reach::{Expected, Reached};
use isthmus_rpc::enums::dial_name;
use isthmus_trunk::CarrierId;
use isthmus_wire::{GridName, proto, way};

use super::registry::{CarrierWay, Last, Standing};
use super::{anew, calls, open};
use crate::accepting::incoming::{Programs, preamble};
use crate::carrying::agent_connection::{AgentConnection, Messages as _, TrunkStream};
use crate::jobs::node::Node;

/// A trunk of this agent, as its carriers are kept.
pub(super) struct Embedded {
    pub node: Arc<Node>,
    /// The grid name of the node at the other end.
    pub name: GridName,
    pub standing: Arc<Standing>,
}

impl Embedded {
    /// Connects to an address that the other agent has told.
    async fn connect(&self, address: SocketAddrV4, by: By) -> Result<Dialed<Last>, Undialed> {
        let options = open::purpose(&self.node, &self.name, by).options;
        let expected = Expected::agent(&self.name, Some(self.node.owner()));
        let tls = &self.node.tls().trunk;
        let reached = self.node.dialer().reach_at(address.into(), &expected, tls, options).await;
        let tls = reached.map_err(Undialed::Failed)?;
        let (route, dial, relay) = (proto::Route::EndToEnd, proto::Dial::Direct, String::new());
        let way = Last { way: Some(CarrierWay { route, dial, relay }), ends: ends(tls.get_ref().0).into() };
        Ok(Dialed { tls, way, segment: by.segment })
    }

    async fn dial_once(&self, by: By) -> Result<Dialed<Last>, Undialed> {
        if let Some(address) = by.rail.address {
            return self.connect(address, by).await;
        }
        let reached = open::dial(&self.node, &self.name, self.destination()?, by).await;
        dialed(reached.map_err(|error| Undialed::Failed(error.to_string()))?)
    }

    /// Where this end dials carriers along the plan.
    ///
    /// # Errors If only the other end dials.
    fn destination(&self) -> Result<Ipv4Addr, Undialed> {
        self.standing.destination().ok_or_else(|| Undialed::Failed("the other end dials it".to_owned()))
    }
}

/// Takes a connection that was dialed along the plan as a carrier.
fn dialed(reached: Reached) -> Result<Dialed<Last>, Undialed> {
    let (way, segment) = (open::last(&reached), reached.segment);
    let tls = reached.carrier.encrypted().map_err(|error| Undialed::Failed(error.to_string()))?;
    Ok(Dialed { tls, way, segment })
}

impl Embedding for Embedded {
    type Way = Last;

    fn peer(&self) -> String {
        self.name.to_string()
    }

    fn dials(&self) -> bool {
        self.standing.destination().is_some()
    }

    fn rails(&self) -> &[Rail] {
        self.node.rails()
    }

    /// Dials a carrier: at the peer's address on the rail, or else along the whole plan.
    async fn dial(self: Arc<Self>, by: By) -> Result<Dialed<Last>, Undialed> {
        let Some(peer) = self.standing.destination() else { return self.dial_once(by).await };
        tokio::select! {
            dialed = self.dial_once(by) => dialed,
            () = anew::registered(&self.node, &self.standing, peer) => {
                Err(Undialed::Never("its agent was started again".to_owned()))
            }
        }
    }

    /// Dials a carrier by a step of the plan that comes before those of `than`, and that has not
    /// failed of late. Steps that have failed are tried again in the background.
    async fn dial_better(
        self: Arc<Self>,
        than: Vec<Last>,
        segment: Option<u16>,
    ) -> Option<Result<Better<Last>, Undialed>> {
        let ways: Option<Vec<_>> = than.iter().map(|last| last.way.as_ref()?.planned()).collect();
        let (ways, destination) = (ways?, self.destination().ok()?);
        let by = By { segment, ..By::default() };
        let purpose = open::purpose(&self.node, &self.name, by);
        match self.node.dialer().reach_better(destination, &ways, purpose).await {
            Ok(None) => None,
            Ok(Some((reached, outdone))) => {
                tracing::info!(peer = %self.name, dial = %dial_name(reached.dial), "a better way works");
                Some(dialed(reached).map(|dialed| Better { dialed, outdone }))
            }
            Err(error) => Some(Err(Undialed::Failed(error.to_string()))),
        }
    }

    fn joins(&self, last: &Last) {
        self.standing.joins(last.way.clone());
    }

    fn joined(&self, id: CarrierId, last: &Last) {
        self.standing.joined(id, last.clone());
    }

    fn carrier_ended(&self, id: CarrierId) {
        self.standing.forget(id);
    }

    fn works(&self, id: CarrierId, last: Option<&Last>) {
        self.node.trunks().end_former(&self.name, &self.standing);
        tracing::debug!(peer = %self.name, ends = %self.standing.last().ends, "a carrier works");
        if let Some(way) = last.and_then(|last| last.way.clone()) {
            tokio::spawn(tell_way(self.standing.clone(), id, way));
        }
    }

    fn healed(&self) {
        if let Some(destination) = self.standing.destination() {
            self.node.dialer().hasten(destination, &self.name);
        }
    }

    fn opened(&self, stream: Stream) {
        let standing = &self.standing;
        let stream = TrunkStream { stream, peer: standing.kept.peer.clone(), ends: standing.last().ends };
        tokio::spawn(take(self.node.clone(), standing.clone(), stream));
    }

    fn ended(&self) {
        self.node.trunks().peers().remove(&self.name, self.standing.kept.id);
    }
}

/// Tells the other end how a carrier was dialed, by the number that the other end has for it.
async fn tell_way(standing: Arc<Standing>, id: CarrierId, way: CarrierWay) {
    let Some(snapshot) = standing.kept.trunk.status().await else { return };
    let carrier = snapshot.carriers.iter().find(|carrier| carrier.id == id);
    let number = carrier.and_then(|carrier| carrier.status.peers_number);
    if let Ok(stream) = standing.kept.trunk.open().await {
        stream.send(&way.encode(number));
    }
}

/// Takes a stream that the peer has opened: for the way of a carrier, for calls, or for a program's
/// connection.
async fn take(node: Arc<Node>, standing: Arc<Standing>, stream: TrunkStream) {
    let mut connection = AgentConnection::Stream(stream);
    let ends = connection.ends();
    let taken = async {
        let bytes = preamble(&mut connection).await?;
        if way::CarrierWay::is(&bytes) {
            let (way, carrier) = CarrierWay::decode(&bytes).map_err(io::Error::other)?;
            standing.told(carrier, way);
            return Ok(());
        }
        match connection {
            AgentConnection::Stream(stream) if isthmus_wire::calls::is(&bytes) => {
                calls::serve(&node, standing.kept.id, stream).await
            }
            connection => Programs { node, ordered: None }.take(connection, &bytes, None).await,
        }
    };
    if let Err(error) = Box::pin(taken).await {
        tracing::debug!(ends, %error, "a stream is dropped");
    }
}
