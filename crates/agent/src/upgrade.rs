//! Replaces the agent's program in place, between jobs. Nothing but the process goes on:
//! the new program begins as after a restart.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_service::upgrade::{Hangups, Upgrades, replace};
use isthmus_wire::upgrade::State;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::jobs::node::Node;

/// Time between two looks whether a job runs.
const LOOK: Duration = Duration::from_millis(200);
/// For how long no job must have run. A party that waits for a job's end has learned of it by then.
const QUIET: Duration = Duration::from_secs(2);
/// How long children of the former program may take to end, and the time between two looks at them.
const CHILDREN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(10));

/// The signal SIGHUP, if it asks this process for an upgrade; `None` if it ends the agent. To be
/// awaited before the agent starts anything: a child of the former program may still have the
/// agent's listener.
///
/// # Errors If descriptors run out.
pub(crate) async fn hangups(upgrades: &Upgrades) -> io::Result<Option<Signal>> {
    if upgrades.replaceable().is_none() {
        return Ok(None);
    }
    // A party that reads that this program is there may send the next SIGHUP at once.
    let hangups = signal(SignalKind::hangup())?;
    if upgrades.took_over() {
        reap(children()).await;
        info!("upgraded in place");
    }
    Ok(Some(hangups))
}

/// Replaces the program after each SIGHUP, once no job runs. If that fails, this process goes on as
/// before. Never returns.
pub(crate) async fn watch(node: Arc<Node>, upgrades: Arc<Upgrades>, hangups: Option<Signal>) -> Infallible {
    let Some(mut hangups) = hangups else { return std::future::pending().await };
    while hangups.recv().await.is_some() {
        let Err(reason) = upgrade(&node, &upgrades).await;
        error!(
            reason,
            "not upgraded, and all goes on as before: repair the program or its configuration, and send SIGHUP again"
        );
    }
    std::future::pending().await
}

/// Replaces the program once no job runs. Returns only if that fails, with the reason.
async fn upgrade(node: &Node, upgrades: &Upgrades) -> Result<Infallible, String> {
    let (service, program, _) = upgrades.replaceable().ok_or("this agent can't be replaced")?;
    let path = program.path().display();
    info!(program = %path, jobs = node.jobs().len(), "asked by SIGHUP to upgrade in place, between jobs");
    let check = async || program.check(&[]).await.map_err(|error| format!("{path}: {error}"));
    check().await?;
    let state = State { service, connections: 0, bytes: 0, listeners: Vec::new(), pairs: Vec::new() };
    loop {
        if quiet(node).await {
            // Meanwhile there may be another program at the path.
            check().await?;
        }
        // No job can begin meanwhile.
        let replacing = || Hangups::ignoring(|| replace(program, &state, &[]));
        if let Some(error) = node.if_idle(replacing) {
            return Err(format!("{path} can't be put in this one's place: {error}"));
        }
    }
}

/// Waits until no job has run for [`QUIET`], however long that takes. Returns whether one ran
/// meanwhile.
async fn quiet(node: &Node) -> bool {
    let (mut since, mut ran) = (Instant::now(), false);
    while since.elapsed() < QUIET {
        if !node.jobs().is_empty() {
            (since, ran) = (Instant::now(), true);
        }
        sleep(LOOK).await;
    }
    ran
}

/// The children that this process has, as `/proc` lists them.
fn children() -> Vec<Pid> {
    let lists = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = lists.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let ids: Vec<_> =
        texts.flat_map(|text| text.split_whitespace().map(str::parse).collect::<Vec<_>>()).collect();
    ids.into_iter().filter_map(Result::ok).map(Pid::from_raw).collect()
}

/// Waits for the end of children of the former program, and collects them. They end because their
/// sockets have ended.
async fn reap(mut children: Vec<Pid>) {
    let begun = Instant::now();
    loop {
        children.retain(|child| waitpid(*child, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive));
        if children.is_empty() {
            return;
        }
        if begun.elapsed() >= CHILDREN.0 {
            return warn!(?children, "children of the former program don't end");
        }
        sleep(CHILDREN.1).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[allow(clippy::zombie_processes, reason = "that is what is tested")]
    async fn children_of_a_former_program_are_reaped() {
        let child = std::process::Command::new("true").spawn().unwrap();
        let child = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(children().contains(&child));
        reap(vec![child]).await;
        assert!(!children().contains(&child));
    }
}
