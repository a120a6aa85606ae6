//! Programs and scripts that tests write to run them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Writes a program with this mode. Another process writes it, as otherwise a process that another
/// test forks meanwhile would have the file open until it executes something. Who runs the file
/// then gets "text file busy".
///
/// # Errors
/// The file can't be written.
pub fn write_program(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let mut install = Command::new("install");
    let mut install =
        install.args(["-m", &format!("{mode:o}"), "/dev/stdin"]).arg(path).stdin(Stdio::piped()).spawn()?;
    install.stdin.take().context("no standard input")?.write_all(content)?;
    ensure!(install.wait()?.success(), "cannot write {}", path.display());
    Ok(())
}
