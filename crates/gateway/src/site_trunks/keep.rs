//! What a trunk does between two gateways: who may be at its other end, streams that the other
//! gateway opens.

use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::{Kept, Stream, config};
use isthmus_identity::Identity;
use isthmus_identity::secured::ClientTls;
use isthmus_link::{CarrierWay, Link, Own, Peers, Service};
use isthmus_net::rails::Rail;
use isthmus_reach::{Dialer, Expected};
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::Peer;
use isthmus_trunk::{CarrierId, Config, Role, TrunkId};
use isthmus_wire::{GridName, proto};
use tracing::info;

use super::dialing::{Party, asked, dialer};
use super::failed::NoStream;
use super::{PROTOCOL, gone, other_gateway, streams};

/// How long it may take to find whether another gateway may make a trunk.
const LOOKUP: Duration = Duration::from_secs(3);

impl Own for gone::Former {
    /// Whether the trunk is cut, and the other end has started anew or doesn't tell its start.
    fn makes_room(&self, kept: &Kept) -> bool {
        kept.is_cut() && (self.is_former() || kept.peers_incarnation().is_none())
    }
}

impl Service for Party {
    type Own = gone::Former;
    type Unreached = NoStream;

    const PROTOCOL: &'static [u8] = PROTOCOL;

    fn peers(&self) -> &Peers<gone::Former, NoStream> {
        &self.trunks.peers
    }

    fn dialer(self: &Arc<Self>) -> Dialer {
        dialer(&self.gateway, &self.trunks)
    }

    fn plane(&self) -> &Plane {
        &self.trunks.plane
    }

    fn tls(&self) -> &ClientTls {
        &self.trunks.client
    }

    fn rails(&self) -> &[Rail] {
        &self.trunks.rails
    }

    fn config(&self, role: Role, id: TrunkId) -> Config {
        let trunks = &self.trunks;
        let config = config(role, id, &trunks.rails, trunks.bbr);
        let max_streams = trunks.streams_per_trunk.unwrap_or(config.max_streams);
        Config { incarnation: Some(trunks.incarnation), max_streams, ..config }
    }

    fn expected(&self, name: &GridName) -> Expected {
        Expected::gateway(name)
    }

    fn called(name: &GridName) -> String {
        format!("gateway {name}")
    }

    fn own_name(&self) -> String {
        format!("the gateway of site {}", self.gateway.site)
    }

    fn other_end(&self, identity: Option<&Identity>) -> Result<GridName, String> {
        other_gateway(identity, &self.gateway.site)
    }

    /// Both sites must keep trunks, and the grid's policy must allow it. A gateway of any other site
    /// has a certificate, too.
    async fn takes(self: &Arc<Self>, name: &GridName) -> Result<(), String> {
        let own = self.own_name();
        let found = asked(&self.gateway, &self.trunks, name, LOOKUP).await;
        let found =
            found.map_err(|status| format!("{own} can't find gateway {name}: {}", grpc::reason(&status)))?;
        let plan = found.plan.clone().unwrap_or_default();
        if plan.takes_site_trunk {
            return Ok(());
        }
        let reasons: Vec<_> = plan.left_out.into_iter().map(|left| left.reason).collect();
        Err(format!("{own} takes no trunk of gateway {name}: {}", reasons.join("; ")))
    }

    /// The broker need not be asked.
    fn is_best(way: &CarrierWay) -> bool {
        way.dial == proto::Dial::Direct
    }

    fn works(Link { service, standing }: &Link<Self>, _: CarrierId, _: Option<&CarrierWay>) {
        gone::on_works(service, standing);
        gone::watch(service, standing);
        service.trunks.changes.send_replace(());
    }

    /// Also if the other end has made the trunk, as this end may make another.
    fn healed(Link { service, standing }: &Link<Self>) {
        let name = &standing.name;
        service.dialer().hasten(Peer::Gateway(name.clone()), name);
        service.trunks.changes.send_replace(());
    }

    fn ended(&self) {
        self.trunks.changes.send_replace(());
    }

    fn opened(Link { service, standing }: &Link<Self>, stream: Stream) {
        let (party, peer) = (service.clone(), standing.kept.peer.clone());
        tokio::spawn(async move {
            if let Err(reason) = streams::take(&party.gateway, &party.trunks, &peer, stream).await {
                info!(%peer, reason, "a stream is refused");
            }
        });
    }
}
