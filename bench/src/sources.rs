//! Which sources a result was measured with, and whether they have changed since.

mod check;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::grid::root;

pub(crate) use check::{Options, check};

/// Paths of all sources that run in a job.
const JOB: [&str; 4] = ["crates/", "Cargo.lock", "bench/src/grid.rs", "bench/src/mpi.rs"];
/// Paths of the programs at both ends of a contest.
const TRAFFIC: [&str; 4] =
    ["bench/src/traffic.rs", "bench/src/traffic/", "bench/src/line_client.rs", "bench/src/contest.rs"];

/// Each benchmark with the paths that it depends on, in groups. A path that ends with a slash
/// stands for each entry of the directory.
const BENCHMARKS: [(&str, &[&[&str]]); 14] = [
    (
        "coll",
        &[
            &JOB,
            &[
                "mpi/back/",
                "bench/src/coll.rs",
                "bench/src/coll/",
                "bench/grids/coll.toml",
                "bench/grids/coll-clusters.toml",
                "apps/colltime.c",
            ],
        ],
    ),
    ("connect", &[&JOB, &TRAFFIC, &CONNECT, &CONNECT_GRIDS]),
    ("direct", &[&JOB, &["bench/src/direct.rs", "bench/grids/lan.toml", "apps"]]),
    ("lab", &[&["crates/common", "crates/lab", "bench/src/lab.rs", "bench/src/lab/"]]),
    (
        "nas",
        &[
            &JOB,
            &[
                "mpi/back/",
                "bench/src/nas.rs",
                "bench/grids/nas.toml",
                "bench/programs/salt.in",
                "apps/nas.c",
            ],
        ],
    ),
    (
        "patterns",
        &[&JOB, &TRAFFIC, &["bench/src/patterns.rs", "bench/src/patterns/", "bench/grids/patterns.toml"]],
    ),
    ("rails", &[&JOB, &TRAFFIC, &["bench/src/rails.rs", "bench/src/tunnel.rs", "bench/grids/rails.toml"]]),
    (
        "relay",
        &[
            &JOB,
            &TRAFFIC,
            &[
                "bench/src/relay.rs",
                "bench/src/encrypted.rs",
                "bench/src/tunnel.rs",
                "bench/src/wireguard.rs",
                "bench/grids/two-near.toml",
            ],
        ],
    ),
    (
        "simulate",
        &[
            &JOB,
            &[
                "mpi/back/",
                "mpi/smpi/",
                "bench/src/simulate.rs",
                "bench/src/simulate/",
                "bench/grids/coll.toml",
                "apps/colltime.c",
            ],
        ],
    ),
    (
        "site-trunk",
        &[
            &JOB,
            &TRAFFIC,
            &[
                "bench/src/site_trunk.rs",
                "bench/src/tcp.rs",
                "bench/grids/site-trunk.toml",
                "bench/grids/site-trunk-far.toml",
            ],
        ],
    ),
    (
        "slow",
        &[
            &JOB,
            &TRAFFIC,
            &[
                "mpi/back/",
                "bench/src/slow.rs",
                "bench/src/coll.rs",
                "bench/src/connect.rs",
                "bench/src/tunnel.rs",
                "bench/programs/connect.py",
                "bench/grids/slow.toml",
                "apps/colltime.c",
            ],
        ],
    ),
    ("shim", &[&JOB, &["bench/src/shim.rs", "bench/programs/shim.c", "bench/grids/two-far.toml"]]),
    (
        "trunk",
        &[
            &[
                "crates/carry",
                "crates/common",
                "crates/identity",
                "crates/lab",
                "crates/net",
                "crates/service",
                "crates/trunk",
                "Cargo.lock",
            ],
            &["bench/src/trunk.rs", "bench/src/trunk/"],
        ],
    ),
    ("start", &[&JOB, &["bench/src/start.rs", "bench/grids/lan.toml", "bench/grids/two-open.toml", "apps"]]),
];
const CONNECT: [&str; 5] = [
    "bench/src/connect.rs",
    "bench/src/connect/",
    "bench/src/tunnel.rs",
    "bench/programs/connect.py",
    "apps",
];
const CONNECT_GRIDS: [&str; 2] = ["bench/grids/connect-near.toml", "bench/grids/connect-far.toml"];

