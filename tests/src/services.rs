//! The services of a running grid: what they answer and log, and starting them anew.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Job, World, isthmus};

/// Deadline of commands that only ask, and of services that end. It guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// Longest time of a service that a test has started, after which it is ended.
const SERVING: Duration = Duration::from_secs(900);

impl World {
    /// What `isthmus status --json` says in a node.
    ///
    /// # Errors
    /// The command fails.
    pub fn status(&self, node: &str) -> Result<Value> {
        let output = self.sh(node, SOON, &[&isthmus().display().to_string(), "status", "--json"])?;
        ensure!(output.status == 0, "{}", output.whole());
        Ok(serde_json::from_str(&output.stdout)?)
    }

    /// Waits until the node `name` is attached, as `isthmus status` in the node `from` says.
    ///
    /// # Errors
    /// The node isn't attached in time.
    pub fn attached(&self, from: &str, name: &str) -> Result<()> {
        World::eventually("it is attached", SOON, || {
            let status = self.status(from)?;
            let nodes = status["nodes"].as_array().context("no nodes")?;
            Ok(nodes.iter().any(|node| node["name"] == name && node["up"] == true))
        })
    }

    /// Waits until `isthmus status` in a node lists one job. Returns its id.
    ///
    /// # Errors
    /// It lists none, or several.
    pub fn only_job(&self, node: &str) -> Result<String> {
        let mut jobs = Vec::new();
        let listed = Self::eventually("one job is listed", SOON, || {
            jobs = self.status(node)?["jobs"].as_array().context("no list")?.clone();
            Ok(jobs.len() == 1)
        });
        listed.with_context(|| format!("{jobs:?}"))?;
        Ok(jobs[0]["id"].as_str().context("no id")?.to_owned())
    }

    /// Ends a service in order, and waits for its end.
    ///
    /// # Errors
    /// The machine has no such service, or it doesn't end.
    pub fn stop(&self, machine: &str, role: &str) -> Result<()> {
        self.kill(machine, "-TERM", &self.service(machine, role)?)?;
        World::eventually("it has ended", SOON, || Ok(self.service(machine, role).is_err()))
    }

    /// Path of a service's configuration by the lab, as its machine sees it.
    pub fn config(role: &str) -> String {
        format!("/run/isthmus-machine/{role}.toml")
    }

    /// Starts a service in the state directory of the lab's service, with this configuration.
    /// `before` is put in front of its command, such as setpriv(1).
    ///
    /// # Errors
    /// The service can't be started.
    pub fn serve(&self, machine: &str, role: &str, before: &[&str], config: &str) -> Result<Job> {
        let (binary, state) = (isthmus().display().to_string(), format!("/var/lib/isthmus/{role}"));
        let mut words = before.to_vec();
        words.extend([&binary, role, "--state", &state, "--config", config]);
        Job::start(self.command(machine, SERVING, &words)?)
    }

    /// The logs of all services of the lab, each after a line `==> SERVICE <==`.
    ///
    /// # Errors
    /// The logs can't be read.
    pub fn logs(&self) -> Result<String> {
        logs(self.lab().name())
    }
}

/// The logs of all services of the lab `lab`, each after a line `==> SERVICE <==`.
///
/// # Errors
/// The logs can't be read.
pub fn logs(lab: &str) -> Result<String> {
    let output = Command::new(isthmus()).args(["lab", "logs", "--lab", lab]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
