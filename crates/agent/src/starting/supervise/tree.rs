//! Which processes descend from which: a pure function over `/proc`'s pairs.

use std::collections::HashMap;

/// A process id as the kernel has it, in this process's PID namespace.
pub type Pid = i32;

/// All descendants of `root`, without itself. `parents` are pairs of a process and its parent.
pub fn descendants(root: Pid, parents: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for &(pid, parent) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        // The children are removed, because a snapshot of a changing process table may have a
        // cycle.
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child);
            open.push(child);
        }
    }
    found
}

/// Every process with its parent, as `/proc` lists them for this process.
pub fn snapshot() -> Vec<(Pid, Pid)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect()
}

/// The parent in a line of `/proc/PID/stat`, whose second field may itself
/// hold spaces and parentheses (proc(5)).
fn parent(stat: &str) -> Option<Pid> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree() {
        for (name, parents, want) in [
            ("no process", &[][..], &[][..]),
            ("no child", &[(10, 1), (11, 1)], &[]),
            ("grandchildren, in any order", &[(12, 11), (11, 10), (13, 10), (20, 1)], &[11, 12, 13]),
            ("a cycle ends", &[(11, 10), (10, 11)], &[10, 11]),
        ] {
            let mut got = descendants(10, parents);
            got.sort_unstable();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn stat_lines() {
        assert_eq!(parent("42 (a) b) S 7 42 42 0 -1"), Some(7));
        assert_eq!(parent("garbage"), None);
    }

    #[test]
    fn this_process_is_in_the_snapshot() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(snapshot().iter().any(|(pid, _)| *pid == own));
    }
}
