//! Relays for other sites, at the port outside: the gateway attaches to the broker as a relay besides.
//! It carries what is encrypted, within the share that its owner sets, and nothing for its own site.

use std::convert::Infallible;
use std::num::NonZeroU64;
use std::sync::Arc;

use isthmus_carry::Share;
use isthmus_plan::Reach;
use isthmus_relay::{Attachment, Kind, Prober};
use isthmus_splice::admission::Relaying;
use isthmus_splice::{Claims, TicketKey};
use tokio::sync::watch;

use crate::config::RelayConfig;
use crate::gateway::Gateway;

/// Megabits per second as bytes per second.
const MEGABIT: u64 = 125_000;

/// What the gateway relays.
pub(crate) struct Relay {
    share: Arc<Share>,
    /// Most connections at once.
    most: u64,
    keys_tx: watch::Sender<Option<TicketKey>>,
    prober: Arc<Prober>,
}

impl Relay {
    /// A relay within a share, and what the port outside admits for it. Clients of that port make
    /// these claims.
    pub(crate) fn new(config: &RelayConfig, claims: Arc<Claims>) -> (Self, Relaying) {
        let bytes_per_second = NonZeroU64::new(u64::from(config.megabits_per_second) * MEGABIT);
        let share = Arc::new(Share::new(bytes_per_second));
        let (keys_tx, keys) = watch::channel(None);
        let most = config.connections.into();
        let relaying = Relaying { keys, most, share: share.clone() };
        (Self { share, most, keys_tx, prober: Arc::new(Prober::new(claims)) }, relaying)
    }

    /// Offers to relay as long as other sites may reach the port outside; never returns.
    pub(crate) async fn offer(&self, gateway: &Gateway) -> Infallible {
        let mut results = gateway.outside.results();
        loop {
            // The sender lives as long as the gateway.
            let _ = results.wait_for(may_be_reached).await;
            let attachment = self.attachment(gateway, gateway.outside_address());
            let mut gone = results.clone();
            tokio::select! {
                never = attachment.keep() => match never {},
                _ = gone.wait_for(|reach| !may_be_reached(reach)) => {
                    tracing::info!("other sites don't reach the port outside: relays nothing for them");
                }
            }
        }
    }

    fn attachment(&self, gateway: &Gateway, address: String) -> Attachment {
        let share = self.share.clone();
        Attachment {
            kind: Kind::Gateway,
            credentials: gateway.credentials.clone(),
            name: gateway.relay_name(),
            address,
            totals: Box::new(move || share.totals()),
            most: self.most,
            keys_tx: self.keys_tx.clone(),
            prober: self.prober.clone(),
        }
    }
}

/// Whether other sites may reach the port. Where no relay could try, nodes find out.
fn may_be_reached(reach: &Option<Reach>) -> bool {
    reach.as_ref().is_some_and(|reach| !reach.failed())
}
