//! Whether a job is over that this node can't be told of, because it is cut off from the
//! job's head. The broker lists a job until its head reports the end, so the agent asks
//! there: it would wait for the cut to heal otherwise.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::Kept;
use isthmus_wire::GridName;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{self, JobFilter, NodeFilter};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tracing::debug;

use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// Pause before the first question: the head reports a job as soon as all nodes are ready.
const FIRST: Duration = Duration::from_secs(2);
/// Longest pause between questions until the job is listed. The pauses double from the first one:
/// the broker may never have room for the job.
const UNLISTED_MAX: Duration = Duration::from_secs(30);
/// Pause between questions during a cut.
const CUT: Duration = Duration::from_millis(700);
/// How long the broker may take to answer one question.
const ANSWER: Duration = Duration::from_secs(10);
/// How many answers in a row must lack the job: a gateway that was restarted reports its jobs a
/// moment after its nodes.
const ABSENCES: u32 = 3;

/// What the broker knows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The broker lists the job: it runs.
    Listed,
    /// The job isn't listed, and its head's agent is attached.
    Absent,
    /// The broker can't be asked, or the head can't report to it.
    Unknown,
}

/// What follows from the broker's answers so far.
#[derive(Debug, Default)]
struct Answers {
    /// Whether an answer has listed the job. If none has, the broker may have no room for the job.
    listed: bool,
    /// How many answers in a row have lacked the job.
    absences: u32,
}

impl Answers {
    /// Takes in an answer. Returns whether the job is over.
    fn note(&mut self, answer: Answer) -> bool {
        match answer {
            Answer::Listed => *self = Self { listed: true, absences: 0 },
            Answer::Absent => self.absences = self.absences.saturating_add(1),
            Answer::Unknown => self.absences = 0,
        }
        self.listed && self.absences >= ABSENCES
    }
}

/// Returns once the head has ended the job while this node is cut off. `kept` is the trunk to the
/// node that holds this one.
pub(crate) async fn at_head(node: &Arc<Node>, job: &Job, kept: &Kept) {
    let Some(head) = job.members.nodes.first().map(|head| head.name.clone()) else {
        return never().await;
    };
    let mut answers = Answers::default();
    let mut pause = FIRST;
    while !answers.listed {
        sleep(pause).await;
        answers.note(ask(node, job, &head).await);
        pause = (2 * pause).min(UNLISTED_MAX);
    }
    let mut cut = kept.cut();
    loop {
        if cut.wait_for(Option::is_some).await.is_err() {
            return never().await;
        }
        sleep(CUT).await;
        // What heals the trunk tells of the end as well.
        if !kept.is_cut() {
            answers.note(Answer::Unknown);
        } else if answers.note(ask(node, job, &head).await) {
            return;
        }
    }
}

async fn never() {
    match std::future::pending::<Infallible>().await {}
}

async fn ask(node: &Node, job: &Job, head: &GridName) -> Answer {
    match timeout(ANSWER, asked(node, job, head)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(status)) => {
            debug!(job = %job.id, %status, "whether the job is over isn't known");
            Answer::Unknown
        }
        Err(_) => Answer::Unknown,
    }
}

async fn asked(node: &Node, job: &Job, head: &GridName) -> Result<Answer, Status> {
    let list = |records| {
        let request = proto::ListRequest { records: Some(records), ..proto::ListRequest::default() };
        node.upstream().list(request)
    };
    let id = job.id.to_string();
    let jobs = list(Records::Jobs(JobFilter { job: id.clone(), ..JobFilter::default() })).await?;
    if jobs.jobs.iter().any(|job| job.job == id) {
        return Ok(Answer::Listed);
    }
    let names = vec![head.to_string()];
    let nodes = list(Records::Nodes(NodeFilter { names, ..NodeFilter::default() })).await?;
    let is_attached = nodes.nodes.iter().any(|node| node.name == head.to_string() && node.up);
    Ok(if is_attached { Answer::Absent } else { Answer::Unknown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_over_once_it_was_listed_and_is_so_no_more() {
        use Answer::{Absent as A, Listed as L, Unknown as U};
        for (answers, want) in [
            (&[][..], false),
            (&[L], false),
            (&[L, A, A], false),
            (&[L, A, A, A], true),
            (&[L, A, A, L, A, A], false),
            (&[L, A, A, U, A, A], false),
            (&[L, U, U, U, U], false),
            (&[A, A, A, A], false),
            (&[A, A, A, L, A, A, A], true),
        ] {
            let mut noted = Answers::default();
            let over = answers.iter().fold(false, |_, answer| noted.note(*answer));
            assert_eq!(over, want, "{answers:?}");
        }
    }
}
