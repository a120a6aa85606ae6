//! Why jobs have ended at this node alone.
//!
//! The node that held the job here was lost. Once that node reaches this one again, it asks.

use std::collections::VecDeque;
use std::sync::Mutex;

use isthmus_service::lock;
use isthmus_wire::JobId;

/// Most jobs whose reasons are kept: the last ones.
const KEPT: usize = 64;

/// The last jobs that this node has given up, and why.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(Mutex<VecDeque<(JobId, String)>>);

impl GivenUp {
    pub(crate) fn note(&self, job: JobId, reason: String) {
        let mut kept = lock(&self.0);
        kept.truncate(KEPT - 1);
        kept.push_front((job, reason));
    }

    pub(crate) fn why(&self, job: JobId) -> Option<String> {
        lock(&self.0).iter().find(|(id, _)| *id == job).map(|(_, reason)| reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_jobs_are_kept() {
        let (given_up, id) = (GivenUp::default(), |number: u8| JobId([number; 16]));
        for number in 0..=KEPT as u8 {
            given_up.note(id(number), format!("reason {number}"));
        }
        assert_eq!(given_up.why(id(0)), None);
        assert_eq!(given_up.why(id(1)).as_deref(), Some("reason 1"));
        assert_eq!(given_up.why(id(KEPT as u8)), Some(format!("reason {KEPT}")));
    }
}
