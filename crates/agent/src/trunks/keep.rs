//! What a trunk does between two agents: who may be at its other end, streams that the peer opens.

use std::io;
use std::sync::Arc;

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::{Stream, config};
use isthmus_identity::secured::ClientTls;
use isthmus_identity::{Identity, Role as PartyRole};
use isthmus_link::{CarrierWay, Link, Peers, Service};
use isthmus_net::rails::Rail;
use isthmus_reach::{Dialer, Expected, ReachError};
use isthmus_trunk::{CarrierId, Config, Role, TrunkId};
use isthmus_wire::{GridName, way};

use super::registry::Standing;
use super::{TRUNK_PROTOCOL, anew, calls};
use crate::accepting::programs::{Programs, preamble};
use crate::carrying::agent_connection::{AgentConnection, Messages as _, TrunkStream};
use crate::jobs::node::Node;

impl Service for Node {
    type Own = ();
    type Unreached = ReachError;

    const PROTOCOL: &'static [u8] = TRUNK_PROTOCOL;

    fn peers(&self) -> &Peers<(), ReachError> {
        self.trunks().peers()
    }

    fn dialer(self: &Arc<Self>) -> Dialer {
        Node::dialer(self).clone()
    }

    fn plane(&self) -> &Plane {
        self.plane()
    }

    fn tls(&self) -> &ClientTls {
        &self.tls().trunk
    }

    fn rails(&self) -> &[Rail] {
        self.rails()
    }

    /// The trunk tells what each carrier carries.
    fn config(&self, role: Role, id: TrunkId) -> Config {
        let incarnation = Some(self.facilities().incarnation);
        Config { notes_moved: true, incarnation, ..config(role, id, self.rails(), self.bbr()) }
    }

    fn expected(&self, name: &GridName) -> Expected {
        Expected::agent(name, Some(self.owner()))
    }

    fn called(name: &GridName) -> String {
        name.to_string()
    }

    fn own_name(&self) -> String {
        self.name().to_string()
    }

    fn other_end(&self, identity: Option<&Identity>) -> Result<GridName, String> {
        let identity = identity
            .filter(|identity| identity.role() == PartyRole::Agent && identity.owner() == Some(self.owner()));
        let name = identity.and_then(Identity::grid_name);
        name.ok_or_else(|| format!("{} has trunks with agents of user {} only", self.name(), self.owner()))
    }

    async fn gone(link: &Link<Self>) -> String {
        match link.standing.peer().and_then(|peer| peer.node()) {
            Some(node) => anew::registered(&link.service, &link.standing, node).await,
            None => std::future::pending().await,
        }
        "its agent was started again".to_owned()
    }

    fn works(Link { service, standing }: &Link<Self>, id: CarrierId, way: Option<&CarrierWay>) {
        service.trunks().end_former(standing);
        tracing::debug!(peer = %standing.name, ends = %standing.last().ends, "a carrier works");
        if let Some(way) = way.cloned() {
            tokio::spawn(tell_way(standing.clone(), id, way));
        }
    }

    fn opened(Link { service, standing }: &Link<Self>, stream: Stream) {
        let stream = TrunkStream { stream, peer: standing.kept.peer.clone(), ends: standing.last().ends };
        tokio::spawn(take(service.clone(), standing.clone(), stream));
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
            connection => Programs { node, ordered: None }.take(connection, &bytes, None).await.map(drop),
        }
    };
    if let Err(error) = Box::pin(taken).await {
        tracing::debug!(ends, %error, "a stream is dropped");
    }
}
