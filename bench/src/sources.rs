//! Which sources a result was measured with, and whether they have changed since.
//!
//! A benchmark depends on the packages whose programs run in it, and on further files. Of those,
//! what could change a figure counts: no comments, no tests, no commands that nothing waits for,
//! and of the lock file only the packages that the programs are made of.

mod benchmarks;
mod check;
mod code;
mod packages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::grid::root;
use benchmarks::{BENCHMARKS, Benchmark};
use packages::{LOCK, MANIFEST, Packages};

pub(crate) use check::{Options, check};

/// Where a package has what it is compiled from.
const COMPILED: [&str; 3] = ["src/", "proto/", "build.rs"];

/// The sources that a result was measured with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sources {
    /// Id of the commit, shortened to 12 digits.
    pub commit: String,
    /// Whether the sources had changes that no commit has.
    pub dirty: bool,
    /// Git's object id of what counts of each package and path, changes included. It stays the same
    /// when the commit is rebased.
    pub objects: BTreeMap<String, String>,
}

impl Sources {
    /// The working tree's sources of a benchmark.
    ///
    /// # Errors
    /// This is no git repository, or a file can't be read.
    pub(crate) fn here(benchmark: &str) -> anyhow::Result<Self> {
        let tree = Tree::read()?;
        let parts = tree.parts(benchmark_of(benchmark)?)?;
        let changed = git(&["diff", "HEAD", "--no-ext-diff", "--name-only", "-z"])?;
        let changed: BTreeSet<&str> = changed.split_terminator('\0').collect();
        let is_changed = |part: &Part| part.files.iter().any(|file| changed.contains(file.as_str()));
        Ok(Self {
            commit: git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned(),
            dirty: parts.values().any(is_changed),
            objects: object_ids(&parts)?,
        })
    }

    /// Whether these are the same sources, at whatever commit, so that their rounds add up.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        !self.objects.is_empty() && self.objects == other.objects
    }
}

fn benchmark_of(name: &str) -> anyhow::Result<Benchmark> {
    let name = name.trim_start_matches("before-");
    BENCHMARKS.into_iter().find(|one| one.name == name).with_context(|| format!("no benchmark {name}"))
}

/// A package or a path with what counts of it.
#[derive(Debug, Default, PartialEq)]
struct Part {
    files: Vec<String>,
    text: String,
}

/// The files that git knows, as they are now.
struct Tree {
    files: Vec<String>,
    packages: Packages,
}

impl Tree {
    fn read() -> anyhow::Result<Self> {
        let list = git(&["ls-files", "-z"])?;
        let files: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
        let manifests = files.iter().filter(|file| file.starts_with("crates/"));
        let manifests = manifests.filter_map(|file| file.strip_suffix("/Cargo.toml"));
        let manifests = manifests.map(|directory| Ok((directory, read(&format!("{directory}/{MANIFEST}"))?)));
        let manifests = manifests.collect::<anyhow::Result<Vec<_>>>()?;
        let packages = Packages::new(&read(MANIFEST)?, &read(LOCK)?, manifests)?;
        Ok(Self { files, packages })
    }

    /// What counts for a benchmark.
    fn parts(&self, benchmark: Benchmark) -> anyhow::Result<BTreeMap<String, Part>> {
        let without: Vec<&str> = benchmark.without.iter().flat_map(|group| group.iter().copied()).collect();
        let programs = self.packages.parts(benchmark.programs)?;
        let mut parts = BTreeMap::new();
        for (directory, manifest) in programs.own {
            let paths = COMPILED.map(|path| format!("{directory}/{path}"));
            let mut part = self.part(paths.iter().map(String::as_str), &without)?;
            if !part.files.is_empty() {
                part.text += &manifest;
                part.files.push(format!("{directory}/{MANIFEST}"));
                parts.insert(directory, part);
            }
        }
        for path in benchmark.files.iter().flat_map(|group| group.iter().copied()) {
            parts.insert(path.to_owned(), self.part([path].into_iter(), &without)?);
        }
        let of_cargo = [(LOCK, programs.locked), (MANIFEST, programs.settings)];
        for (path, text) in of_cargo.into_iter().filter(|_| !benchmark.programs.is_empty()) {
            parts.insert(path.to_owned(), Part { files: vec![path.to_owned()], text });
        }
        Ok(parts)
    }

    fn part<'a>(
        &self,
        paths: impl Iterator<Item = &'a str> + Clone,
        without: &[&str],
    ) -> anyhow::Result<Part> {
        let counts = |file: &&String| {
            paths.clone().any(|path| is_below(file, path))
                && !without.iter().any(|path| is_below(file, path))
                && !code::is_for_tests(file)
        };
        let mut part = Part::default();
        for file in self.files.iter().filter(counts) {
            // A file that isn't there any more has nothing that counts.
            if root().join(file).is_file() {
                part.text += &format!("{file}\n{}\n", code::essence(file, &read(file)?));
                part.files.push(file.clone());
            }
        }
        Ok(part)
    }
}

