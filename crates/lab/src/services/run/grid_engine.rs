//! Starting the Grid Engines of a lab's sites: each a real one, with a cell of its own.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};

use super::Starter;
use super::daemons::{READY_WITHIN, record};
use crate::mounts::MACHINE_DIRECTORY;
use crate::network::find_program;
use crate::services::ServiceRecord;
use crate::services::grid_engine::{self, GridEngine};

/// The packages of Debian that have Grid Engine.
const PACKAGES: &str = "apt-get install gridengine-master gridengine-exec gridengine-client";

impl Starter<'_> {
    /// Starts the daemons of these Grid Engines, and waits until all their nodes take jobs.
    pub(super) fn start_grid_engines(
        &mut self,
        engines: &[GridEngine],
    ) -> anyhow::Result<Vec<ServiceRecord>> {
        let mut started = Vec::new();
        for engine in engines {
            self.make_cell(engine)?;
            self.run_script(&engine.master, grid_engine::RECORDS, Instant::now() + READY_WITHIN)?;
            started.push(self.start_daemon(&engine.master)?);
        }
        let deadline = Instant::now() + READY_WITHIN;
        for engine in engines {
            let what = format!("the Grid Engine of site {} doesn't answer", engine.site);
            let (role, machine) = (engine.master.role, engine.master.machine.as_str());
            self.wait_until(&mut started, deadline, &what, |starter| {
                Ok(starter.asked((role, machine), &["qconf", "-sh"], deadline)?.is_some())
            })?;
            self.run_script(&engine.master, grid_engine::OPEN, deadline)?;
            for daemon in &engine.nodes {
                started.push(self.start_daemon(daemon)?);
            }
        }
        let deadline = Instant::now() + READY_WITHIN;
        for engine in engines {
            let what = format!("the Grid Engine of site {} has nodes that take no jobs", engine.site);
            let (role, machine) = (engine.master.role, engine.master.machine.as_str());
            self.wait_until(&mut started, deadline, &what, |starter| {
                let listed = starter.asked((role, machine), &["qstat", "-f"], deadline)?;
                Ok(listed.is_some_and(|listed| grid_engine::taking(&listed) == engine.nodes.len()))
            })?;
        }
        started.iter().map(record).collect()
    }

    /// Makes the directories and files that the daemons and commands of a Grid Engine read.
    fn make_cell(&self, engine: &GridEngine) -> anyhow::Result<()> {
        let site = &engine.site;
        for program in ["sge_qmaster", "sge_execd", "qconf", "qstat"] {
            if find_program(program).is_none() {
                bail!("site {site} has a Grid Engine, and {program} isn't installed here: {PACKAGES}");
            }
        }
        // It doesn't take the word of daemons that run as anybody else.
        if !nix::unistd::geteuid().is_root() {
            bail!("site {site} has a Grid Engine, which needs a lab of root's");
        }
        let (parts, place) = grid_engine::PARTS;
        for machine in &engine.machines {
            let inside =
                |path: &str| self.inside(&machine.name, &format!("{}/{path}", grid_engine::DIRECTORY));
            for directory in std::iter::once("").chain(grid_engine::DIRECTORIES) {
                let path = inside(directory)?;
                let made = DirBuilder::new().mode(0o700).create(&path);
                made.with_context(|| format!("cannot make {}", path.display()))?;
            }
            for part in parts {
                let link = inside(&format!("root/{part}"))?;
                let made = symlink(Path::new(place).join(part), &link);
                made.with_context(|| format!("cannot make {}", link.display()))?;
            }
            let own = engine.cell.iter().map(|(path, text)| (*path, text));
            let is_master = machine.name == engine.master.machine;
            let given = engine.given.iter().filter(|_| is_master).map(|(path, text)| (path.as_str(), text));
            for (path, text) in own.chain(given) {
                write(&inside(path)?, OpenOptions::new().create_new(true), text)?;
            }
            let hosts = self.inside(&machine.name, &format!("{MACHINE_DIRECTORY}/hosts"))?;
            write(&hosts, OpenOptions::new().append(true), &engine.hosts(&machine.name))?;
        }
        Ok(())
    }
}

fn write(path: &Path, how: &mut OpenOptions, text: &str) -> anyhow::Result<()> {
    let file = how.write(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}
