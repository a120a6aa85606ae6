//! The batch job that a process runs in, by the variables that Slurm gives it (sbatch(1), "OUTPUT
//! ENVIRONMENT VARIABLES").

use crate::counts::{self, CountsError};
use crate::hostlist::{self, HostlistError};

/// Nodes that Slurm has given to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The job's number.
    pub job: u32,
    /// Name of the cluster; empty if Slurm doesn't tell it.
    pub cluster: String,
    /// The job's nodes, at least one.
    pub hosts: Vec<Host>,
    /// Name of the node that this process runs on; `None` if it isn't one of the job's, as where
    /// salloc(1) was called.
    pub here: Option<String>,
}

/// A node of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The node's name in Slurm, which is most often its host name.
    pub name: String,
    /// For how many ranks the job has room there; `None` if Slurm doesn't tell it.
    pub slots: Option<u32>,
}

/// Why the variables name no usable nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// `SLURM_JOB_ID` isn't a job's number.
    #[error("SLURM_JOB_ID is {0:?}, which is no number of a job")]
    Job(String),
    /// `SLURM_JOB_ID` is there, and the list of nodes isn't.
    #[error("SLURM_JOB_ID is set, and SLURM_JOB_NODELIST isn't")]
    NoHosts,
    /// The list of nodes can't be read.
    #[error("SLURM_JOB_NODELIST: {0}")]
    Hosts(#[from] HostlistError),
    /// A variable with a count for each node can't be read.
    #[error("{variable}: {cause}")]
    Counts {
        /// Name of the variable.
        variable: &'static str,
        /// What is wrong with its value.
        cause: CountsError,
    },
    /// The job has parts with different options (srun(1), "HETEROGENEOUS JOBS").
    #[error("this is a heterogeneous job of Slurm, whose nodes aren't told by one list")]
    Heterogeneous,
}

/// Variables with a count for each node, the first that fits first: ranks that the user asked for,
/// and processors.
const COUNTS: [&str; 2] = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"];
/// Longest name of a cluster, in bytes, that is believed.
const CLUSTER: usize = 64;

impl Allocation {
    /// The job of this process; `None` if it is in none. `variable` looks up an environment
    /// variable.
    ///
    /// # Errors
    /// [`AllocationError`].
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, AllocationError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let Some(job) = variable("SLURM_JOB_ID") else { return Ok(None) };
        if variable("SLURM_HET_SIZE").is_some() {
            return Err(AllocationError::Heterogeneous);
        }
        let number = job.parse().ok().filter(|_| job.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(number) = number else {
            return Err(AllocationError::Job(job.chars().take(40).collect()));
        };
        let list = variable("SLURM_JOB_NODELIST").ok_or(AllocationError::NoHosts)?;
        let names = hostlist::expand(&list)?;
        let mut slots = None;
        for name in COUNTS {
            let Some(text) = variable(name) else { continue };
            let counts = counts::expand(&text);
            let counts = counts.map_err(|cause| AllocationError::Counts { variable: name, cause })?;
            // Within a job step the first may be of the step, which may have fewer nodes.
            if counts.len() == names.len() {
                slots = Some(counts);
                break;
            }
        }
        let here = variable("SLURMD_NODENAME").filter(|here| names.contains(here));
        let slot = |index: usize| slots.as_ref().and_then(|slots: &Vec<u32>| slots.get(index).copied());
        let hosts = names.into_iter().enumerate().map(|(index, name)| Host { name, slots: slot(index) });
        let fits = |name: &String| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            name.len() <= CLUSTER && name.bytes().all(allowed)
        };
        let cluster = variable("SLURM_CLUSTER_NAME").filter(fits).unwrap_or_default();
        Ok(Some(Self { job: number, cluster, hosts: hosts.collect(), here }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &str) -> Result<Option<Allocation>, AllocationError> {
        let all: Vec<(&str, &str)> =
            variables.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        Allocation::find(|name| {
            all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_job_s_nodes_and_slots_are_those_of_its_variables() {
        let job = "SLURM_JOB_ID=17 SLURM_JOB_NODELIST=n[2-3]";
        for (more, want) in [
            ("", "n2 n3"),
            ("SLURM_TASKS_PER_NODE=2(x2)", "n2:2 n3:2"),
            ("SLURM_TASKS_PER_NODE=2,1 SLURM_JOB_CPUS_PER_NODE=8(x2)", "n2:2 n3:1"),
            ("SLURM_TASKS_PER_NODE=1 SLURM_JOB_CPUS_PER_NODE=8(x2)", "n2:8 n3:8"),
            ("SLURM_TASKS_PER_NODE=1", "n2 n3"),
        ] {
            let found = find(&format!("{job} {more}")).unwrap().unwrap();
            let text = |host: &Host| match host.slots {
                Some(slots) => format!("{}:{slots}", host.name),
                None => host.name.clone(),
            };
            let hosts: Vec<String> = found.hosts.iter().map(text).collect();
            assert_eq!((found.job, hosts.join(" ").as_str()), (17, want), "{more}");
        }
    }

    #[test]
    fn a_process_may_be_beside_its_job_s_nodes() {
        let job = "SLURM_JOB_ID=17 SLURM_JOB_NODELIST=n[2-3] SLURM_CLUSTER_NAME=alpha";
        for (more, want) in [("", None), ("SLURMD_NODENAME=n3", Some("n3")), ("SLURMD_NODENAME=login", None)]
        {
            let found = find(&format!("{job} {more}")).unwrap().unwrap();
            assert_eq!((found.here.as_deref(), found.cluster.as_str()), (want, "alpha"), "{more}");
        }
        assert_eq!(find("SLURM_JOB_NODELIST=n1"), Ok(None));
        assert_eq!(find("SLURM_JOB_ID= SLURM_JOB_NODELIST=n1"), Ok(None));
    }

    #[test]
    fn what_can_t_be_read_is_named() {
        for (variables, want) in [
            ("SLURM_JOB_ID=x SLURM_JOB_NODELIST=n1", "SLURM_JOB_ID"),
            ("SLURM_JOB_ID=-1 SLURM_JOB_NODELIST=n1", "SLURM_JOB_ID"),
            ("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST"),
            ("SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n[1", "isn't closed"),
            ("SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=x", "SLURM_TASKS_PER_NODE"),
            ("SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n1 SLURM_HET_SIZE=2", "heterogeneous"),
        ] {
            let error = find(variables).unwrap_err().to_string();
            assert!(error.contains(want), "{variables}: {error}");
        }
    }
}
