//! What `isthmus up --slurm` notes of the agents that it has started in a batch job, for `isthmus
//! run` in the same job on the same node.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use isthmus_common::process::ProcessId;
use isthmus_service::files;
use isthmus_slurm::Allocation;
use serde::{Deserialize, Serialize};

use super::step::AllocatedNode;

/// Name of the directory of what belongs to batch jobs, in a state directory.
const DIRECTORY: &str = "slurm";
/// Longest note that is read, in bytes: enough for 65,536 nodes.
const LONGEST: u64 = 16 << 20;
/// A note that is older than this is of a job that has ended.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The agents of a batch job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Note {
    /// The srun whose job step they are.
    pub srun: ProcessId,
    /// The agents.
    pub nodes: Vec<AllocatedNode>,
}

/// The directory of what belongs to batch jobs of a cluster, in a state directory.
pub fn directory(state: &Path, cluster: &str) -> PathBuf {
    let directory = state.join(DIRECTORY);
    if cluster.is_empty() { directory } else { directory.join(cluster) }
}

fn path(state: &Path, allocation: &Allocation) -> PathBuf {
    directory(state, &allocation.cluster).join(format!("job-{}.json", allocation.job))
}

impl Note {
    /// The note of a batch job whose agents' step still runs. What can't be read, or is another
    /// user's, is none.
    pub fn read(state: &Path, allocation: &Allocation) -> Option<Self> {
        let path = path(state, allocation);
        if std::fs::metadata(&path).ok()?.len() > LONGEST {
            return None;
        }
        let note: Self = serde_json::from_str(&files::read_secret(&path).ok()?).ok()?;
        note.srun.is_alive().then_some(note)
    }

    /// Writes the note, and removes those of jobs that have long ended.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, state: &Path, allocation: &Allocation) -> anyhow::Result<()> {
        let path = path(state, allocation);
        let text = serde_json::to_vec(self).context("cannot note the agents")?;
        files::write(&path, &text, 0o600)?;
        let entries = path.parent().and_then(|directory| std::fs::read_dir(directory).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_note = name.to_str().is_some_and(|name| name.starts_with("job-"));
            let modified = entry.metadata().and_then(|found| found.modified()).ok();
            let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if is_note && age.is_some_and(|age| age > KEPT) {
                // Another command may have removed it meanwhile.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use isthmus_slurm::Host;
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn a_note_is_good_as_long_as_its_step_runs() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = vec![Host { name: "n2".to_owned(), slots: None }];
        let allocation =
            |job| Allocation { job, cluster: "alpha".to_owned(), hosts: hosts.clone(), here: None };
        files::create_directory(&super::directory(directory.path(), "alpha")).unwrap();
        let node =
            AllocatedNode { host: "n2".to_owned(), name: "n2-ada-1.alpha".to_owned(), socket: "/x".into() };
        let mut note = Note { srun: ProcessId::of(Pid::this()).unwrap(), nodes: vec![node] };
        note.write(directory.path(), &allocation(1)).unwrap();
        assert_eq!(Note::read(directory.path(), &allocation(1)).unwrap().nodes, note.nodes);
        assert!(Note::read(directory.path(), &allocation(2)).is_none());
        note.srun.started += 1;
        note.write(directory.path(), &allocation(1)).unwrap();
        assert!(Note::read(directory.path(), &allocation(1)).is_none(), "another process has the id");
    }
}
