//! Tells a job's head of a gateway that is gone, if the gateway carried connections of the job over its
//! trunks with other sites' gateways. They end with the gateway, and perhaps the job with them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use isthmus_service::lock;
use isthmus_wire::Label;

use crate::jobs::node::Node;
use crate::uplink::upstream::LostGateway;

/// Between which of this node's gateways, by address, and which other sites connections of a job go
/// over a trunk, or went.
#[derive(Debug, Default)]
pub(crate) struct OverGateways(Mutex<BTreeSet<(Arc<str>, Label)>>);

impl OverGateways {
    /// Notes a connection. A node has few gateways, and a job few sites.
    pub(crate) fn note(&self, gateway: Arc<str>, other_site: &Label) {
        lock(&self.0).insert((gateway, other_site.clone()));
    }

    /// What has happened to the connections, in words that follow the node's name. `None` if a gateway
    /// carried none of them.
    fn told(&self, lost: &LostGateway) -> Option<String> {
        let carried = lock(&self.0);
        match lost {
            LostGateway::Own(address, reason) => {
                carried.iter().any(|(gateway, _)| gateway == address).then(|| {
                    format!(
                        "isn't attached to its gateway {address} any more ({reason}), so its connections \
                         over that gateway's site trunks may have ended"
                    )
                })
            }
            LostGateway::Other(name) => carried.iter().any(|(_, site)| *site == name.site).then(|| {
                let site = &name.site;
                format!("has lost its connections to site {site} over the site trunk: gateway {name} is gone")
            }),
        }
    }
}

/// Tells the jobs here of each gateway that is lost; never returns.
pub(crate) async fn watch(node: &Node) -> Infallible {
    loop {
        let lost = node.upstream().next_lost().await;
        for job in node.jobs() {
            if let Some(words) = job.over_gateways.told(&lost) {
                job.news.lost_gateway(&node.name().to_string(), words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_of_gateways_that_carried_its_connections() {
        let over = OverGateways::default();
        over.note("10.0.0.1:7710".into(), &"beta".parse().unwrap());
        let own = |address: &str| LostGateway::Own(address.into(), "closed".to_owned());
        let other = |name: &str| LostGateway::Other(name.parse().unwrap());
        for (lost, want) in [
            (own("10.0.0.1:7710"), Some("its gateway 10.0.0.1:7710 any more (closed)")),
            (own("10.0.0.2:7710"), None),
            (other("fe.beta"), Some("to site beta over the site trunk: gateway fe.beta is gone")),
            (other("fe.gamma"), None),
        ] {
            let told = over.told(&lost);
            assert_eq!(told.is_some(), want.is_some(), "{lost:?}");
            assert!(told.unwrap_or_default().contains(want.unwrap_or_default()), "{lost:?}");
        }
    }
}
