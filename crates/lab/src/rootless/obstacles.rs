//! Settings of the system that keep ordinary users from having labs, and what
//! to do about each.

use std::fs;

/// What the system allows the calling process, as far as labs need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Obstacles {
    /// The setting `user.max_user_namespaces`. `None` if the system doesn't have it.
    pub most_user_namespaces: Option<u64>,
    /// The setting `kernel.unprivileged_userns_clone`, which some of Debian's kernels have.
    pub debian_switch: Option<u64>,
    /// The setting `kernel.apparmor_restrict_unprivileged_userns`, which Ubuntu has.
    pub apparmor_restricts: Option<u64>,
    /// Whether a seccomp filter is at work, as in containers.
    pub system_calls_are_filtered: bool,
    /// Whether the calling process is root's.
    pub root: bool,
}

impl Obstacles {
    /// Reads the obstacles from the running system and the calling process.
    pub(crate) fn read() -> Self {
        let number = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let filtered = |line: &str| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2");
        Self {
            most_user_namespaces: number("user/max_user_namespaces"),
            debian_switch: number("kernel/unprivileged_userns_clone"),
            apparmor_restricts: number("kernel/apparmor_restrict_unprivileged_userns"),
            system_calls_are_filtered: status.lines().any(filtered),
            root: nix::unistd::geteuid().is_root(),
        }
    }

    /// What to do when the system refuses a namespace, a mount or a right with `cause`. `None` if
    /// the cause is of another kind.
    pub(crate) fn hint(&self, cause: nix::Error) -> Option<String> {
        let refused = matches!(cause, nix::Error::EPERM | nix::Error::EACCES);
        let full = matches!(cause, nix::Error::ENOSPC | nix::Error::EUSERS);
        let absent = matches!(cause, nix::Error::EINVAL | nix::Error::ENOSYS);
        if !(refused || full || absent) {
            return None;
        }
        let switched = |setting: &str, is: u64, should_be: u64| {
            format!(
                "the system's setting {setting}={is} forbids it: \
                     set it with `sudo sysctl -w {setting}={should_be}`, or use root"
            )
        };
        let hint = if self.root && refused {
            "this root lacks the right CAP_SYS_ADMIN, as in containers: give the container that right \
             (--privileged), or run the lab outside it"
                .to_owned()
        } else if self.debian_switch == Some(0) {
            switched("kernel.unprivileged_userns_clone", 0, 1)
        } else if self.most_user_namespaces == Some(0) {
            switched("user.max_user_namespaces", 0, 15000)
        } else if refused && self.apparmor_restricts.is_some_and(|value| value != 0) {
            switched("kernel.apparmor_restrict_unprivileged_userns", 1, 0)
        } else if full {
            "a limit of namespaces is reached: end other labs or raise the limits user.max_*_namespaces \
             (see: sysctl -a --pattern user.max_)"
                .to_owned()
        } else if refused && self.system_calls_are_filtered {
            "a filter of system calls is at work, as in containers: start the container with \
             --security-opt seccomp=unconfined (and a /proc and /sys with nothing hidden), or use root"
                .to_owned()
        } else if refused {
            "user namespaces may be forbidden here, or this is a container or chroot: use root".to_owned()
        } else {
            "this kernel has no user namespaces (CONFIG_USER_NS): use root".to_owned()
        };
        Some(hint)
    }
}

#[cfg(test)]
mod tests {
    use nix::Error;

    use super::*;

    #[test]
    fn each_obstacle_is_named_with_its_remedy() {
        let usual = Obstacles { most_user_namespaces: Some(10_000), ..Obstacles::default() };
        let debian = Obstacles { debian_switch: Some(0), ..usual.clone() };
        let none_allowed = Obstacles { most_user_namespaces: Some(0), ..Obstacles::default() };
        let ubuntu = Obstacles { apparmor_restricts: Some(1), ..usual.clone() };
        let ubuntu_open = Obstacles { apparmor_restricts: Some(0), ..usual.clone() };
        let container = Obstacles { system_calls_are_filtered: true, ..usual.clone() };
        let weak_root = Obstacles { root: true, ..usual.clone() };
        for (obstacles, cause, wanted) in [
            (&debian, Error::EPERM, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
            (&none_allowed, Error::ENOSPC, "sudo sysctl -w user.max_user_namespaces=15000"),
            (&usual, Error::ENOSPC, "end other labs or raise the limits"),
            (&ubuntu, Error::EACCES, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
            (&ubuntu, Error::EPERM, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
            (&ubuntu_open, Error::EPERM, "use root"),
            (&container, Error::EPERM, "seccomp=unconfined"),
            (&weak_root, Error::EPERM, "CAP_SYS_ADMIN"),
            (&usual, Error::EINVAL, "CONFIG_USER_NS"),
        ] {
            let hint = obstacles.hint(cause).unwrap_or_default();
            assert!(hint.contains(wanted), "{obstacles:?} {cause}: {hint}");
        }
        assert_eq!(ubuntu.hint(Error::ENOENT), None);
    }
}
