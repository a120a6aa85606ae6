//! Control groups of a machine's own, by which its Slurm ends jobs (slurm.conf(5), `ProctrackType`).
//!
//! They lie in the real machine's hierarchy of the freezer (cgroups(7), version 1), below a group of
//! the lab. The machine sees its own group as the root of that hierarchy (cgroup_namespaces(7)).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};

/// Where control groups are mounted.
pub(crate) const MOUNTED: &str = "/sys/fs/cgroup";
/// The hierarchy that a machine has.
pub(crate) const HIERARCHY: &str = "freezer";
/// How the name of a lab's group begins, before the lab's own name.
const PREFIX: &str = "isthmus-lab.";
/// How deep groups of Slurm's are: node, user, job, step, task.
const DEPTH: u32 = 8;

fn of(lab: &str) -> PathBuf {
    [MOUNTED, HIERARCHY, &format!("{PREFIX}{lab}")].iter().collect()
}

/// Puts the calling process, the first of a machine, into a group of the machine's own, and makes
/// that the root of what the process sees.
///
/// # Errors
/// The real machine has no such hierarchy, or only root may use it.
pub(crate) fn enter(lab: &str, machine: &str) -> io::Result<()> {
    let group = of(lab).join(machine);
    fs::create_dir_all(&group)?;
    join(&group)?;
    Ok(unshare(CloneFlags::CLONE_NEWCGROUP)?)
}

/// The group of a machine with control groups of its own, whose first process this is. `None` if it
/// has none.
pub(crate) fn of_machine(init: i32) -> Option<PathBuf> {
    group_in(&fs::read_to_string(format!("/proc/{init}/cgroup")).ok()?)
}

/// The group of a lab's machine, from a text as of `/proc/PID/cgroup` (cgroups(7)).
fn group_in(text: &str) -> Option<PathBuf> {
    let of_hierarchy = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == HIERARCHY).then(|| path.trim_start_matches('/').to_owned())
    };
    let path = text.lines().find_map(of_hierarchy).filter(|path| path.starts_with(PREFIX))?;
    Some([MOUNTED, HIERARCHY, &path].iter().collect())
}

/// Puts the calling process into a group.
///
/// # Errors
/// The group is gone, or only root may do so.
pub(crate) fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Lets the lab's processes go on that Slurm has frozen: a frozen process doesn't end.
pub(crate) fn thaw(lab: &str) {
    walk(&of(lab), DEPTH, &mut |group| {
        // A process that can't go on is seen by what waits for its end.
        let _ = fs::write(group.join("freezer.state"), "THAWED");
    });
}

/// Removes the lab's groups, once their processes have ended. Does nothing if there are none.
pub(crate) fn remove(lab: &str) {
    walk(&of(lab), DEPTH, &mut |group| drop(fs::remove_dir(group)));
}

/// Calls `visit` for all groups below a group, and then for the group itself.
fn walk(group: &Path, depth: u32, visit: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten() {
        if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), depth - 1, visit);
        }
    }
    visit(group);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_s_group_is_read_from_what_the_kernel_tells() {
        for (text, want) in [
            (
                "4:freezer:/isthmus-lab.two-slurms/n2.alpha\n3:cpu,cpuacct:/\n0::/\n",
                Some("/sys/fs/cgroup/freezer/isthmus-lab.two-slurms/n2.alpha"),
            ),
            ("4:freezer:/\n0::/\n", None),
            ("4:freezer:/other/isthmus-lab.a/n1\n", None),
            ("4:cpu:/isthmus-lab.a/n1\n", None),
            ("0::/isthmus-lab.a/n1\n", None),
            ("", None),
        ] {
            assert_eq!(group_in(text), want.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn groups_are_visited_from_the_innermost_outwards() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("n1/slurm/uid_0/job_1/step_0")).unwrap();
        fs::create_dir_all(root.path().join("n2")).unwrap();
        walk(root.path(), DEPTH, &mut |group| fs::remove_dir(group).unwrap());
        assert!(!root.path().exists());
    }
}
