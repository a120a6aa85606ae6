//! Which sources a result was measured with, and whether they have changed since.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::grid::root;
use crate::report::{SCHEMA, read_json};

/// Paths of all sources that run in a job.
const JOB: [&str; 4] = ["crates/", "Cargo.lock", "bench/src/grid.rs", "bench/src/mpi.rs"];
/// Paths of the programs at both ends of a contest.
const TRAFFIC: [&str; 4] =
    ["bench/src/traffic.rs", "bench/src/traffic/", "bench/src/line_client.rs", "bench/src/contest.rs"];

/// Each benchmark with the paths that it depends on, in groups. A path that ends with a slash
/// stands for each entry of the directory.
const BENCHMARKS: [(&str, &[&[&str]]); 13] = [
    ("coll", &[&JOB, &["mpi/back/", "bench/src/coll.rs", "bench/grids/coll.toml", "apps/colltime.c"]]),
    ("connect", &[&JOB, &["bench/src/connect.rs", "bench/programs/connect.py", "apps"], &CONNECT_GRIDS]),
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
const CONNECT_GRIDS: [&str; 2] = ["bench/grids/connect-near.toml", "bench/grids/connect-far.toml"];

/// The sources that a result was measured with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sources {
    /// Id of the commit, shortened to 12 digits.
    pub commit: String,
    /// Whether the sources had changes that no commit has.
    pub dirty: bool,
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
        Ok(Self {
            commit: git(&["rev-parse", "--short=12", "HEAD"], &[])?.trim().to_owned(),
            dirty: !git(&["status", "--porcelain", "--untracked-files=no", "--"], &paths)?.is_empty(),
            objects: objects.collect(),
        })
    }
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

/// Options of `isthmus-bench check`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the results are.
    #[arg(long, default_value = "bench/results")]
    results: std::path::PathBuf,
}

/// The part of a result that all benchmarks have.
#[derive(Debug, Deserialize)]
struct Header {
    #[serde(default)]
    schema: u32,
    #[serde(default)]
    complete: bool,
    sources: Option<Sources>,
}

/// Lists results that are missing or stale. The exit status is 1 if there are any.
///
/// # Errors
/// This is no git repository.
pub(crate) fn check(options: &Options) -> anyhow::Result<ExitCode> {
    let mut stale = false;
    for (name, _) in BENCHMARKS {
        let found = read_json::<Header>(&options.results.join(format!("{name}.json")));
        if let Some(problem) = problem(found.as_ref().ok(), &Sources::here(name)?) {
            stale = true;
            println!("{name}: {problem}; measure again with `make bench-{name}`");
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Why a result doesn't stand for the sources `now`. `None` if it does.
fn problem(result: Option<&Header>, now: &Sources) -> Option<String> {
    let Some(Header { schema, complete, sources }) = result else { return Some("no result".into()) };
    if *schema != SCHEMA {
        return Some(format!("the result has schema {schema}, this program writes {SCHEMA}"));
    }
    let Some(then) = sources else { return Some("the result names no commit".into()) };
    if !complete {
        return Some("the run was ended before its end".into());
    }
    if then.dirty {
        return Some(format!("measured at {} with uncommitted changes", then.commit));
    }
    let changed: Vec<&str> = then
        .objects
        .keys()
        .chain(now.objects.keys().filter(|path| !then.objects.contains_key(*path)))
        .filter(|path| then.objects.get(*path) != now.objects.get(*path))
        .map(String::as_str)
        .collect();
    if !changed.is_empty() {
        return Some(format!("changed since {}: {}", then.commit, changed.join(", ")));
    }
    now.dirty.then(|| "there are uncommitted changes in what it measures".into())
}

/// Whether two paths name the same directory.
pub(crate) fn is_same_directory(one: &Path, other: &Path) -> bool {
    std::fs::canonicalize(one).is_ok_and(|one| std::fs::canonicalize(other).is_ok_and(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(dirty: bool, objects: &[(&str, &str)]) -> Sources {
        let objects = objects.iter().map(|(path, id)| ((*path).to_owned(), (*id).to_owned())).collect();
        Sources { commit: "c0ffee".into(), dirty, objects }
    }

    #[test]
    fn staleness() {
        let then = [("crates/agent", "1"), ("crates/plan", "2")];
        let result =
            |schema, complete, dirty| Some(Header { schema, complete, sources: Some(sources(dirty, &then)) });
        let same = sources(false, &then);
        for (name, result, now, want) in [
            ("fresh", result(SCHEMA, true, false), same.clone(), None),
            ("missing", None, same.clone(), Some("no result")),
            ("old schema", result(1, true, false), same.clone(), Some("schema 1")),
            ("unfinished", result(SCHEMA, false, false), same.clone(), Some("ended before its end")),
            ("dirty then", result(SCHEMA, true, true), same.clone(), Some("with uncommitted changes")),
            ("dirty now", result(SCHEMA, true, false), sources(true, &then), Some("uncommitted changes in")),
            (
                "changed",
                result(SCHEMA, true, false),
                sources(false, &[("crates/agent", "3"), then[1]]),
                Some("changed since c0ffee: crates/agent"),
            ),
            (
                "added",
                result(SCHEMA, true, false),
                sources(false, &[then[0], then[1], ("crates/dial", "4")]),
                Some("changed since c0ffee: crates/dial"),
            ),
            (
                "removed",
                result(SCHEMA, true, false),
                sources(false, &then[..1]),
                Some("changed since c0ffee: crates/plan"),
            ),
        ] {
            let found = problem(result.as_ref(), &now);
            match want {
                None => assert_eq!(found, None, "{name}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{name}: {found:?}")
                }
            }
        }
        let nameless = Header { schema: SCHEMA, complete: true, sources: None };
        assert_eq!(problem(Some(&nameless), &same).as_deref(), Some("the result names no commit"));
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
