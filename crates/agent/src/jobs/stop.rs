//! Ends the agent's jobs when it is stopped, before it ends itself.

use std::sync::Arc;
use std::time::Duration;

use isthmus_wire::GridName;
use isthmus_wire::proto::{self, JobNews, job_news};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::jobs::hold;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::observing::leftovers;

/// What the user reads of a node whose agent was stopped.
const STOPPED: &str = "its agent was stopped";
/// How long all jobs together may take to end, and what their MPIs have left to be removed. A
/// supervisor kills after 1.5 s.
const JOBS: Duration = Duration::from_secs(8);
/// How long the last look for what is left may take after that.
const LAST: Duration = Duration::from_secs(1);
/// How long the other side may take to end the job here once it is told: `isthmus run`, or
/// the node that holds this one.
const TOLD: Duration = Duration::from_secs(3);
/// How long calls in progress may take to be answered after that.
const ANSWERS: Duration = Duration::from_secs(2);

/// After `shutdown`, ends all jobs while the agent still answers, then has its servers end.
/// Returns when that has taken too long.
pub(crate) async fn in_order(
    node: &Arc<Node>,
    shutdown: impl Future<Output = ()>,
    servers: &CancellationToken,
) {
    shutdown.await;
    end_jobs(node).await;
    servers.cancel();
    sleep(ANSWERS).await;
}

/// Lets no further job begin, tells the heads of those that run, and ends them here and
/// below. After its deadline nothing of them is left here but what the supervisors kill
/// once this process has ended, and what that uses: the next agent removes it.
pub(crate) async fn end_jobs(node: &Arc<Node>) {
    let jobs = node.stop();
    let mut ending = JoinSet::new();
    for job in &jobs {
        warn!(job = %job.id, "the agent stops: the job ends here");
        ending.spawn(end(node.clone(), job.clone()));
    }
    if timeout(JOBS, ending.join_all()).await.is_err() {
        warn!("jobs did not end within {JOBS:?}");
    }
    for job in jobs {
        if job.cleared.is_cancelled() || !timeout(LAST, leftovers::are_in_use(&job)).await.unwrap_or(true) {
            job.directory.remove();
        } else {
            job.directory.leave();
        }
    }
}

/// Returns once nothing of the job is left here.
async fn end(node: Arc<Node>, job: Arc<Job>) {
    let lost = proto::NodeLost { node: node.name().to_string(), reason: STOPPED.to_owned(), ago_ms: 0 };
    job.news.send(job_news::Kind::NodeLost(lost));
    // Whoever holds it here ends it then; a launcher must not notice first.
    if timeout(TOLD, job.ended.cancelled()).await.is_err() && !job.holding.ending.is_cancelled() {
        hold::end_all(&node, &job).await;
    }
    // Whoever has begun to end it goes on with that.
    job.cleared.cancelled().await;
}

/// Why a node leaves the job, and since when, by its own word, if this is it.
pub(crate) fn own_loss<'a>(news: &'a JobNews, from: &GridName) -> Option<&'a proto::NodeLost> {
    match &news.kind {
        Some(job_news::Kind::NodeLost(lost)) if lost.node == from.to_string() => Some(lost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_node_itself_gives_its_reason() {
        let lost = |node: &str| {
            let (node, reason) = (node.to_owned(), STOPPED.to_owned());
            Some(job_news::Kind::NodeLost(proto::NodeLost { node, reason, ago_ms: 0 }))
        };
        let back = job_news::Kind::SiteBack(proto::SiteBack {
            node: "n1.beta".to_owned(),
            silent_ms: 1,
            from: String::new(),
        });
        let from: GridName = "n1.beta".parse().unwrap();
        for (kind, want) in
            [(lost("n1.beta"), Some(STOPPED)), (lost("n2.beta"), None), (Some(back), None), (None, None)]
        {
            let news = JobNews { kind };
            let reason = own_loss(&news, &from).map(|lost| lost.reason.as_str());
            assert_eq!(reason, want, "{news:?}");
        }
    }
}
