//! Asks the scheduler for the states of all pilots' batch jobs at once, again and again.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_batch::{Batch, Job, State};
use isthmus_service::lock;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// Pause between two questions. Schedulers' administrators dislike shorter ones.
const PAUSE: Duration = Duration::from_secs(5);

/// What the scheduler says of a batch job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The job's state.
    State(State),
    /// The scheduler can't be asked, for this reason.
    Silent(String),
}

/// The batch jobs that are asked for.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    jobs: Mutex<HashMap<Job, watch::Sender<Option<Answer>>>>,
    /// Told to ask at once.
    look: Arc<Notify>,
}

impl Watched {
    /// Has a job asked for, as long as the receiver lives.
    pub(crate) fn watch(&self, job: Job) -> watch::Receiver<Option<Answer>> {
        let (answers_tx, answers) = watch::channel(None);
        lock(&self.jobs).insert(job, answers_tx);
        self.look.notify_one();
        answers
    }

    /// Whoever notifies this has the scheduler asked at once.
    pub(crate) fn look(&self) -> &Arc<Notify> {
        &self.look
    }

    /// Asks. Never returns.
    pub(crate) async fn ask(&self, batch: &impl Batch) -> Infallible {
        loop {
            let jobs: Vec<Job> = {
                let mut jobs = lock(&self.jobs);
                jobs.retain(|_, answers_tx| !answers_tx.is_closed());
                jobs.keys().cloned().collect()
            };
            if jobs.is_empty() {
                self.look.notified().await;
                continue;
            }
            let answers: Vec<Answer> = match batch.states(&jobs).await {
                Ok(states) => states.into_iter().map(Answer::State).collect(),
                Err(error) => vec![Answer::Silent(error.to_string()); jobs.len()],
            };
            for (job, answer) in jobs.iter().zip(answers) {
                if let Some(answers_tx) = lock(&self.jobs).get(job) {
                    answers_tx.send_replace(Some(answer));
                }
            }
            // A job that is new is asked for at once.
            let _ = timeout(PAUSE, self.look.notified()).await;
            sleep(PAUSE / 10).await;
        }
    }
}
