//! Whether other sites reach the gateway's port outside. Relays dial it and send an
//! id that only this gateway has, so that no other host's answer counts.

pub(crate) mod port;

use std::sync::Arc;
use std::time::Duration;

use isthmus_plan::{Reach, Reachability};
use isthmus_rpc::connection;
use isthmus_rpc::grpc::Repeat;
use isthmus_rpc::probe::{ProbeTarget, Task};
use isthmus_service::{Deadline, mac};
use isthmus_splice::admission::Encrypted;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, ProbeRequest, attach_up};

use crate::gateway::Gateway;
use crate::site_trunks;
use crate::upstream::WAIT;

/// How often the port outside is tested; after a failure, [`AGAIN`] is the pause.
const INTERVAL: Duration = Duration::from_secs(300);
const AGAIN: Duration = Duration::from_secs(60);
/// First pause as long as no relay could try.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How many relays must fail before the port counts as not reached.
const RELAYS: usize = 2;

/// Takes TLS connections to the port: carriers of trunks with other sites' gateways.
pub(crate) fn encrypted(gateway: &Arc<Gateway>) -> Encrypted {
    let gateway = gateway.clone();
    Encrypted::new(move |tcp| {
        let gateway = gateway.clone();
        async move { site_trunks::carriers::arrived(gateway, tcp).await }
    })
}

/// Tests the port again and again; never returns.
pub(crate) async fn watch(gateway: &Gateway) {
    let mut pause = FIRST_PAUSE;
    let mut sent = Reach::default();
    loop {
        let address = gateway.outside_address();
        if address.is_empty() {
            // The outside address is not found yet.
            tokio::time::sleep(FIRST_PAUSE).await;
            continue;
        }
        let Some(relays) = gateway.directory.relays_beyond(&gateway.site) else {
            tokio::time::sleep(FIRST_PAUSE).await;
            continue;
        };
        let reach = test(gateway, &address, &relays).await;
        let noted = gateway.outside.set(&reach);
        if reach != sent {
            log(&reach);
            gateway.upstream.send(attach_up::Kind::GatewayReach(noted));
            sent = reach.clone();
        }
        pause = match reach.result {
            Reachability::Reachable => INTERVAL,
            Reachability::Unknown => (pause * 2).min(AGAIN),
            Reachability::Filtered | Reachability::Refused | Reachability::Misdirected => AGAIN,
        };
        let [random] = mac::random::<1>();
        tokio::time::sleep(pause + pause * u32::from(random) / 2560).await;
    }
}

fn log(Reach { result, address, detail, .. }: &Reach) {
    if matches!(result, Reachability::Reachable | Reachability::Unknown) {
        tracing::info!(address, %result, detail, "the port outside");
    } else {
        tracing::warn!(address, %result, detail, "other sites don't reach the port outside");
    }
}

/// Tests the port outside. It is reached if any relay reaches it, and not reached if every relay
/// that could try failed.
async fn test(gateway: &Gateway, address: &str, relays: &[proto::DirectoryEntry]) -> Reach {
    let mut found = Reach::default();
    for relay in relays.iter().take(RELAYS) {
        let reach = try_from(gateway, address, relay).await;
        match reach.result {
            Reachability::Reachable => return reach,
            Reachability::Unknown if found.failed() => {}
            _ => found = reach,
        }
    }
    found
}

/// Asks this relay to dial the port.
async fn try_from(gateway: &Gateway, address: &str, relay: &proto::DirectoryEntry) -> Reach {
    let target = ProbeTarget::new(address, connection::new_id());
    let mut reach_test = gateway.outside.reach_tests.expect(target.nonce);
    let task = Some(Task::DialGateway(target.clone()).into());
    let request = ProbeRequest { relay: relay.name.clone(), task, ..ProbeRequest::default() };
    let probe = |channel, request| async move { RegistryClient::new(channel).probe(request).await };
    let budget = (Repeat::Never, WAIT.into());
    let probe = gateway.upstream.call("have the port outside tried", budget, request, probe);
    let resolving = gateway.directory.relay_places();
    let at = Deadline::within(WAIT).bound(resolving.resolve(&relay.address)).await;
    match at.map_err(|late| late.to_string()).and_then(|at| at.map_err(|error| error.to_string())) {
        Ok(at) => isthmus_reach::reach_test((&relay.name, at), &target, reach_test.came(), probe).await,
        Err(detail) => {
            Reach { address: address.to_owned(), relay: relay.name.clone(), detail, ..Reach::default() }
        }
    }
}
