//! What a trunk does between two agents: streams that the peer opens, and its carriers'
//! dials along the plan.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::{Embedding, Stream, Undialed};
use isthmus_net::Deadline;
use isthmus_net::callback;
use isthmus_net::dial::{SocketOptions, direct};
use isthmus_net::rails::{Rail, RailWay};
use isthmus_net::secured::Secured;
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{Expected, Security, secure};
use isthmus_wire::{GridName, proto, way};

use super::registry::{Last, Standing, Way};
use super::{TRUNK_PROTOCOL, calls, open};
use crate::accepting::incoming::{Programs, preamble};
use crate::carrying::link::{Link, Messages as _, TrunkStream};
use crate::jobs::node::Node;

/// How long a connect to another agent's address on a rail may take, with TLS.
const CONNECT: Duration = Duration::from_secs(4);

/// A trunk of this agent.
pub(super) struct Embedded {
    pub node: Arc<Node>,
    /// The peer.
    pub name: GridName,
    pub standing: Arc<Standing>,
}

impl Embedded {
    /// Connects to an address that the other agent has told.
    async fn connect(
        &self,
        address: SocketAddrV4,
        source: Option<Ipv4Addr>,
    ) -> Result<(Secured, Last), Undialed> {
        // The other agent may be captured: it names no service of this node.
        callback::check_service(address.into()).map_err(|error| Undialed::Failed(error.to_string()))?;
        let deadline = Deadline::within(CONNECT);
        let options = SocketOptions { source, ..SocketOptions::default() };
        let tcp = direct(&address.to_string(), options, deadline).await;
        let tcp = tcp.map_err(|error| Undialed::Failed(error.to_string()))?;
        let expected = Expected::agent(&self.name, Some(self.node.owner()));
        let carrier = secure(tcp, &expected, &self.node.tls().trunk, deadline).await;
        let carrier = carrier.map_err(|error| Undialed::Failed(format!("{error}")))?;
        let ends = carrier.ends().into();
        let (route, dial, relay) = (proto::Route::EndToEnd, proto::Dial::Direct, String::new());
        Ok((trunk_carrier(carrier)?, Last { way: Some(Way { route, dial, relay }), ends }))
    }
}

/// A connection that the other agent has taken as a trunk's carrier.
fn trunk_carrier(carrier: Carrier) -> Result<Secured, Undialed> {
    match carrier {
        Carrier::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(TRUNK_PROTOCOL) => Ok(*tls),
        _ => Err(Undialed::Never("the other agent has no trunks any more".to_owned())),
    }
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

    /// At its address on the rail, or else along the whole plan.
    async fn dial(self: Arc<Self>, rail: RailWay) -> Result<(Secured, Last), Undialed> {
        if let Some(address) = rail.address {
            return self.connect(address, rail.source).await;
        }
        let (node, destination) = (&self.node, self.standing.destination());
        let destination = destination.ok_or_else(|| Undialed::Failed("the other end dials it".to_owned()))?;
        let dialed = open::dial(node, destination, Security::Tls(&node.tls().trunk), rail.source).await;
        let reached = dialed.map_err(|error| Undialed::Failed(error.to_string()))?;
        let last = open::last(&reached);
        Ok((trunk_carrier(reached.carrier)?, last))
    }

    fn joins(&self, last: Last) {
        if self.standing.kept.is_own {
            self.standing.set_last(last);
        }
    }

    fn works(&self) {
        tracing::debug!(peer = %self.name, ends = %self.standing.last().ends, "a carrier works");
        if self.standing.kept.is_own {
            tokio::spawn(tell_way(self.standing.clone()));
        }
    }

    fn opened(&self, stream: Stream) {
        let standing = &self.standing;
        let stream = TrunkStream { stream, peer: standing.kept.peer.clone(), ends: standing.last().ends };
        tokio::spawn(take(self.node.clone(), standing.clone(), stream));
    }

    fn ended(&self) {
        self.node.trunks().remove(&self.name, self.standing.kept.id);
    }
}

/// Tells the other end how the newest carrier was dialed.
async fn tell_way(standing: Arc<Standing>) {
    if let (Some(way), Ok(stream)) = (standing.last().way, standing.kept.trunk.open().await) {
        stream.send(&way.encode());
    }
}

/// Takes a stream that the peer has opened: the way of its carrier, or a program's
/// connection.
async fn take(node: Arc<Node>, standing: Arc<Standing>, stream: TrunkStream) {
    let mut link = Link::Stream(stream);
    let ends = link.ends();
    let taken = async {
        let bytes = preamble(&mut link).await?;
        if way::Way::is(&bytes) {
            standing.set_way(Way::decode(&bytes).map_err(io::Error::other)?);
            return Ok(());
        }
        match link {
            Link::Stream(stream) if isthmus_wire::calls::is(&bytes) => {
                calls::serve(&node, standing.kept.id, stream).await
            }
            link => Programs { node, ordered: None }.take(link, &bytes, None).await,
        }
    };
    if let Err(error) = Box::pin(taken).await {
        tracing::debug!(ends, %error, "a stream is dropped");
    }
}
