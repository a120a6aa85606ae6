//! Whether what a job's programs send over trunks arrives. Those who hold the job together
//! watch their own trunks; the way of another one may not work where those do, and what they
//! say is short, which passes where large packets vanish.

use std::net::Ipv4Addr;
use std::sync::Arc;

use isthmus_net::clock::millis;
use isthmus_net::lock;
use isthmus_wire::proto::{NodeLost, job_news};

use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::{own_site, part, tree};
use crate::trunks::pause::{self, Lost};
use crate::trunks::registry::Standing;

/// A program's connection goes over this trunk to a node: it is watched from now on, unless
/// it is already.
pub(crate) fn watch(node: &Arc<Node>, job: &Arc<Job>, standing: &Arc<Standing>, acceptor: Ipv4Addr) {
    let nodes = &job.members.nodes;
    let Some(host) = nodes.iter().find(|host| host.address.ip() == acceptor).cloned() else { return };
    let held = tree::children(nodes, node.name()).into_iter().chain(tree::holder(nodes, node.name()));
    // Without a time to wait, they exchange heartbeats over connections of their own instead.
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
            // Those that hold the job may have judged before.
            _ if job.holding.ending.is_cancelled() => {}
            Lost::Silent(time, _) | Lost::Swallowed(time) => {
                if let Some(cut_off) = own_site::is_cut_off_beside_head(&node, &job, time).await {
                    return job.news.send(job_news::Kind::CutOff(cut_off));
                }
                let (node, reason) = (host.name.to_string(), format!("{lost} (from {own})"));
                let lost = NodeLost { node, reason, ago_ms: millis(time) };
                job.news.send(job_news::Kind::NodeLost(lost));
            }
            // Its connections end with it, and programs read that.
            Lost::Gone | Lost::Ended => {}
        }
    });
}
