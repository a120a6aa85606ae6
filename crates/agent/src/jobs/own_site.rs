//! Whether it is the head's own site that is cut off, and not the others.

use std::sync::Arc;
use std::time::Duration;

use isthmus_service::clock::millis;
use isthmus_wire::GridName;
use isthmus_wire::proto::{JobNews, NodeCutOff, job_news};
use tracing::warn;

use crate::jobs::job::Job;
use crate::jobs::news::NewsSender;
use crate::jobs::node::Node;
use crate::jobs::tree;

/// How long the broker may take to answer. A job that is to end waits for the answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Whether the head's own site is cut off: `heard` and `silent` are how many nodes of other sites
/// it hears and doesn't hear.
fn is_cut_off(heard: usize, silent: usize, hears_of_broker: bool) -> bool {
    heard == 0 && silent > 0 && !hears_of_broker
}

/// At the head, when another site has been silent for too long: tells the user if the head's own
/// site is cut off. It is if the head hears no other site, nor the broker.
pub(crate) async fn tell_if_cut_off(node: &Arc<Node>, job: &Job, silent: Duration, news_tx: &NewsSender) {
    let nodes = &job.members.nodes;
    if !tree::is_head(nodes, node.name()) {
        return;
    }
    let others = tree::children(nodes, node.name()).into_iter().map(|host| &host.name);
    let others = others.filter(|name| name.site != node.name().site);
    let others = others.map(|name| (name, node.trunks().are_cut(name) == Some(true)));
    let Some(cut_off) = judge(node, others, silent).await else { return };
    let mut told = job.holding.told_cut_off.lock().await;
    if std::mem::replace(&mut *told, true) {
        return;
    }
    warn!(job = %job.id, from = cut_off.from.join(" "), ?silent, "this site is cut off");
    let _ = news_tx.send(Ok(JobNews { kind: Some(job_news::Kind::CutOff(cut_off)) })).await;
}

/// Whether the head's site is cut off, as another node of that site judges.
///
/// It judges when nothing has arrived for too long at a node of another site. The site is cut off
/// if no node of another site is heard, nor the broker. The head may notice later.
pub(crate) async fn is_cut_off_beside_head(
    node: &Arc<Node>,
    job: &Job,
    silent: Duration,
) -> Option<NodeCutOff> {
    let nodes = &job.members.nodes;
    let own = &node.name().site;
    if nodes.first().is_none_or(|head| head.name.site != *own) {
        return None;
    }
    let others = nodes.iter().map(|host| &host.name).filter(|name| name.site != *own);
    judge(node, others.filter_map(|name| Some((name, node.trunks().are_cut(name)?))), silent).await
}

/// Judges whether the own site is cut off. `others` are nodes of other sites, each with whether it
/// is silent. `None` if the site isn't cut off.
async fn judge<'a>(
    node: &Arc<Node>,
    others: impl Iterator<Item = (&'a GridName, bool)>,
    silent: Duration,
) -> Option<NodeCutOff> {
    let (from, heard): (Vec<_>, Vec<_>) = others.partition(|(_, is_silent)| *is_silent);
    let is_cut_off = |hears_of_broker| is_cut_off(heard.len(), from.len(), hears_of_broker);
    // The broker is asked only if its answer can matter.
    if !is_cut_off(false) || !is_cut_off(node.upstream().hears_of_broker(ANSWER).await) {
        return None;
    }
    let from = from.into_iter().map(|(name, _)| name.to_string()).collect();
    Some(NodeCutOff { node: node.name().to_string(), from, silent_ms: millis(silent), whole_site: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_cut_off_that_hears_of_none_nor_of_the_broker() {
        for (heard, silent, hears_of_broker, want) in [
            (0, 1, false, true),
            (0, 3, false, true),
            (0, 1, true, false),
            (1, 1, false, false),
            (0, 0, false, false),
        ] {
            assert_eq!(
                is_cut_off(heard, silent, hears_of_broker),
                want,
                "{heard} {silent} {hears_of_broker}"
            );
        }
    }
}
