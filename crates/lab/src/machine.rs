//! The first process of an emulated machine: it has namespaces of its own
//! and holds them by living.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{getegid, geteuid, sethostname};

use crate::child::{self, ChildError, Starting};
use crate::grid::{KERNEL_TIMES, Slow};
use crate::groups;
use crate::mounts::{self, MountError, Names};
use crate::topology::Machine;

/// The namespaces that each machine has for itself.
pub(crate) const NAMESPACES: CloneFlags = CloneFlags::CLONE_NEWNET
    .union(CloneFlags::CLONE_NEWNS)
    .union(CloneFlags::CLONE_NEWUTS)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWPID);

/// Starts a machine's first process as a child of the caller, which must have one thread only. The
/// process holds `lock` open as long as it lives.
pub(crate) fn start(
    lab: &str,
    machine: &Machine,
    share: &[PathBuf],
    lock: BorrowedFd<'_>,
) -> Result<Starting, ChildError> {
    let set_up = || set_up(lab, machine, share);
    child::start(&machine.name, NAMESPACES, &[lock.as_raw_fd()], set_up, |()| reap())
}

#[derive(Debug, thiserror::Error)]
enum SetUpError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("cannot set the host name: {0}")]
    HostName(nix::Error),
    #[error(
        "cannot make control groups of its own: {0}; `slurm_confines` needs root, and the freezer of control groups' \
         version 1 mounted at /sys/fs/cgroup/freezer"
    )]
    Groups(std::io::Error),
    #[error("cannot set {0}: {1}")]
    Setting(&'static str, std::io::Error),
}

fn set_up(lab: &str, machine: &Machine, share: &[PathBuf]) -> Result<(), SetUpError> {
    sethostname(&machine.host_name).map_err(SetUpError::HostName)?;
    let Machine { name, host_name, address, has_groups, .. } = machine;
    if *has_groups {
        groups::enter(lab, name).map_err(SetUpError::Groups)?;
    }
    mounts::enter(&Names { lab_name: name, host_name, address: *address }, *has_groups, share)?;
    for (setting, value) in &machine.settings {
        let written = std::fs::write(Path::new("/proc/sys").join(setting), value);
        written.map_err(|error| SetUpError::Setting(setting, error))?;
    }
    slow_down(machine.slow).map_err(|(setting, error)| SetUpError::Setting(setting, error))?;
    switches().map_err(|(setting, error)| SetUpError::Setting(setting, error))?;
    if !geteuid().is_root() {
        ordinary_settings().map_err(|(setting, error)| SetUpError::Setting(setting, error))?;
    }
    std::env::set_current_dir("/").map_err(|error| SetUpError::Setting("the current directory", error))
}

/// Makes the kernel's times longer, those that this kernel has as settings of a machine.
fn slow_down(slow: Slow) -> Result<(), (&'static str, std::io::Error)> {
    for time in KERNEL_TIMES.into_iter().filter(|_| !slow.is_none()) {
        let path = Path::new("/proc/sys").join(time.setting);
        if let Some(longer) = std::fs::read_to_string(&path).ok().and_then(|text| time.slowed(&text, slow)) {
            std::fs::write(path, longer).map_err(|error| (time.setting, error))?;
        }
    }
    Ok(())
}

/// Makes the machine's bridges plain switches: what nodes of a network send each other doesn't pass
/// the filters and the NAT of the router. Where `br_netfilter` is loaded, it would by default.
fn switches() -> Result<(), (&'static str, std::io::Error)> {
    for setting in ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"] {
        match std::fs::write(Path::new("/proc/sys").join(setting), "0") {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err((setting, error)),
            _ => {}
        }
    }
    Ok(())
}

/// Allows the machine's users what root may do anyhow: services on any port, and `ping`.
fn ordinary_settings() -> Result<(), (&'static str, std::io::Error)> {
    let group = getegid();
    for (setting, value) in [
        ("net/ipv4/ip_unprivileged_port_start", "0".to_owned()),
        ("net/ipv4/ping_group_range", format!("{group} {group}")),
    ] {
        std::fs::write(Path::new("/proc/sys").join(setting), value).map_err(|error| (setting, error))?;
    }
    Ok(())
}

/// Waits for the machine's orphaned processes, which become children of its first process. Ends
/// only with it.
fn reap() {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    if children.thread_block().is_err() {
        return;
    }
    loop {
        match waitpid(None, None) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => {
                if children.wait().is_err() {
                    return;
                }
            }
        }
    }
}