/// The sources that a result was measured with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sources {
    /// Id of the commit, shortened to 12 digits.
    pub commit: String,
    /// Whether the sources had changes that no commit has.
    pub dirty: bool,
    /// Git's object id of what the changes are. `None` without changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
    /// Git's object id of each path at the commit. It stays the same when the commit is rebased.
    pub objects: BTreeMap<String, String>,
}

impl Sources {
    /// The working tree's sources of a benchmark.
    ///
    /// # Errors
    /// This is no git repository.
    pub(crate) fn here(benchmark: &str) -> anyhow::Result<Self> {
        let paths = paths(benchmark)?;
        let list = git(&["ls-tree", "HEAD", "--"], &paths)?;
        let objects = list.lines().filter_map(|line| {
            let (entry, path) = line.split_once('\t')?;
            Some((path.to_owned(), entry.split(' ').nth(2)?.to_owned()))
        });
        let changes = git(&["diff", "HEAD", "--no-ext-diff", "--"], &paths)?;
        let changes = if changes.is_empty() { None } else { Some(object_id(&changes)?) };
        Ok(Self {
            commit: git(&["rev-parse", "--short=12", "HEAD"], &[])?.trim().to_owned(),
            dirty: changes.is_some(),
            changes,
            objects: objects.collect(),
        })
    }

    /// Whether these are the same sources, at whatever commit, so that their rounds add up.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        let known = |one: &Self| one.dirty == one.changes.is_some();
        known(self) && known(other) && self.changes == other.changes && self.objects == other.objects
    }
}

/// Git's object id of a text, which is not stored.
fn object_id(text: &str) -> anyhow::Result<String> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(git(&["hash-object", "--no-filters", &file.path().display().to_string()], &[])?.trim().to_owned())
}

fn paths(benchmark: &str) -> anyhow::Result<Vec<&'static str>> {
    let benchmark = benchmark.trim_start_matches("before-");
    let found = BENCHMARKS.iter().find(|(name, _)| *name == benchmark);
    let (_, groups) = found.with_context(|| format!("no benchmark {benchmark}"))?;
    Ok(groups.iter().flat_map(|group| group.iter().copied()).collect())
}

fn git(words: &[&str], paths: &[&str]) -> anyhow::Result<String> {
    let root = root();
    // Root may measure in a tree that belongs to another user.
    let safe = format!("safe.directory={}", root.display());
    let output = Command::new("git")
        .args(["-c", &safe, "-C"])
        .arg(&root)
        .args(words)
        .args(paths)
        .output()
        .context("cannot run git")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", words.join(" "), errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether two paths name the same directory.
pub(crate) fn is_same_directory(one: &Path, other: &Path) -> bool {
    std::fs::canonicalize(one).is_ok_and(|one| std::fs::canonicalize(other).is_ok_and(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sources(dirty: bool, objects: &[(&str, &str)]) -> Sources {
        let objects = objects.iter().map(|(path, id)| ((*path).to_owned(), (*id).to_owned())).collect();
        Sources { commit: "c0ffee".into(), dirty, changes: dirty.then(|| "d1ff".into()), objects }
    }

    #[test]
    fn the_same_sources() {
        let clean = sources(false, &[("crates/agent", "1")]);
        let changed = sources(true, &[("crates/agent", "1")]);
        for (name, other, want) in [
            ("the same", clean.clone(), true),
            ("rebased", Sources { commit: "5eed".into(), ..clean.clone() }, true),
            ("changed", changed.clone(), false),
            ("another commit", sources(false, &[("crates/agent", "2")]), false),
            ("more", sources(false, &[("crates/agent", "1"), ("crates/plan", "1")]), false),
        ] {
            assert_eq!(clean.are_same(&other), want, "{name}");
        }
        assert!(changed.are_same(&changed));
        // What had changed was not written down once.
        let unknown = Sources { changes: None, ..changed };
        assert!(!unknown.are_same(&unknown));
    }

    #[test]
    fn paths_exist() {
        for (name, _) in BENCHMARKS {
            for path in paths(name).unwrap() {
                assert!(root().join(path).exists(), "{name} depends on {path}, which does not exist");
            }
        }
    }
}
