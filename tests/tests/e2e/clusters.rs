//! What tests on two clusters with a real scheduler each share, mostly Slurm: what is in the queues, and
//! what goes wrong there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Output, Shared, World};
use isthmus_lab::grid::Role;

pub(crate) static GRID: Shared = Shared::new("two-slurms");

/// Deadline of batch jobs, and runs in them, that end by themselves. It guards against hanging only.
pub(crate) const SOON: Duration = Duration::from_secs(240);
/// Deadline of commands that only ask. It guards against hanging only.
pub(crate) const LOOK: Duration = Duration::from_secs(60);
/// Time within which nothing of a batch job is left.
pub(crate) const GONE: Duration = Duration::from_secs(30);
/// The address that the lab gives to n1, the front-end, of both sites.
pub(crate) const VIA: &str = "192.168.1.2";
pub(crate) const SITES: [&str; 2] = ["alpha", "beta"];

/// The login node of a site, where its slurmctld runs.
pub(crate) fn login(site: &str) -> String {
    format!("n1.{site}")
}

/// Runs a command that must succeed.
pub(crate) fn sh(world: &World, machine: &str, words: &[&str]) -> Result<Output> {
    let output = world.sh(machine, LOOK, words)?;
    ensure!(output.status == 0, "{}: {}", words.join(" "), output.whole());
    Ok(output)
}

/// The nodes with a role, such as `n2.alpha`, each with the name of its site.
fn with_role(world: &World, role: Role) -> Vec<(String, String)> {
    let grid = &world.lab().record().grid;
    let nodes = grid.sites.iter().flat_map(|site| {
        let of_site = site.nodes.iter().filter(move |node| node.roles.contains(&role));
        of_site.map(move |node| (format!("{}.{}", node.name, site.name), site.name.clone()))
    });
    nodes.collect()
}

/// The nodes on which the Slurms of all sites run jobs, such as `n2.alpha`.
pub(crate) fn of_jobs(world: &World) -> Vec<String> {
    with_role(world, Role::Slurmd).into_iter().map(|(node, _)| node).collect()
}

/// The lines of the queues of all sites.
pub(crate) fn queued(world: &World) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for (controller, site) in with_role(world, Role::Slurmctld) {
        let queue = sh(world, &controller, &["squeue", "--noheader"])?.stdout;
        all.extend(queue.lines().map(|line| format!("squeue at {site}: {line}")));
    }
    for (controller, site) in with_role(world, Role::SgeQmaster) {
        // It writes nothing at all if there are no jobs.
        let queue = sh(world, &controller, &["qstat", "-u", "*"])?.stdout;
        all.extend(queue.lines().map(|line| format!("qstat at {site}: {line}")));
    }
    Ok(all)
}

/// Waits until `left` finds nothing any more. The error has what it has found last.
pub(crate) fn nothing_left(deadline: Duration, mut left: impl FnMut() -> Result<Vec<String>>) -> Result<()> {
    let mut found = Vec::new();
    let gone = World::eventually("nothing is left", deadline, || {
        found = left()?;
        Ok(found.is_empty())
    });
    gone.with_context(|| found.join("\n"))
}

/// The batch job of a pilot, as `squeue` has it.
#[derive(Debug)]
pub(crate) struct Pilot {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Its nodes at the site, such as `n2`; empty before it has some.
    pub(crate) nodes: String,
}

/// Waits until a pilot is in this state at a site, such as `RUNNING`.
pub(crate) fn pilot(world: &World, site: &str, state: &str) -> Result<Pilot> {
    let mut found = None;
    World::eventually(&format!("a pilot is {state} at {site}"), SOON, || {
        let listed = sh(world, &login(site), &["squeue", "--noheader", "--format=%i|%T|%N|%j"])?.stdout;
        found = listed.lines().find_map(|line| {
            let fields: Vec<&str> = line.trim().split('|').collect();
            let [id, its_state, nodes, name] = fields[..] else { return None };
            let is_it = its_state == state && name.starts_with("isthmus-");
            is_it.then(|| Pilot { id: id.to_owned(), name: name.to_owned(), nodes: nodes.to_owned() })
        });
        Ok(found.is_some())
    })?;
    found.context("no pilot")
}

/// The numbers and names of all pilots that a site's Slurm knows, with those that have ended of late.
pub(crate) fn pilots_known(world: &World, site: &str) -> Result<Vec<String>> {
    let words = ["squeue", "--noheader", "--states=all", "--format=%i %j"];
    let listed = sh(world, &login(site), &words)?.stdout;
    Ok(listed.lines().filter(|line| line.contains(" isthmus-")).map(|line| line.trim().to_owned()).collect())
}

/// A batch job of somebody else's, which has all nodes of a site. It ends with this value.
pub(crate) struct Busy<'a> {
    world: &'a World,
    site: &'static str,
    job: String,
}

impl<'a> Busy<'a> {
    pub(crate) fn start(world: &'a World, site: &'static str) -> Result<Self> {
        let words =
            ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"];
        let job = sh(world, &login(site), &words)?.stdout.trim().to_owned();
        let busy = Self { world, site, job };
        World::eventually("somebody else's job runs", SOON, || {
            let words = ["squeue", "--noheader", "--format=%T", "--jobs", busy.job.as_str()];
            Ok(sh(world, &login(site), &words)?.stdout.trim() == "RUNNING")
        })?;
        Ok(busy)
    }

