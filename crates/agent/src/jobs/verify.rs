//! Verifies the certificates of jobs' other agents anew, before the former ones end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_identity::peers::Peers;
use isthmus_reach::Purpose;
use tokio::time::sleep;
use tracing::warn;

use crate::jobs::node::Node;

/// Time between two checks. An agent's certificate is due for its last five days.
const CHECK: Duration = Duration::from_secs(600);

/// Makes a full handshake with each agent whose last certificate ends soon, and with which this one
/// has connections of a job. By it both agents get each other's renewed certificate, and those
/// connections go on. Never returns.
pub(crate) async fn keep_verified(node: &Arc<Node>, peers: &Peers) {
    let tls = node.tls().grpc.without_resumption();
    loop {
        sleep(CHECK).await;
        for identity in peers.agents_to_verify(SystemTime::now()) {
            let Some(name) = identity.grid_name() else { continue };
            let jobs = node.jobs();
            let mut hosts = jobs.iter().flat_map(|job| job.hosts());
            let Some(host) = hosts.find(|host| host.name == name) else { continue };
            let purpose = Purpose::tls(&tls, Some(node.owner()));
            if let Err(error) = node.dialer().reach(host.address.ip(), purpose).await {
                warn!(node = %name, %error, "cannot verify its certificate anew; its connections end with the former one");
            }
        }
    }
}
