//! What a trunk does here: streams that the other gateway opens, and dials of carriers.

use std::sync::Arc;

use isthmus_carry::trunk::{Better, By, Dialed, Embedding, Stream, Undialed};
use isthmus_net::lock;
use isthmus_net::rails::Rail;
use isthmus_net::secured::Secured;
use isthmus_plan::Dial;
use isthmus_trunk::CarrierId;
use tracing::info;

use super::{SiteTrunks, Standing, carriers, streams};
use crate::gateway::Gateway;

/// A trunk of this gateway, as the code that keeps it works with it.
pub(super) struct Embedded {
    pub gateway: Arc<Gateway>,
    pub trunks: Arc<SiteTrunks>,
    pub standing: Arc<Standing>,
}

/// How this end has dialed a carrier. With an address, that is at the other gateway's port outside;
/// without, it is over a relay.
pub(super) fn dialed(address: Option<&str>) -> Dial {
    if address.is_some() { Dial::Direct } else { Dial::Relay }
}

/// How a carrier was dialed: the dial, and the address of the other gateway's port outside if it
/// was dialed there.
pub(super) type Way = (Dial, Option<String>);

/// The place to which a carrier is dialed.
#[derive(Debug, Clone, Copy)]
enum To {
    /// The address at which the other gateway's port outside was last.
    Known,
    /// The place that the broker names for this dial.
    Asked(Dial),
}

impl Embedded {
    async fn connect(&self, address: &str, by: By) -> Result<Secured, String> {
        carriers::connect(&self.gateway, &self.trunks, &self.standing.name, (address, by)).await
    }

    /// Dials a carrier to a place; `None` if that gives no carrier.
    async fn dial_to(&self, to: To, by: By) -> Result<Option<Dialed<Way>>, String> {
        let dialed = |tls, address: Option<String>| {
            Some(Dialed { tls, way: (dialed(address.as_deref()), address), segment: by.segment })
        };
        match to {
            To::Known => {
                let Some(address) = lock(&self.standing.address).clone() else { return Ok(None) };
                Ok(dialed(self.connect(&address, by).await?, Some(address)))
            }
            To::Asked(dial) => {
                let (gateway, trunks, name) = (&self.gateway, &self.trunks, &self.standing.name);
                match carriers::dial(gateway, trunks, name, (dial, &[], by)).await {
                    Ok(carriers::Got::Carrier(tls, address)) => Ok(dialed(*tls, address)),
                    Ok(carriers::Got::Trunk(_)) => Ok(None),
                    Err(error) => Err(format!("{dial}: {error}")),
                }
            }
        }
    }
}

impl Embedding for Embedded {
    type Way = Way;

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

    /// Dials a carrier. On a rail with an address, that address is dialed. Otherwise this end tries
    /// the last address of the other gateway's port outside, the address that the broker names, and
    /// a relay. The broker may be away.
    async fn dial(self: Arc<Self>, by: By) -> Result<Dialed<Self::Way>, Undialed> {
        if let Some(address) = by.rail.address {
            let tls = self.connect(&address.to_string(), by).await;
            let tls = tls.map_err(Undialed::Failed)?;
            return Ok(Dialed { tls, way: (Dial::Direct, None), segment: by.segment });
        }
        let mut failures = Vec::new();
        for to in [To::Known, To::Asked(Dial::Direct), To::Asked(Dial::Relay)] {
            match self.dial_to(to, by).await {
                Ok(Some(dialed)) => return Ok(dialed),
                Ok(None) => {}
                Err(error) => failures.push(error),
            }
        }
        Err(Undialed::Failed(failures.join("; ")))
    }

    /// Dials the other gateway's port outside, in place of carriers over a relay.
    async fn dial_better(
        self: Arc<Self>,
        than: Vec<Self::Way>,
        segment: Option<u16>,
    ) -> Option<Result<Better<Self::Way>, Undialed>> {
        let over_relay = than.iter().enumerate().filter(|(_, (dial, _))| *dial == Dial::Relay);
        let outdone: Vec<usize> = over_relay.map(|(at, _)| at).collect();
        if outdone.is_empty() {
            return None;
        }
        let dialed = self.dial_to(To::Asked(Dial::Direct), By { segment, ..By::default() }).await;
        dialed.transpose().map(|dialed| match dialed {
            Ok(dialed) => Ok(Better { dialed, outdone }),
            Err(error) => Err(Undialed::Failed(error)),
        })
    }

    fn joins(&self, (dial, address): &Self::Way) {
        *lock(&self.standing.dial) = Some(*dial);
        if address.is_some() {
            lock(&self.standing.address).clone_from(address);
        }
    }

    fn works(&self, _: CarrierId, _: Option<&Self::Way>) {
        super::gone::on_works(&self.trunks, &self.standing);
        self.trunks.changes.send_replace(());
    }

    fn healed(&self) {
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