/// Whether a file is this path, or below it if the path ends with a slash.
fn is_below(file: &str, path: &str) -> bool {
    if path.ends_with('/') { file.starts_with(path) } else { file == path }
}

fn read(file: &str) -> anyhow::Result<String> {
    let path = root().join(file);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Git's object id of each part's text. None is stored.
fn object_ids(parts: &BTreeMap<String, Part>) -> anyhow::Result<BTreeMap<String, String>> {
    let directory = tempfile::tempdir()?;
    let mut words = vec!["hash-object".to_owned(), "--no-filters".to_owned(), "--".to_owned()];
    for (index, part) in parts.values().enumerate() {
        let path = directory.path().join(index.to_string());
        fs::write(&path, &part.text)?;
        words.push(path.display().to_string());
    }
    let ids = git(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    ensure!(
        ids.lines().count() == parts.len(),
        "git gave {} ids for {} texts",
        ids.lines().count(),
        parts.len()
    );
    Ok(parts.keys().cloned().zip(ids.lines().map(str::to_owned)).collect())
}

fn git(words: &[&str]) -> anyhow::Result<String> {
    let root = root();
    // Root may measure in a tree that belongs to another user.
    let safe = format!("safe.directory={}", root.display());
    let output = Command::new("git")
        .args(["-c", &safe, "-C"])
        .arg(&root)
        .args(words)
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

    pub(super) fn sources(objects: &[(&str, &str)]) -> Sources {
        let objects = objects.iter().map(|(path, id)| ((*path).to_owned(), (*id).to_owned())).collect();
        Sources { commit: "c0ffee".into(), dirty: false, objects }
    }

    #[test]
    fn the_same_sources() {
        let one = sources(&[("crates/agent", "1")]);
        for (name, other, want) in [
            ("the same", one.clone(), true),
            ("rebased", Sources { commit: "5eed".into(), ..one.clone() }, true),
            ("committed since", Sources { dirty: true, ..one.clone() }, true),
            ("changed", sources(&[("crates/agent", "2")]), false),
            ("more", sources(&[("crates/agent", "1"), ("crates/plan", "1")]), false),
            ("unknown", sources(&[]), false),
        ] {
            assert_eq!(one.are_same(&other), want, "{name}");
        }
        assert!(!sources(&[]).are_same(&sources(&[])));
    }

    #[test]
    fn paths_exist() {
        let tree = Tree::read().unwrap();
        for benchmark @ Benchmark { name, without, files, .. } in BENCHMARKS {
            for path in without.iter().chain(files).copied().flatten() {
                let is_there = tree.files.iter().any(|file| is_below(file, path));
                assert!(is_there, "{name}: {path} does not exist");
            }
            for (path, part) in tree.parts(benchmark).unwrap() {
                assert!(!part.files.is_empty() && !part.text.is_empty(), "{name}: nothing of {path} counts");
            }
        }
    }

    /// What is left out must be left out of something that the programs are made of.
    #[test]
    fn only_parts_are_left_out() {
        let tree = Tree::read().unwrap();
        for benchmark @ Benchmark { name, without, .. } in BENCHMARKS {
            let whole = tree.parts(Benchmark { without: &[], ..benchmark }).unwrap();
            let files: Vec<&String> = whole.values().flat_map(|part| &part.files).collect();
            for path in without.iter().copied().flatten() {
                assert!(files.iter().any(|file| is_below(file, path)), "{name} does not run {path}");
            }
        }
    }

    #[test]
    fn files_that_count() {
        let tree = Tree::read().unwrap();
        for (name, file, want) in [
            ("coll", "crates/agent/src/lib.rs", true),
            ("coll", "crates/carry/src/lib.rs", true),
            ("coll", "crates/front/src/ask.rs", false),
            ("coll", "crates/broker/src/lib.rs", false),
            ("coll", "crates/carry/tests/it/main.rs", false),
            ("coll", "crates/trunk/src/frame/tests.rs", false),
            ("coll", "mpi/back/collectives/bcast.c", true),
            ("coll", "mpi/back/cart.c", false),
            ("nas", "mpi/back/cart.c", true),
            ("start", "crates/front/src/ask.rs", true),
            ("start", "crates/broker/src/lib.rs", true),
            ("start", "mpi/back/init.c", true),
            ("start", "mpi/back/collectives/bcast.c", false),
            ("start", "crates/cli/src/status.rs", false),
            ("relay", "mpi/back/init.c", false),
            ("trunk", "crates/trunk/src/lib.rs", true),
            ("trunk", "crates/agent/src/lib.rs", false),
            ("direct", "apps/pingpong.c", true),
            ("direct", "apps/init.c", false),
        ] {
            let parts = tree.parts(benchmark_of(name).unwrap()).unwrap();
            let found = parts.values().any(|part| part.files.iter().any(|one| one == file));
            assert_eq!(found, want, "{name}: {file}");
        }
    }
}