    pub(crate) fn end(self) -> Result<()> {
        sh(self.world, &login(self.site), &["scancel", &self.job]).map(drop)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.world.sh(&login(self.site), LOOK, &["scancel", &self.job]);
    }
}

/// The slurmctld of a site, which doesn't run. It runs again after this value.
pub(crate) struct Controller<'a> {
    world: &'a World,
    site: &'static str,
    is_back: bool,
}

impl<'a> Controller<'a> {
    /// Ends the slurmctld of a site in order, as its administrators would.
    pub(crate) fn down(world: &'a World, site: &'static str) -> Result<Self> {
        let machine = login(site);
        let daemons = world.processes(&machine, "slurmctld")?;
        ensure!(!daemons.is_empty(), "no slurmctld at {site}");
        let down = Self { world, site, is_back: false };
        for daemon in daemons {
            world.kill(&machine, "-TERM", &daemon)?;
        }
        World::eventually("slurmctld has ended", SOON, || {
            Ok(world.processes(&machine, "slurmctld")?.is_empty())
        })?;
        Ok(down)
    }

    /// Starts it again, and waits until it answers.
    pub(crate) fn back(mut self) -> Result<()> {
        self.is_back = true;
        self.start()?;
        World::eventually("slurmctld answers", SOON, || {
            Ok(self.world.sh(&login(self.site), LOOK, &["squeue", "--noheader"])?.status == 0)
        })
    }

    /// Starts it in the background, with the jobs that it had.
    fn start(&self) -> Result<()> {
        let script = "/usr/sbin/slurmctld -f \"$SLURM_CONF\" </dev/null >/tmp/slurmctld.log 2>&1";
        sh(self.world, &login(self.site), &["sh", "-c", script]).map(drop)
    }
}

impl Drop for Controller<'_> {
    fn drop(&mut self) {
        if !self.is_back
            && let Err(error) = self.start()
        {
            eprintln!("slurmctld at {} doesn't run again: {error:#}", self.site);
        }
    }
}

/// A node for jobs that is out of service. It is in service again after this value.
pub(crate) struct OutOfService<'a> {
    world: &'a World,
    site: &'static str,
    node: String,
}

impl<'a> OutOfService<'a> {
    /// Gives a node of a site this state, such as `drain`, for the reason "test".
    pub(crate) fn set(world: &'a World, site: &'static str, node: &str, state: &str) -> Result<Self> {
        let out = Self { world, site, node: node.to_owned() };
        let (name, state) = (out.name(), format!("state={state}"));
        sh(world, &login(site), &["scontrol", "update", &name, &state, "reason=test"])?;
        Ok(out)
    }

    fn name(&self) -> String {
        format!("nodename={}", self.node)
    }

    /// Brings the node back, and waits until it takes jobs.
    pub(crate) fn back(self) -> Result<()> {
        World::eventually("the node takes jobs", SOON, || {
            self.resume()?;
            // `sinfo` may call a node mixed that has been idle for long.
            let node = ["scontrol", "--oneliner", "show", "node", self.node.as_str()];
            Ok(sh(self.world, &login(self.site), &node)?.stdout.contains(" State=IDLE "))
        })
    }

    /// Slurm refuses this for a node that is in service.
    fn resume(&self) -> Result<Output> {
        self.world.sh(&login(self.site), LOOK, &["scontrol", "update", &self.name(), "state=resume"])
    }
}

impl Drop for OutOfService<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.resume() {
            eprintln!("{} of {} isn't in service again: {error:#}", self.node, self.site);
        }
    }
}

/// A node for jobs that is reserved from now on, for an hour, for jobs that name the reservation. It is
/// free for all again after this value.
pub(crate) struct Reservation<'a> {
    world: &'a World,
    site: &'static str,
    name: &'static str,
    is_over: bool,
}

impl<'a> Reservation<'a> {
    pub(crate) fn make(world: &'a World, site: &'static str, name: &'static str, node: &str) -> Result<Self> {
        let (name_is, nodes) = (format!("ReservationName={name}"), format!("Nodes={node}"));
        let words = ["scontrol", "create", "reservation", &name_is, &nodes];
        let more = ["StartTime=now", "Duration=60", "Users=root"];
        sh(world, &login(site), &[&words[..], &more].concat())?;
        Ok(Self { world, site, name, is_over: false })
    }

    /// Ends it, once its jobs have ended.
    pub(crate) fn end(mut self) -> Result<()> {
        World::eventually("the reservation is gone", SOON, || Ok(self.delete()?.status == 0))?;
        self.is_over = true;
        Ok(())
    }

    fn delete(&self) -> Result<Output> {
        let name = format!("ReservationName={}", self.name);
        self.world.sh(&login(self.site), LOOK, &["scontrol", "delete", &name])
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = self.delete()
        {
            eprintln!("the reservation {} of {} stays: {error:#}", self.name, self.site);
        }
    }
}
