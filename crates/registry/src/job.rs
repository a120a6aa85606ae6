//! The running jobs. Their heads report them, and their records are folded here.

use std::collections::BTreeMap;

use isthmus_wire::bounds::{Bounded as _, JOBS_PER_OWNER, JOBS_PER_SITE, leaves_room};
use isthmus_wire::{GridName, JobId, Label, proto};

use super::{Refused, Registry, SessionId};
use crate::records::JobRecord;

/// The running jobs, each with the site of its head.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<JobId, (Label, proto::JobReport)>);

impl Jobs {
    pub(super) fn fold(&mut self, job: JobId, record: Option<(Label, proto::JobReport)>) {
        match record {
            Some(record) => self.0.insert(job, record),
            None => self.0.remove(&job),
        };
    }

    /// The number of jobs of each site.
    pub(super) fn by_site(&self) -> BTreeMap<&Label, u32> {
        let mut counts = BTreeMap::new();
        self.0.values().for_each(|(site, _)| *counts.entry(site).or_default() += 1);
        counts
    }

    /// All jobs in the order of their ids.
    pub(super) fn with_ids(&self) -> impl Iterator<Item = (&JobId, &proto::JobReport)> {
        self.0.iter().map(|(id, (_, report))| (id, report))
    }

    /// The reports of all running jobs.
    pub(super) fn all(&self) -> impl Iterator<Item = &proto::JobReport> {
        self.0.values().map(|(_, report)| report)
    }
}

/// The effect of a job's report on its record.
#[derive(Debug, Clone, PartialEq)]
pub enum JobChange {
    /// The job runs, and this is its record.
    Running(JobRecord),
    /// The job has ended: its record is to be deleted.
    Ended,
}

impl Registry {
    /// The change of a job's record that a gateway's report makes. `None` if it makes no change, as
    /// when the job's head has attached to another gateway since.
    ///
    /// # Errors
    /// If the gateway isn't attached, the job is another site's, the report exceeds a bound, or the
    /// site has too many jobs. The attachment stays.
    pub fn job_change(
        &self,
        session: SessionId,
        job: &JobId,
        report: &proto::JobReport,
    ) -> Result<Option<JobChange>, Refused> {
        let (site, gateway) = self.attached_gateway(session)?;
        if self.is_elsewhere(report.nodes.first(), &gateway) {
            return Ok(None);
        }
        report.check()?;
        let head: Option<GridName> = report.nodes.first().and_then(|head| head.parse().ok());
        if head.is_none_or(|head| head.site != site) {
            return Err(Refused(format!("the head of job {job} is not in site {site}")));
        }
        match self.jobs.0.get(job) {
            Some((owner, _)) if *owner != site => {
                return Err(Refused(format!("job {job} belongs to site {owner}")));
            }
            Some(_) if report.ended => return Ok(Some(JobChange::Ended)),
            Some(_) => {}
            None if report.ended => return Ok(None),
            None => {
                let own = self.jobs.all().filter(|other| other.owner == report.owner).count();
                if own >= JOBS_PER_OWNER {
                    return Err(Refused(format!("user {:?} has {own} jobs already", report.owner)));
                }
                self.check_site(&site, &report.owner)?;
            }
        }
        self.check_nodes(job, report)?;
        Ok(Some(JobChange::Running(JobRecord { site: site.to_string(), report: report.clone() })))
    }

    /// Refuses a further job of an owner who has a full share of a site's jobs.
    fn check_site(&self, site: &Label, owner: &str) -> Result<(), Refused> {
        let running = || self.jobs.0.values().filter(|(other, _)| other == site);
        let (all, own) = (running().count(), running().filter(|(_, other)| other.owner == owner).count());
        if leaves_room(own, all, JOBS_PER_SITE) {
            return Ok(());
        }
        Err(Refused(format!(
            "user {owner:?} has {own} of the {all} jobs of site {site} already, and {JOBS_PER_SITE} may run there: \
             the rest is left for other users"
        )))
    }

    /// Checks that a job belongs to the owner of its head, and runs on nodes of the grid.
    fn check_nodes(&self, job: &JobId, report: &proto::JobReport) -> Result<(), Refused> {
        let address = |name: &String| self.addresses.address(&name.parse().ok()?);
        let head = report.nodes.first().and_then(address).and_then(|address| self.nodes.get(&address));
        if head.is_none_or(|head| head.contact.owner != report.owner) {
            let owner = &report.owner;
            return Err(Refused(format!("the head of job {job} is no node of user {owner:?}")));
        }
        let joined = report.joined.iter().flat_map(|joined| [&joined.initiator, &joined.acceptor]);
        match report.nodes.iter().chain(joined).find(|name| address(name).is_none()) {
            Some(name) => Err(Refused(format!("job {job} names {name:?}, which is no node of the grid"))),
            None => Ok(()),
        }
    }
}
