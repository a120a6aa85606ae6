//! `isthmus up --submit`: this machine's agent submits batch jobs for its user.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::bail;
use clap::ValueEnum;
use isthmus_agent::config::Submit;
use isthmus_service::files;

use crate::config::{CONFIG_FILE, Config};

/// A batch scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SubmitTo {
    /// Slurm.
    Slurm,
    /// Grid Engine.
    GridEngine,
    /// Hosts without a scheduler, by ssh.
    Hosts,
}

impl From<SubmitTo> for Submit {
    fn from(to: SubmitTo) -> Self {
        match to {
            SubmitTo::Slurm => Self::Slurm,
            SubmitTo::GridEngine => Self::GridEngine,
            SubmitTo::Hosts => Self::Hosts,
        }
    }
}

/// Has the agent of a state directory submit batch jobs from now on. Returns whether its
/// configuration has changed. `search_path` is where the scheduler's commands are looked for.
///
/// # Errors
/// If they aren't there, or there is a configuration that says otherwise, which is the user's to
/// change.
pub(super) fn configure(directory: &Path, to: SubmitTo, search_path: &OsStr) -> anyhow::Result<bool> {
    let submit = Submit::from(to);
    if Config::load(None, directory)?.agent.submit == Some(submit) {
        return Ok(false);
    }
    let command = match submit {
        Submit::Slurm => "sbatch",
        Submit::GridEngine => "qsub",
        Submit::Hosts => "ssh",
    };
    if !std::env::split_paths(search_path).any(|directory| directory.join(command).is_file()) {
        bail!(
            "{command} isn't in PATH here: isthmus submits by it (some clusters need a `module load` for it)"
        );
    }
    let path = directory.join(CONFIG_FILE);
    let more = match submit {
        Submit::Hosts => ", and [[agent.hosts]] with an address for each host",
        Submit::Slurm | Submit::GridEngine => "",
    };
    let line = format!("submit = {:?}", submit.as_str());
    if path.exists() || submit == Submit::Hosts {
        bail!(
            "write this into {}, and call isthmus up again: {line} in section [agent]{more}",
            path.display()
        );
    }
    files::create_directory(directory)?;
    files::write(&path, format!("[agent]\n{line}\n").as_bytes(), 0o600)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_made_once_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        for command in ["sbatch", "qsub", "ssh"] {
            std::fs::write(directory.path().join(command), "").unwrap();
        }
        let configure = |path: &Path, to| super::configure(path, to, directory.path().as_os_str());
        assert!(configure(&path, SubmitTo::Slurm).unwrap());
        assert!(!configure(&path, SubmitTo::Slurm).unwrap());
        let config = Config::load(None, &path).unwrap().agent;
        assert_eq!((config.submit, config.slots()), (Some(Submit::Slurm), 0));
        let error = configure(&path, SubmitTo::GridEngine).unwrap_err().to_string();
        assert!(error.contains("submit = \"grid-engine\" in section [agent]"), "{error}");
        let error = configure(&directory.path().join("new"), SubmitTo::Hosts).unwrap_err().to_string();
        assert!(error.contains("[[agent.hosts]]"), "{error}");
        let error = super::configure(&directory.path().join("new"), SubmitTo::Slurm, OsStr::new("/none"));
        assert!(error.unwrap_err().to_string().contains("sbatch isn't in PATH"));
    }
}
