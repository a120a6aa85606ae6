//! The running jobs, as their heads report them. Nothing depends on them but
//! `isthmus status`.

use std::collections::BTreeMap;

use isthmus_wire::bounds::JOBS_PER_SITE;
use isthmus_wire::{GridName, JobId, Label, proto};

use super::Refused;

/// The running jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<JobId, (Label, proto::JobReport)>);

impl Jobs {
    /// Takes a report from the site of the job's head.
    pub(super) fn report(&mut self, site: Label, report: proto::JobReport) -> Result<(), Refused> {
        let job: JobId = report.job.parse().map_err(|error| Refused(format!("{error}")))?;
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
                if running >= JOBS_PER_SITE {
                    return Err(Refused(format!("site {site} has {running} jobs already")));
                }
            }
        }
        self.0.insert(job, (site, report));
        Ok(())
    }

    /// Forgets the jobs of a site, but for those whose head is to be kept.
    pub(super) fn keep_headed(&mut self, site: &Label, keep: impl Fn(&str) -> bool) {
        self.0.retain(|_, (other, report)| {
            *other != *site || report.nodes.first().is_some_and(|head| keep(head))
        });
    }

    /// How many each site has.
    pub(super) fn by_site(&self) -> BTreeMap<&Label, u32> {
        let mut counts = BTreeMap::new();
        self.0.values().for_each(|(site, _)| *counts.entry(site).or_default() += 1);
        counts
    }

    /// All of them, by their ids.
    pub(super) fn with_ids(&self) -> impl Iterator<Item = (&JobId, &proto::JobReport)> {
        self.0.iter().map(|(id, (_, report))| (id, report))
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &proto::JobReport> {
        self.0.values().map(|(_, report)| report)
    }
}
