//! What a trunk does here: streams that the other gateway opens, and dials of carriers.

use std::sync::Arc;

use isthmus_carry::trunk::{Embedding, Stream, Undialed};
use isthmus_net::lock;
use isthmus_net::rails::{Rail, RailWay};
use isthmus_net::secured::Secured;
use isthmus_plan::Dial;
use tracing::info;

use super::{SiteTrunks, Standing, carriers, streams};
use crate::gateway::Gateway;

/// A trunk of this gateway.
pub(super) struct Embedded {
    pub gateway: Arc<Gateway>,
    pub trunks: Arc<SiteTrunks>,
    pub standing: Arc<Standing>,
}

/// How a carrier was dialed that this end has dialed: at the port outside of the other one,
/// whose address is known then, or over a relay.
pub(super) fn dialed(address: Option<&str>) -> Dial {
    if address.is_some() { Dial::Direct } else { Dial::Relay }
}

impl Embedding for Embedded {
    /// The dial, and the address of the other one's port outside if it was dialed there.
    type Way = (Dial, Option<String>);

    fn peer(&self) -> String {
        format!("gateway {}", self.standing.name)
    }

    /// The end that has made it dials: both would only disturb each other.
    fn dials(&self) -> bool {
        self.standing.kept.is_own
    }

    fn rails(&self) -> &[Rail] {
        &self.trunks.rails
    }

    /// At its address on the rail; or else at the port outside where the other one was last, where the broker says that it is,
    /// and over a relay. The broker may be away.
    async fn dial(self: Arc<Self>, rail: RailWay) -> Result<(Secured, Self::Way), Undialed> {
        let Self { gateway, trunks, standing } = &*self;
        if let Some(address) = rail.address {
            let to = (&*address.to_string(), rail.source);
            let dialed = carriers::connect(gateway, trunks, &standing.name, to).await;
            return dialed.map(|tls| (tls, (Dial::Direct, None))).map_err(Undialed::Failed);
        }
        let mut failures = Vec::new();
        let known = lock(&standing.address).clone();
        if let Some(address) = known {
            match carriers::connect(gateway, trunks, &standing.name, (&address, rail.source)).await {
                Ok(tls) => return Ok((tls, (Dial::Direct, Some(address)))),
                Err(error) => failures.push(error),
            }
        }
        for dial in [Dial::Direct, Dial::Relay] {
            match carriers::dial(gateway, trunks, &standing.name, (dial, &[], rail.source)).await {
                Ok(carriers::Got::Carrier(tls, address)) => {
                    return Ok((*tls, (dialed(address.as_deref()), address)));
                }
                Ok(carriers::Got::Trunk(_)) => {}
                Err(error) => failures.push(format!("{dial}: {error}")),
            }
        }
        Err(Undialed::Failed(failures.join("; ")))
    }

    fn joins(&self, (dial, address): Self::Way) {
        *lock(&self.standing.dial) = Some(dial);
        if address.is_some() {
            *lock(&self.standing.address) = address;
        }
    }

    fn works(&self) {
        super::gone::on_works(&self.trunks, &self.standing);
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
        self.trunks.remove(&self.standing.name, self.standing.kept.id);
        self.trunks.changes.send_replace(());
    }
}
