//! What of the command line is about staging.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use super::manifest::apart;

/// Files that a run brings to its nodes, and back.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StagingArgs {
    /// Bring a file or a directory to the same path on all nodes before the command starts.
    ///
    /// It crosses to each site once, and isthmus then spreads it within the site. What is there
    /// already isn't sent. May be given several times.
    #[arg(long, value_name = "PATH")]
    stage: Vec<PathBuf>,
    /// Bring a file or a directory back from all nodes once the command has ended, to a path that
    /// ends with the site's name: results.beta. May be given several times.
    #[arg(long, value_name = "PATH")]
    fetch: Vec<PathBuf>,
}

/// The paths, each absolute.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub stage: Vec<String>,
    pub fetch: Vec<String>,
}

impl StagingArgs {
    /// The paths.
    ///
    /// # Errors
    /// What is to be staged isn't there, or a path can't be used.
    pub(crate) fn paths(&self) -> anyhow::Result<Paths> {
        let mut paths = Paths::default();
        for path in &self.stage {
            // `..` may lead through a symbolic link.
            let whole = if has_parents(path) { path.canonicalize() } else { std::path::absolute(path) };
            let found = whole.and_then(|whole| Ok((whole.metadata()?, whole)));
            let (_, whole) = found.with_context(|| format!("cannot stage {}", path.display()))?;
            add(&mut paths.stage, &whole).with_context(|| format!("cannot stage {}", path.display()))?;
        }
        for path in &self.fetch {
            let fetch = || format!("cannot fetch {}", path.display());
            if has_parents(path) {
                bail!("{}: give a path without `..`", fetch());
            }
            let whole = std::path::absolute(path).with_context(fetch)?;
            add(&mut paths.fetch, &whole).with_context(fetch)?;
        }
        apart(&paths.stage).context("cannot stage files")?;
        apart(&paths.fetch).context("cannot fetch files")?;
        Ok(paths)
    }
}

fn has_parents(path: &Path) -> bool {
    path.components().any(|component| component == Component::ParentDir)
}

fn add(paths: &mut Vec<String>, path: &Path) -> anyhow::Result<()> {
    // Without `.` and without a slash at the end.
    let path: PathBuf = path.components().collect();
    ensure!(path.file_name().is_some(), "it is the root of the file system");
    let path = path.to_str().context("the name is not in UTF-8")?.to_owned();
    if !paths.contains(&path) {
        paths.push(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute() {
        let here = std::env::current_dir().unwrap().display().to_string();
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().canonicalize().unwrap().join("data");
        std::fs::create_dir(&data).unwrap();
        let around = format!("{}/./data/../data/", directory.path().display());
        let args = |stage: &[&str], fetch: &[&str]| StagingArgs {
            stage: stage.iter().map(PathBuf::from).collect(),
            fetch: fetch.iter().map(PathBuf::from).collect(),
        };
        let data = data.display().to_string();
        let paths = args(&[&data, &around, "src/lib.rs"], &["out/", "./out", "/tmp/x"]).paths().unwrap();
        assert_eq!(paths.stage, [data, format!("{here}/src/lib.rs")]);
        assert_eq!(paths.fetch, [format!("{here}/out"), "/tmp/x".to_owned()]);
        for (args, want) in [
            (args(&["no/such"], &[]), "cannot stage no/such: No such file"),
            (args(&["/"], &[]), "the root"),
            (args(&[], &["../out"]), "without `..`"),
            (args(&[], &["/"]), "the root"),
            (args(&["src", "src/lib.rs"], &[]), "lib.rs is within"),
            (args(&[], &["out/a", "x", "out"]), "out/a is within"),
        ] {
            let said = format!("{:#}", args.paths().unwrap_err());
            assert!(said.contains(want), "{said}");
        }
    }
}
