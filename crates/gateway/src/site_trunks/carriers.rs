//! Carriers that other gateways dial at the port outside, connections for which this gateway waits,
//! and carriers that it dials on the broker's order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_reach::carrier::keep_alive;
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{Order, Peer};
use isthmus_service::listen;
use isthmus_wire::{hello, proto};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::dialing::{Party, dialer};
use super::{PROTOCOL, other_gateway};
use crate::gateway::Gateway;

/// How long a party may take to say for which rendezvous it connects.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// Takes a connection to the port outside: a carrier, or a connection that this gateway waits for.
///
/// # Errors
/// If it is refused; a verified gateway is told why.
pub(crate) async fn arrived(gateway: Arc<Gateway>, mut tcp: TcpStream) -> io::Result<()> {
    if listen::first_byte(&tcp, INTRODUCTION).await? != hello::RENDEZVOUS.first_byte() {
        return accept(gateway, tcp).await;
    }
    let mut bytes = [0; hello::RENDEZVOUS_LEN];
    timeout(INTRODUCTION, tcp.read_exact(&mut bytes)).await??;
    let id = hello::RENDEZVOUS.decode(&bytes).map_err(io::Error::other)?;
    let trunks = gateway.site_trunks.as_ref();
    if trunks.is_some_and(|trunks| trunks.dialing.rendezvous.arrived(id, tcp)) {
        return Ok(());
    }
    Err(io::Error::other("nobody waits for this rendezvous"))
}

/// Takes a carrier that another gateway begins TLS on.
///
/// # Errors
/// If the carrier is refused; a verified gateway is told why.
pub(crate) async fn accept(gateway: Arc<Gateway>, tcp: TcpStream) -> io::Result<()> {
    let trunks = gateway.site_trunks.clone().ok_or(io::ErrorKind::ConnectionRefused)?;
    keep_alive(&tcp);
    let place = trunks.handshakes.enter(tcp.peer_addr()?.ip());
    let handshake = grpc::accept(tcp, trunks.server.clone());
    let tls = place.evicted().run_until_cancelled(handshake).await;
    let tls = tls.ok_or_else(|| io::Error::other("too many handshakes"))??;
    drop(place);
    let name = other_gateway(tls.identity(), &gateway.site).map_err(io::Error::other)?;
    if tls.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
        return Err(io::Error::other("no carrier of a trunk"));
    }
    let joining = trunks.joining.take(&name);
    let joining = joining.ok_or_else(|| {
        io::Error::other(format!("too many carriers of gateway {name} have sent no HELLO yet"))
    })?;
    let party = Party::new(&gateway, &trunks);
    tokio::spawn(async move {
        match isthmus_link::accept(&party, tls).await {
            // It has tried whether its dial works.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                debug!(peer = %name, %error, "a carrier ends before its HELLO");
            }
            Err(error) => info!(peer = %name, %error, "a carrier is refused"),
            Ok(()) => {}
        }
        drop(joining);
    });
    Ok(())
}

/// Carries out the broker's order to dial another site's gateway, which waits for that.
pub(crate) fn ordered(gateway: &Arc<Gateway>, order: proto::DialRequest) {
    let Some(trunks) = gateway.site_trunks.clone() else { return };
    let order = match Order::read(order, "") {
        Ok(order) => order,
        Err(error) => return warn!(%error, "the broker's order to dial is ignored"),
    };
    let Peer::Gateway(name) = order.initiator.clone() else {
        return warn!(initiator = %order.initiator, "the broker's order to dial a node is ignored");
    };
    let Some(place) = trunks.orders.take(&name.site) else {
        return info!(peer = %name, "too many orders for trunks with that site at once, one is dropped");
    };
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let dialed = async {
            match dialer(&gateway, &trunks).accept(&order).await.map_err(io::Error::other)? {
                Some(tcp) => accept(gateway, tcp).await,
                None => Ok(()),
            }
        };
        if let Err(error) = dialed.await {
            let reason = error.to_string();
            info!(peer = %name, way = %order.way, reason, "no carrier to another site's gateway");
        }
        drop(place);
    });
}
