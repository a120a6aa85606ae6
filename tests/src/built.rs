//! The programs under test, as `make test-build` leaves them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};

use crate::{root, target};

/// The identity of the sources, as crates/cli/build.rs computes it.
#[allow(dead_code, reason = "what only the build script needs")]
#[path = "../../crates/cli/source_id.rs"]
mod source_id;

/// Path of the `isthmus` binary under test.
pub fn isthmus() -> PathBuf {
    std::env::var_os("ISTHMUS_BIN").map_or_else(|| target().join("tested/isthmus"), PathBuf::from)
}

/// The directory with the binary under test, its helper and the preloaded library.
pub fn files() -> PathBuf {
    isthmus().parent().map(Path::to_owned).unwrap_or_default()
}

/// Path of the binary under test, once it is known that it was built from these sources.
pub(crate) fn checked() -> Result<PathBuf> {
    static CHECKED: OnceLock<Result<(), String>> = OnceLock::new();
    let program = isthmus();
    let checked = CHECKED.get_or_init(|| check(&program).map_err(|error| format!("{error:#}")));
    checked.clone().map_err(anyhow::Error::msg)?;
    Ok(program)
}

fn check(program: &Path) -> Result<()> {
    let shown = program.display();
    ensure!(program.is_file(), "{shown} is not there: run `make test-build`");
    let output = Command::new(program).arg("--version").output()?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let sources = source_id::of(&root()).context("cannot read the sources")?;
    ensure!(
        version.contains(&format!("source {sources}")),
        "{shown} was built from other sources than these ({sources}): run `make test-build`\n{version}"
    );
    Ok(())
}
