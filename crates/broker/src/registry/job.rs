//! The running jobs, as their heads report them. Nothing depends on them but
//! `isthmus status`.

use std::collections::BTreeMap;

use isthmus_wire::{GridName, JobId, Label, proto};

use super::{Refused, check_texts};

/// Jobs that one site may have at once.
const MAX_PER_SITE: usize = 1024;
/// Nodes of one job, as many as a grid has addresses for in 64 blocks.
const MAX_NODES: usize = 64 * 254;
/// Pairs of nodes that are listed of one job; more would make `status` useless.
const MAX_PAIRS: usize = 16 * 1024;

/// The running jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<JobId, (Label, proto::JobReport)>);

impl Jobs {
    /// Takes a report from the site of the job's head.
    pub(super) fn report(&mut self, site: Label, mut report: proto::JobReport) -> Result<(), Refused> {
        let job: JobId = report.job.parse().map_err(|error| Refused(format!("{error}")))?;
        check_texts(&[&report.owner, &report.program])?;
        let head: Option<GridName> = report.nodes.first().and_then(|head| head.parse().ok());
        if head.is_none_or(|head| head.site != site) {
            return Err(Refused(format!("the head of job {job} is not in site {site}")));
        }
        match self.0.get(&job) {
            Some((owner, _)) if *owner != site => {
                return Err(Refused(format!("job {job} belongs to site {owner}")));
            }
            Some(_) if report.ended => {
                self.0.remove(&job);
                return Ok(());
            }
            Some(_) => {}
            None if report.ended => return Ok(()),
            None => {
                let running = self.0.values().filter(|(other, _)| *other == site).count();
                if running >= MAX_PER_SITE {
                    return Err(Refused(format!("site {site} has {running} jobs already")));
                }
            }
        }
        if report.nodes.len() > MAX_NODES {
            return Err(Refused(format!("job {job} has too many nodes")));
        }
        report.joined.truncate(MAX_PAIRS);
        self.0.insert(job, (site, report));
        Ok(())
    }

    /// Forgets the jobs of a site, but for those whose head is to be kept.
    pub(super) fn keep_headed(&mut self, site: &Label, keep: impl Fn(&str) -> bool) {
        self.0.retain(|_, (other, report)| {
            *other != *site || report.nodes.first().is_some_and(|head| keep(head))
        });
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &proto::JobReport> {
        self.0.values().map(|(_, report)| report)
    }
}
