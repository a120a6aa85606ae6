//! By which ways nodes are joined.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::{Mpi, Output, World, root};

impl World {
    /// Has a node open 100 connections to another node at once. Returns how many went which way:
    /// "punch", or "direct, one-gateway".
    ///
    /// # Errors
    /// A connection fails.
    pub fn hundred(&self, from: &str, to: &str) -> Result<BTreeMap<String, u64>> {
        let nodes = format!("{from},{to}");
        let program = root().join("tests/programs/hundred.py").display().to_string();
        let (output, report) =
            self.run_reported(from, &["--nodes", &nodes, "--each"], &["python3", &program])?;
        ensure!(output.status == 0, "{}\n{}", output.whole(), self.logs()?);
        let mut ways = BTreeMap::new();
        for pair in report["node_pairs"].as_array().context("no pairs")? {
            let (dial, route) = (pair["dial"].as_str(), pair["route"].as_str());
            let way = match (dial.context("no dial")?, route.context("no route")?) {
                (dial, "end-to-end") => dial.to_owned(),
                (dial, route) => format!("{dial}, {route}"),
            };
            // Bytes may have gone by a way by which no connection was made.
            match pair["connections"].as_u64().context("no number")? {
                0 => {}
                connections => *ways.entry(way).or_default() += connections,
            }
        }
        Ok(ways)
    }

    /// Runs an MPI job of a rank on each of some nodes, in which all talk to each other.
    ///
    /// # Errors
    /// The job fails.
    pub fn all_to_all(&self, nodes: &[&str]) -> Result<Output> {
        let (launcher, alltoall) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("alltoall"));
        let (list, ranks) = (nodes.join(","), nodes.len().to_string());
        let head = nodes.first().context("no nodes")?;
        let output = self.run(head, &["--nodes", &list], &[&launcher, "-n", &ranks, &alltoall])?;
        ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
        Ok(output)
    }

    /// Checks that 100 connections and a job between two nodes take this way.
    ///
    /// # Errors
    /// They take another way, or fail.
    pub fn joined_by(&self, from: &str, to: &str, want: &str) -> Result<()> {
        let ways = self.hundred(from, to)?;
        ensure!(ways == BTreeMap::from([(want.to_owned(), 100)]), "{ways:?}, not 100 by {want}");
        self.all_to_all(&[from, to])?;
        Ok(())
    }

    /// What `isthmus plan --json` says about two nodes.
    ///
    /// # Errors
    /// The command fails.
    pub fn plan(&self, from: &str, to: &str) -> Result<serde_json::Value> {
        let binary = crate::isthmus().display().to_string();
        let deadline = std::time::Duration::from_secs(60);
        let output = self.sh(from, deadline, &[&binary, "plan", from, to, "--json"])?;
        ensure!(output.status == 0, "{}", output.whole());
        Ok(serde_json::from_str(&output.stdout)?)
    }
}
