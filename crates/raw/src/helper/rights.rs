//! Capabilities of the process.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use caps::{CapSet, Capability, CapsHashSet};

/// Drops all capabilities but `CAP_NET_RAW`, for good.
///
/// # Errors
/// If the process lacks `CAP_NET_RAW`, with the remedy, or can't drop the others.
pub(super) fn keep_only_raw() -> Result<(), String> {
    let failed = |error| format!("cannot drop capabilities: {error}");
    let raw = Capability::CAP_NET_RAW;
    let may = caps::has_cap(None, CapSet::Permitted, raw).map_err(failed)?;
    let kept: CapsHashSet = may.then_some(raw).into_iter().collect();
    for other in caps::all() {
        // This fails without CAP_SETPCAP. The bounding set matters for programs that the helper
        // would run, and it runs none.
        let _ = if other == raw { Ok(()) } else { caps::drop(None, CapSet::Bounding, other) };
    }
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    nix::sys::prctl::set_no_new_privs()
        .map_err(|error| format!("cannot set no_new_privs: {}", error.desc()))?;
    if may {
        return Ok(());
    }
    let own =
        std::env::current_exe().map_or_else(|_| "isthmus-raw".to_owned(), |path| path.display().to_string());
    Err(format!(
        "{own} has no right to raw packets (CAP_NET_RAW): run `setcap cap_net_raw=ep {own}`, or install as root; \
         under systemd, the agent's unit must not set NoNewPrivileges"
    ))
}

/// Owns a descriptor that the kernel has just made.
pub(super) fn owned(raw: RawFd) -> OwnedFd {
    // SAFETY: SCM_RIGHTS makes a new descriptor, owned by the receiver alone.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
