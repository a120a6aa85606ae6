//! By what a launcher starts ranks on this node, beside its own processes: a daemon here, or
//! `isthmus launch` for a daemon on another node. If one is killed, the launcher ends the job,
//! and only the launcher learns how its child ended.

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;

use isthmus_service::lock;
use isthmus_wire::GridName;
use isthmus_wire::launchers::{DAEMONS, starts_ranks};
use isthmus_wire::proto::CommandKilled;

use crate::starting::processes::LAUNCH;

/// Most processes that are known: two per node of a large job.
const PROCESSES_MAX: usize = 1 << 16;
/// The name of isthmus's own processes, such as a supervisor.
const OWN: &str = "isthmus";

/// The processes by which one job's launchers start ranks, with their names in messages.
#[derive(Debug, Default)]
pub(crate) struct Starters(Mutex<HashMap<u32, String>>);

impl Starters {
    /// Notes that a process is `isthmus launch` for a node.
    pub(crate) fn launches(&self, pid: u32, node: &str) {
        self.insert(pid, format!("{LAUNCH}{node}`"));
    }

    /// Notes that a process is a daemon; `daemon` is its place in [`DAEMONS`].
    pub(crate) fn is_daemon(&self, pid: u32, daemon: u32) {
        if let Some(name) = usize::try_from(daemon).ok().and_then(|place| DAEMONS.get(place)) {
            self.insert(pid, (*name).to_owned());
        }
    }

    fn insert(&self, pid: u32, name: String) {
        let mut all = lock(&self.0);
        if all.len() < PROCESSES_MAX {
            all.insert(pid, name);
        }
    }

    /// Notes that a process has ended, with this wait status, and not by its launcher. Returns what
    /// the head is told, if the process starts ranks and a signal has ended it.
    pub(crate) fn ended(&self, node: &GridName, pid: u32, status: i32) -> Option<CommandKilled> {
        let command = lock(&self.0).remove(&pid)?;
        let node = node.to_string();
        libc::WIFSIGNALED(status).then(|| CommandKilled { node, command, signal: libc::WTERMSIG(status) })
    }
}

/// What the head is told of a signal that ends a launcher or daemon. Returns `None` if isthmus, a
/// process that starts ranks, or a terminal has sent it. `isthmus run` gets a terminal's signals as
/// well.
pub(crate) fn signalled(node: &GridName, pid: u32, signal: u32, sender: u32) -> Option<CommandKilled> {
    let signal = i32::try_from(signal).ok()?;
    let is_told = sender != 0 && !name_of(sender).is_some_and(|name| is_own(&name));
    let command = name_of(pid).filter(|_| is_told)?;
    Some(CommandKilled { node: node.to_string(), command, signal })
}

/// Whether a process of this name passes signals on: isthmus's own, or one that starts ranks.
fn is_own(name: &str) -> bool {
    name == OWN || starts_ranks(name)
}

/// A process's name; `None` if the process has ended, as kill(1) mostly has.
fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> GridName {
        "n1.alpha".parse().unwrap()
    }

    #[test]
    fn what_starts_ranks_is_told_once_if_a_signal_ends_it() {
        let starters = Starters::default();
        starters.launches(10, "n1.beta");
        starters.launches(11, "n2.beta");
        starters.is_daemon(12, 2);
        starters.is_daemon(13, 99);
        for (name, pid, status, want) in [
            ("killed", 10, libc::SIGKILL, Some(("`isthmus launch n1.beta`", libc::SIGKILL))),
            ("again", 10, libc::SIGKILL, None),
            ("a lost connection", 11, 255 << 8, None),
            ("a daemon", 12, libc::SIGSEGV | 0x80, Some(("hydra_pmi_proxy", libc::SIGSEGV))),
            ("no daemon", 13, libc::SIGKILL, None),
            ("another child", 14, libc::SIGKILL, None),
        ] {
            let got = starters.ended(&node(), pid, status);
            let got = got.as_ref().map(|killed| (killed.command.as_str(), killed.signal));
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn a_signal_is_told_unless_isthmus_or_a_launcher_passes_it_on() {
        for (name, want) in [("isthmus", true), ("mpirun.openmpi", true), ("orted", true), ("bash", false)] {
            assert_eq!(is_own(name), want, "{name}");
        }
        let own = std::process::id();
        // No process has the id of a group that has ended.
        let ended = u32::MAX / 2;
        assert_eq!(signalled(&node(), own, 15, 0), None, "of a terminal");
        assert_eq!(signalled(&node(), ended, 15, ended), None, "to nobody");
        let told = signalled(&node(), own, 15, ended).unwrap();
        assert_eq!((told.signal, told.node.as_str()), (15, "n1.alpha"));
    }
}
