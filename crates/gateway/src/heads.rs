//! Whether an agent at the heads of jobs is frozen. Pure.
//!
//! A frozen agent looks to other sites as if its own site were cut off, which a job
//! outlives. Its gateway hears the difference: it reports the agent's jobs as ended, and
//! so the other sites' agents end their parts.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_service::silence::Silence;
use isthmus_wire::bounds::JOBS_PER_NODE;

/// The signs of life of an agent, for each job that it heads.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    jobs: BTreeMap<String, Head>,
}

#[derive(Debug)]
struct Head {
    silence: Silence,
    is_lost: bool,
}

impl Heads {
    /// Takes in a sign of life of the agent for a job: how late it came, and the job's patience.
    /// Returns whether the job was lost before.
    pub(crate) fn heard(&mut self, job: &str, late: Duration, patience: Duration) -> bool {
        if let Some(head) = self.jobs.get_mut(job) {
            head.silence.received(late);
            return std::mem::take(&mut head.is_lost);
        }
        if self.jobs.len() < JOBS_PER_NODE {
            let head = Head { silence: Silence::new(patience), is_lost: false };
            self.jobs.insert(job.to_owned(), head);
        }
        false
    }

    /// Takes in that a job has ended: no further signs are expected for it.
    pub(crate) fn ended(&mut self, job: &str) {
        self.jobs.remove(job);
    }

    /// Takes in that time has passed. Returns the jobs for which the agent has now been silent for
    /// too long.
    pub(crate) fn passed(&mut self, time: Duration) -> Vec<String> {
        let mut lost = Vec::new();
        for (job, head) in &mut self.jobs {
            head.silence.passed(time);
            if !head.is_lost && head.silence.lost().is_some() {
                head.is_lost = true;
                lost.push(job.clone());
            }
        }
        lost
    }

    /// Whether signs of life are expected.
    pub(crate) fn are_expected(&self) -> bool {
        !self.jobs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_service::silence::INTERVAL;
    use isthmus_wire::patience;

    /// After how many intervals jobs are lost, and which jobs.
    fn lost_after(heads: &mut Heads) -> (u32, Vec<String>) {
        let lost = |count| Some((count, heads.passed(INTERVAL))).filter(|(_, lost)| !lost.is_empty());
        (1..=200).find_map(lost).unwrap_or_default()
    }

    #[test]
    fn a_silent_agent_loses_each_job_once_by_the_jobs_patience() {
        let mut heads = Heads::default();
        assert!(!heads.are_expected());
        assert!(!heads.heard("a", Duration::ZERO, patience::DEFAULT));
        assert!(!heads.heard("b", Duration::ZERO, 2 * patience::DEFAULT));
        assert_eq!(lost_after(&mut heads), (12, vec!["a".to_owned()]));
        assert_eq!(lost_after(&mut heads), (10, vec!["b".to_owned()]));
        assert_eq!(lost_after(&mut heads), (0, Vec::new()), "lost before");
        assert!(heads.heard("a", Duration::ZERO, patience::DEFAULT), "it was only frozen");
        assert!(!heads.heard("a", Duration::ZERO, patience::DEFAULT));
        heads.ended("a");
        heads.ended("b");
        assert!(!heads.are_expected());
    }

    #[test]
    fn jobs_are_bounded() {
        let mut heads = Heads::default();
        for job in 0..2 * JOBS_PER_NODE {
            heads.heard(&job.to_string(), Duration::ZERO, patience::DEFAULT);
        }
        assert_eq!(heads.jobs.len(), JOBS_PER_NODE);
    }
}
