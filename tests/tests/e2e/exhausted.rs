//! Resources of an agent that run out are named as such.

use anyhow::{Result, ensure};
use isthmus_e2e::{World, root};

use crate::life::{NODES, SOON};

/// Limits a running agent to `more` descriptors more than it has open. The limit of processes that
/// it starts stays. Returns the new limit.
fn bound_descriptors(world: &World, node: &str, more: usize) -> Result<usize> {
    let agent = world.service(node, "agent")?;
    let open = world.sh(node, SOON, &["ls", &format!("/proc/{agent}/fd")])?;
    ensure!(open.status == 0, "{}", open.whole());
    let limit = open.stdout.lines().count() + more;
    let bound = world.sh(node, SOON, &["prlimit", "--pid", &agent, &format!("--nofile={limit}:")])?;
    ensure!(bound.status == 0, "{}", bound.whole());
    Ok(limit)
}

/// The initiator's agent can't open connections any more, or can't hand them over.
#[test]
fn a_job_ends_with_the_name_of_descriptors_that_run_out() -> Result<()> {
    let world = World::up("two-relays")?;
    // A kernel that sends a SYN again twice gives up after 7 s.
    let set = world.sh(NODES[0], SOON, &["sh", "-c", "echo 2 > /proc/sys/net/ipv4/tcp_syn_retries"])?;
    ensure!(set.status == 0, "{}", set.whole());
    let limit = bound_descriptors(&world, NODES[0], 60)?;
    let program = root().join("tests/programs/keep.py").display().to_string();
    let output = world.run(NODES[0], &["--nodes", &NODES.join(","), "--each"], &["python3", &program])?;
    let named = format!("{} has no file descriptors left (limit {limit}): raise LimitNOFILE=", NODES[0]);
    ensure!(output.stderr.contains(&named), "no {named:?} in {}", output.whole());
    ensure!(output.status != 0 && output.status != 124, "{}", output.whole());
    world.expect_clean()
}

/// A node without room for the job's directory is named before anything starts.
#[test]
fn a_job_is_refused_for_lack_of_space() -> Result<()> {
    /// Shell command for a file system of two pages. They hold the small files of a job's
    /// directory, but not the others.
    const SMALL: &str = "mount -t tmpfs -o size=8k,mode=700 small /run/isthmus";
    let world = World::up("two-relays")?;
    let far = NODES[1];
    world.stop(far, "agent")?;
    let mounted = world.sh(far, SOON, &["sh", "-c", SMALL])?;
    ensure!(mounted.status == 0, "{}", mounted.whole());
    let _agent = world.serve(far, "agent", &[], &World::config("agent"))?;
    world.attached(NODES[0], far)?;
    let output = world.run(NODES[0], &["--nodes", &NODES.join(","), "--each"], &["true"])?;
    // The run has ended by itself: a run that hangs is ended with another status.
    ensure!(output.status == 125, "{}", output.whole());
    let named = "cannot make the job's directory in /run/isthmus on n1.beta: this process has no space left on its disk";
    ensure!(output.stderr.contains(named), "no {named:?} in {}", output.whole());
    world.expect_clean()
}
