//! What differs between the services that keep trunks: agents with agents, gateways with gateways.

use std::sync::Arc;

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::Stream;
use isthmus_identity::Identity;
use isthmus_identity::secured::ClientTls;
use isthmus_net::rails::Rail;
use isthmus_reach::{Dialer, Expected};
use isthmus_trunk::{CarrierId, Config, Role, TrunkId};
use isthmus_wire::GridName;

use crate::peers::Peers;
use crate::standing::{Own, Standing};
use crate::way::CarrierWay;

/// A service that keeps trunks with parties of its own kind.
pub trait Service: Send + Sync + Sized + 'static {
    /// What it alone knows of a trunk.
    type Own: Own;
    /// Why a party can't be dialed.
    type Unreached: Clone + Send + 'static;

    /// Protocol name (ALPN, RFC 7301) of a carrier.
    const PROTOCOL: &'static [u8];

    /// All trunks of this service.
    fn peers(&self) -> &Peers<Self::Own, Self::Unreached>;

    /// Opens connections to the other parties.
    fn dialer(self: &Arc<Self>) -> Dialer;

    /// The worker threads that carry the trunks.
    fn plane(&self) -> &Plane;

    /// TLS of a carrier that this end dials. It offers [`PROTOCOL`](Self::PROTOCOL).
    fn tls(&self) -> &ClientTls;

    /// This end's further rails.
    fn rails(&self) -> &[Rail];

    /// The configuration of a trunk.
    fn config(&self, role: Role, id: TrunkId) -> Config;

    /// The party that must be at the other end of a carrier.
    fn expected(&self, name: &GridName) -> Expected;

    /// Another party, in messages.
    fn called(name: &GridName) -> String;

    /// This service, in messages.
    fn own_name(&self) -> String;

    /// The party that has dialed a carrier.
    ///
    /// # Errors
    /// If this service keeps no trunks with it; the text is for the other end.
    fn other_end(&self, identity: Option<&Identity>) -> Result<GridName, String>;

    /// Decides whether a party may make a trunk with this service. By default each party that is
    /// an [`other_end`](Self::other_end) may.
    ///
    /// # Errors
    /// The reason why it may not, for the other end.
    fn takes(self: &Arc<Self>, _name: &GridName) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether no plan has a better way than this one. So it need not be asked for.
    fn is_best(_way: &CarrierWay) -> bool {
        false
    }

    /// Returns once it is known that the other end has no part of the trunk any more, with the
    /// reason. By default it never is.
    fn gone(_link: &Link<Self>) -> impl Future<Output = String> + Send {
        std::future::pending()
    }

    /// Called when a carrier works. It has the carrier's way, if this end has dialed it.
    fn works(link: &Link<Self>, id: CarrierId, way: Option<&CarrierWay>);

    /// Called when the trunk works again, after a cut. By default failed dials are tried again soon.
    fn healed(link: &Link<Self>) {
        if let Some(peer) = link.standing.peer() {
            link.service.dialer().hasten(peer, &link.standing.name);
        }
    }

    /// Called once the trunk has ended.
    fn ended(&self) {}

    /// Called when the other end has opened a stream.
    fn opened(link: &Link<Self>, stream: Stream);
}

/// A trunk of a service, as its carriers are kept.
#[derive(Debug)]
pub struct Link<S: Service> {
    /// The service.
    pub service: Arc<S>,
    /// The trunk.
    pub standing: Arc<Standing<S::Own>>,
}
