//! Whether other sites reach the gateway's port outside: relays are asked to try,
//! and say what this gateway alone knows, so that nobody else's answer counts.

use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::dial::PunchPort;
use isthmus_net::grpc::Repeat;
use isthmus_net::{grpc, lock, mac, seen};
use isthmus_plan::{Reach, Reachability};
use isthmus_splice::ReachTests;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, ProbeKind, ProbeOutcome, ProbeRequest, attach_up};

use crate::service::Gateway;
use crate::upstream::WAIT;

/// How often it is found out anew, and how soon again where it isn't reached.
const INTERVAL: Duration = Duration::from_secs(300);
const AGAIN: Duration = Duration::from_secs(60);
/// First pause as long as nobody could try.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a relay may take to be asked how the gateway is seen.
const ANSWER: Duration = Duration::from_secs(3);
/// How much later than the relay's word that it is connected its reach test may come.
const LAG: Duration = Duration::from_secs(2);
/// Relays that are to try before the port counts as not reached.
const RELAYS: usize = 2;

/// What was found out, and who is about to come.
#[derive(Debug, Default)]
pub(crate) struct OutsidePort {
    pub(crate) reach_tests: std::sync::Arc<ReachTests>,
    reach: Mutex<Option<proto::Reach>>,
}

impl OutsidePort {
    /// What was found out last.
    pub(crate) fn reach(&self) -> Option<proto::Reach> {
        lock(&self.reach).clone()
    }

    fn set(&self, reach: &Reach) -> proto::Reach {
        let reach = seen::reach_to_wire(reach);
        *lock(&self.reach) = Some(reach.clone());
        reach
    }
}

/// Keeps finding out; never returns.
pub(crate) async fn watch(gateway: &Gateway) {
    let mut pause = FIRST_PAUSE;
    let mut told = Reach::default();
    loop {
        let address = gateway.outside_address();
        if address.is_empty() {
            // It has none, or has not found out yet which.
            tokio::time::sleep(FIRST_PAUSE).await;
            continue;
        }
        let reach = find_out(gateway, &address).await;
        // What nobody can try any more isn't known any more.
        if reach != told {
            tracing::info!(address, result = %reach.result, detail = reach.detail, "the port outside");
            gateway.upstream.tell(attach_up::Kind::GatewayReach(gateway.outside.set(&reach)));
            told = reach.clone();
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

/// It is reached if one relay reaches it, and isn't if none of those does that
/// could try.
async fn find_out(gateway: &Gateway, address: &str) -> Reach {
    let mut found = Reach::default();
    for relay in gateway.directory.relays().iter().take(RELAYS) {
        let reach = try_from(gateway, address, relay).await;
        match reach.result {
            Reachability::Reachable => return reach,
            Reachability::Unknown if found.failed() => {}
            _ => found = reach,
        }
    }
    found
}

/// Has one relay try.
async fn try_from(gateway: &Gateway, address: &str, relay: &proto::DirectoryEntry) -> Reach {
    let reach =
        |(result, detail)| Reach { result, address: address.to_owned(), relay: relay.name.clone(), detail };
    // It dials only where somebody came from.
    if let Err(error) = PunchPort::open(&relay.address, ANSWER).await {
        return reach((Reachability::Unknown, error.to_string()));
    }
    let number = mac::new_connection();
    let mut reach_test = gateway.outside.reach_tests.expect(number);
    let request = ProbeRequest {
        relay: relay.name.clone(),
        kind: ProbeKind::ProbeDialGateway.into(),
        address: address.to_owned(),
        nonce: number.0.to_vec(),
        ..ProbeRequest::default()
    };
    let probe = |mut client: RegistryClient<_>, request| async move { client.probe(request).await };
    let budget = (Repeat::Never, WAIT.into());
    let probe = gateway.upstream.registry("have the port outside tried", budget, request, probe);
    let (came, reply) = tokio::select! {
        () = reach_test.came() => (true, None),
        reply = probe => {
            let came = match &reply {
                Ok(reply) if reply.outcome() == ProbeOutcome::Connected => {
                    tokio::time::timeout(LAG, reach_test.came()).await.is_ok()
                }
                Ok(_) | Err(_) => false,
            };
            (came, Some(reply.map_err(|status| grpc::reason(&status))))
        }
    };
    reach(seen::judge_probe(came, reply))
}
