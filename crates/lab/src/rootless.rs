//! Labs of ordinary users. The keeper makes a user namespace first, in which
//! the user has the same ids as outside: files, `id` and what programs think
//! of root are as ever. But processes made there have all rights over the
//! namespaces made afterwards, until they run a program: so the keeper and
//! what it makes of itself have them, programs that build the lab are given
//! them, and a user's command never has any right it was not given.

mod obstacles;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

pub(crate) use obstacles::Obstacles;

/// Why an ordinary user can't have a lab.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootlessError {
    /// The system refused a user namespace.
    #[error(
        "without root's rights, a lab needs a user namespace, which the system refuses ({step}: {cause}); {hint}"
    )]
    Refused {
        /// The operation that failed.
        step: &'static str,
        /// The system's error at the operation.
        cause: io::Error,
        /// What to do about the error. Empty if that isn't known.
        hint: String,
    },
    /// The rights within the user namespace can't be set.
    #[error("cannot set capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
}

/// Whether the calling process may build labs without a user namespace. Root in a container often
/// may not.
pub(crate) fn has_root_rights() -> bool {
    let effective = caps::read(None, CapSet::Effective).unwrap_or_default();
    geteuid().is_root()
        && [Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN]
            .iter()
            .all(|right| effective.contains(right))
}

/// What may be in the way when the system answers `cause`, as the end of a message. Empty for
/// errors of another kind.
pub(crate) fn hint(cause: nix::Error) -> String {
    Obstacles::read().hint(cause).map(|hint| format!("; {hint}")).unwrap_or_default()
}

/// Moves the calling process into a user namespace of its own, if it needs one to build a lab. It
/// must have one thread only. Programs that it runs afterwards also have all rights over namespaces
/// made in the user namespace.
pub(crate) fn enter_user_namespace() -> Result<(), RootlessError> {
    if has_root_rights() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    // Within the namespace, all ids are those of `nobody` until it has maps.
    let obstacles = Obstacles::read();
    let refused = |step| {
        let obstacles = &obstacles;
        move |cause: io::Error| {
            let code = nix::Error::from_raw(cause.raw_os_error().unwrap_or(0));
            RootlessError::Refused { step, cause, hint: obstacles.hint(code).unwrap_or_default() }
        }
    };
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|cause| refused("unshare")(cause.into()))?;
    // The kernel's condition for setting the groups' map without any right.
    fs::write("/proc/self/setgroups", "deny").map_err(refused("setgroups"))?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(refused("map of users"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(refused("map of groups"))?;
    keep_only(&caps::read(None, CapSet::Permitted)?)
}

/// The rights that a privileged command has over its machine's network.
pub(crate) fn network_rights() -> CapsHashSet {
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE]
        .into_iter()
        .collect()
}

/// Gives up all rights except `kept`, also for programs that this process runs later. Nothing
/// changes for root, whose programs have root's rights.
pub(crate) fn keep_only(kept: &CapsHashSet) -> Result<(), RootlessError> {
    if geteuid().is_root() {
        return Ok(());
    }
    caps::clear(None, CapSet::Ambient)?;
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient] {
        caps::set(None, set, kept)?;
    }
    Ok(())
}

/// The flag for entering the user namespace of another process. Empty if that is the calling
/// process's own.
pub(crate) fn entry_flag(pid: i32) -> io::Result<CloneFlags> {
    let namespace = |process: &str| fs::metadata(format!("/proc/{process}/ns/user"));
    let (own, other) = (namespace("self")?, namespace(&pid.to_string())?);
    let same = (own.dev(), own.ino()) == (other.dev(), other.ino());
    Ok(if same { CloneFlags::empty() } else { CloneFlags::CLONE_NEWUSER })
}
