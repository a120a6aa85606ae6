//! Whether what a job's programs send over trunks arrives.
//!
//! The nodes that hold a job together watch their own trunks. A trunk between two other nodes may
//! take a way that doesn't work where those do. Also, what the holding nodes say is short, and
//! passes where large packets vanish.

use std::net::Ipv4Addr;
use std::sync::Arc;

use isthmus_service::clock::millis;
use isthmus_service::lock;
use isthmus_wire::proto::{NodeLost, job_news};

use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::{own_site, part, tree};
use crate::trunks::pause::{self, Lost};
use crate::trunks::registry::Standing;

/// Watches the trunk to a node from now on, as a program's connection goes over it. Does nothing if
/// the trunk is watched already.
pub(crate) fn watch(node: &Arc<Node>, job: &Arc<Job>, standing: &Arc<Standing>, acceptor: Ipv4Addr) {
    let nodes = &job.members.nodes;
    let Some(host) = nodes.iter().find(|host| host.address.ip() == acceptor).cloned() else { return };
    let held = tree::children(nodes, node.name()).into_iter().chain(tree::holder(nodes, node.name()));
    // In a job that outlives no cuts, these nodes exchange heartbeats over connections of their own
    // instead.
    let is_held = !job.outlive.is_zero() && held.into_iter().any(|other| other.name == host.name);
    if is_held || !lock(&job.trunks).insert(standing.kept.id) {
        return;
    }
    let (node, own, watched, trunk) = (node.clone(), node.name().to_string(), job.clone(), standing.clone());
    part::spawn(&node.clone(), job, "watching a trunk", async move {
        let job = watched;
        let tell = |mut kind| {
            match &mut kind {
                job_news::Kind::SiteSilent(silent) => silent.from.clone_from(&own),
                job_news::Kind::SiteBack(back) => back.from.clone_from(&own),
                _ => {}
            }
            job.news.send(kind);
        };
        let outlive = if job.outlive.is_zero() { job.patience } else { job.outlive };
        let lost = tokio::select! {
            lost = pause::stalled((&trunk, &host), outlive, tell) => lost,
            () = job.ended.cancelled() => return,
        };
        match lost {
            // The nodes that hold the job may have judged before.
            _ if job.holding.ending.is_cancelled() => {}
            Lost::Silent(time, _) | Lost::Swallowed(time) => {
                if let Some(cut_off) = own_site::is_cut_off_beside_head(&node, &job, time).await {
                    return job.news.send(job_news::Kind::CutOff(cut_off));
                }
                let (node, reason) = (host.name.to_string(), format!("{lost} (from {own})"));
                let lost = NodeLost { node, reason, ago_ms: millis(time) };
                job.news.send(job_news::Kind::NodeLost(lost));
            }
            // The trunk's connections end with it, and programs read that.
            Lost::Gone | Lost::Ended => {}
        }
    });
}
