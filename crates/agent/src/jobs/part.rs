//! Parts of a job that run in tasks of their own.

use std::sync::Arc;

use isthmus_wire::proto::{NodeLost, job_news};
use tracing::error;

use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// Runs a part of a job that the job can't do without. If the part panics, the job ends here, which
/// the other nodes notice. Otherwise the job's processes would wait for ever.
pub(crate) fn spawn(
    node: &Arc<Node>,
    job: &Arc<Job>,
    what: &'static str,
    part: impl Future<Output = ()> + Send + 'static,
) {
    let (node, job) = (Arc::clone(node), Arc::clone(job));
    tokio::spawn(async move {
        if !panics(part).await {
            return;
        }
        error!(job = %job.id, what, "a part of the agent has failed: the job ends here");
        let reason = format!("its agent has a fault: {what} has failed; see its log");
        let lost = NodeLost { node: node.name().to_string(), reason, ago_ms: 0 };
        job.news.send(job_news::Kind::NodeLost(lost));
        node.end(&job).await;
    });
}

/// Whether a future panics. It runs as a task of its own, whose panic the runtime catches.
async fn panics(part: impl Future<Output = ()> + Send + 'static) -> bool {
    tokio::spawn(part).await.is_err_and(|error| error.is_panic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_from_an_end() {
        assert!(!panics(async {}).await);
        assert!(panics(async { panic!("on purpose") }).await);
    }
}
