//! Reach tests: a relay dials this party, which waits for the connection.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_net::dial::PunchPort;
use isthmus_plan::{Reach, Reachability};
use isthmus_rpc::grpc;
use isthmus_rpc::probe::{Outcome, ProbeTarget};
use isthmus_rpc::seen::judge_probe;
use isthmus_wire::proto::ProbeReply;
use tokio::time::timeout;
use tonic::Status;

use crate::outside::REFLECTION_DEADLINE;

/// How much later than the relay's report the relay's connection may arrive.
pub(crate) const LAG: Duration = Duration::from_secs(2);

/// Whether a relay reaches this party at the target. The relay is given by its name and resolved
/// address. This party first names the test to the relay, which dials nobody else. `arrival` ends
/// when the relay's connection has arrived; `probe` is the call by which the relay dials.
pub async fn reach_test(
    (relay, relay_address): (&str, SocketAddr),
    ProbeTarget { address, nonce }: &ProbeTarget,
    arrival: impl Future<Output = ()>,
    probe: impl Future<Output = Result<ProbeReply, Status>>,
) -> Reach {
    if let Err(error) = PunchPort::open_for(relay_address, *nonce, REFLECTION_DEADLINE).await {
        let (address, relay) = (address.clone(), relay.to_owned());
        return Reach { result: Reachability::Unknown, address, relay, detail: error.to_string() };
    }
    let probe = async { probe.await.map(Outcome::from) };
    let reply = reply_unless_arrived(arrival, probe).await;
    let reply = reply.map(|reply| reply.map_err(|status| grpc::reason(&status)));
    let (result, detail) = judge_probe(reply.is_none(), reply);
    Reach { result, address: address.clone(), relay: relay.to_owned(), detail }
}

/// The relay's reply; `None` if the relay's connection arrived.
pub(crate) async fn reply_unless_arrived(
    arrival: impl Future<Output = ()>,
    probe: impl Future<Output = Result<Outcome, Status>>,
) -> Option<Result<Outcome, Status>> {
    tokio::pin!(arrival);
    let reply = tokio::select! {
        () = &mut arrival => return None,
        reply = probe => reply,
    };
    let connected = reply.as_ref().is_ok_and(|outcome| *outcome == Outcome::Connected);
    let arrived = connected && timeout(LAG, arrival).await.is_ok();
    (!arrived).then_some(reply)
}
