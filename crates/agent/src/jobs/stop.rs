//! Ends the agent's jobs when it is stopped, before it ends itself.

use std::sync::Arc;
use std::time::Duration;

use isthmus_wire::proto::{self, job_news};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::jobs::end;
use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// The reason that the user reads for the loss of a node whose agent was stopped.
const STOPPED: &str = "its agent was stopped";
/// How long all jobs together may take to end, and the agent to remove what their MPIs have left. A
/// supervisor kills after 1.5 s.
const JOBS: Duration = Duration::from_secs(8);
/// After [`JOBS`], how long the last look may take for processes that use what an MPI has left.
const LAST: Duration = Duration::from_secs(1);
/// How long `isthmus run`, or the node that holds this one, may take to end a job here once it is
/// told.
const TOLD: Duration = Duration::from_secs(3);
/// How long calls in progress may take to be answered once the jobs have ended.
const ANSWERS: Duration = Duration::from_secs(2);

/// After `shutdown`, ends all jobs while the agent still answers, then has its servers end. Returns
/// when the servers have had their time to end.
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

/// Lets no further job begin, tells the heads of those that run, and ends these jobs here and
/// below.
///
/// Past the deadline, only processes that the supervisors kill once this process has ended are left
/// here, and the files that these use. The next agent removes those.
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
        if job.cleared.is_cancelled() || !timeout(LAST, job.are_leftovers_in_use()).await.unwrap_or(true) {
            job.directory.remove();
        } else {
            job.directory.leave();
        }
    }
}

/// Tells a job's head that this agent stops. Returns once nothing of the job is left here.
async fn end(node: Arc<Node>, job: Arc<Job>) {
    let lost = proto::NodeLost { node: node.name().to_string(), reason: STOPPED.to_owned(), ago_ms: 0 };
    job.news.send(job_news::Kind::NodeLost(lost));
    // The node that holds the job here, or `isthmus run`, ends it then. A launcher must not notice
    // first.
    if timeout(TOLD, job.ended.cancelled()).await.is_err() && !job.holding.ending.is_cancelled() {
        end::end_all(&node, &job).await;
    }
    // Whoever has begun to end the job goes on with that.
    job.cleared.cancelled().await;
}
