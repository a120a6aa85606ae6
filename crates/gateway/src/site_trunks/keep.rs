//! What a trunk does here: streams that the other gateway opens, and dials of carriers.

use std::sync::Arc;

use isthmus_carry::trunk::{Better, By, Dialed, Embedding, Stream, Undialed};
use isthmus_net::rails::Rail;
use isthmus_plan::{Dial, Route};
use isthmus_reach::Expected;
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::lock;
use isthmus_trunk::CarrierId;
use tracing::info;

use super::carriers::CarrierWay;
use super::dialing::dialer;
use super::{SiteTrunks, Standing, carriers, streams};
use crate::gateway::Gateway;

/// A trunk of this gateway, as the code that keeps it works with it.
pub(super) struct Embedded {
    pub gateway: Arc<Gateway>,
    pub trunks: Arc<SiteTrunks>,
    pub standing: Arc<Standing>,
}

impl Embedding for Embedded {
    type Way = CarrierWay;

    fn peer(&self) -> String {
        format!("gateway {}", self.standing.name)
    }

    /// Whether this end dials carriers: the end that has made the trunk does. Both ends would only
    /// disturb each other.
    fn dials(&self) -> bool {
        self.standing.kept.is_own
    }

    fn rails(&self) -> &[Rail] {
        &self.trunks.rails
    }

    /// Dials a carrier: at the peer's address on the rail, or else along the whole plan.
    async fn dial(self: Arc<Self>, by: By) -> Result<Dialed<Self::Way>, Undialed> {
        let (trunks, name) = (&self.trunks, &self.standing.name);
        let Some(address) = by.rail.address else {
            return carriers::dial(&self.gateway, trunks, name, by).await.map_err(Undialed::Failed);
        };
        let dialer = dialer(&self.gateway, trunks);
        let options = carriers::purpose(trunks, name, by).options;
        let reached =
            dialer.reach_at(address.into(), &Expected::gateway(name), &trunks.client, options).await;
        let way = CarrierWay { dial: Dial::Direct, relay: String::new() };
        let tls = reached.and_then(|tls| carriers::with_trunks(tls, name)).map_err(Undialed::Failed)?;
        Ok(Dialed { tls, way, segment: by.segment })
    }

    /// Dials a carrier by a step of the plan that comes before those of `than`, and that has not
    /// failed of late.
    async fn dial_better(
        self: Arc<Self>,
        than: Vec<Self::Way>,
        segment: Option<u16>,
    ) -> Option<Result<Better<Self::Way>, Undialed>> {
        // No plan has a better dial, so the broker need not be asked.
        if than.iter().all(|way| way.dial == Dial::Direct) {
            return None;
        }
        let (trunks, name) = (&self.trunks, &self.standing.name);
        let ways: Vec<_> = than.iter().map(|way| (Route::EndToEnd, way.dial)).collect();
        let purpose = carriers::purpose(trunks, name, By { segment, ..By::default() });
        let peer = Peer::Gateway(name.clone());
        let better = dialer(&self.gateway, trunks).reach_better(peer, &ways, purpose).await;
        let dialed = better.map_err(|error| error.to_string()).transpose()?.and_then(|(reached, outdone)| {
            let dialed = carriers::dialed(reached)?;
            info!(peer = %name, dial = %dialed.way.dial, "a better way works");
            Ok(Better { dialed, outdone })
        });
        Some(dialed.map_err(Undialed::Failed))
    }

    fn joins(&self, way: &Self::Way) {
        *lock(&self.standing.way) = Some(way.clone());
    }

    fn works(&self, _: CarrierId, _: Option<&Self::Way>) {
        super::gone::on_works(&self.trunks, &self.standing);
        self.trunks.changes.send_replace(());
    }

    fn healed(&self) {
        let name = &self.standing.name;
        dialer(&self.gateway, &self.trunks).hasten(Peer::Gateway(name.clone()), name);
        self.trunks.changes.send_replace(());
    }

    fn opened(&self, stream: Stream) {
        let (gateway, trunks) = (self.gateway.clone(), self.trunks.clone());
        let peer = self.standing.kept.peer.clone();
        tokio::spawn(async move {
            if let Err(reason) = streams::take(&gateway, &trunks, &peer, stream).await {
                info!(%peer, reason, "a stream is refused");
            }
        });
    }

    fn ended(&self) {
        self.trunks.peers.remove(&self.standing.name, self.standing.kept.id);
        self.trunks.changes.send_replace(());
    }
}
