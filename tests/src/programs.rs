//! Programs and scripts that tests write to run them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::root;

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

/// Compiles tests/programs/NAME.c into a directory. Returns the program's path.
///
/// # Errors
/// It doesn't compile.
pub fn compile_program(name: &str, directory: &Path) -> Result<PathBuf> {
    let (source, program) = (root().join("tests/programs").join(format!("{name}.c")), directory.join(name));
    let compiled = Command::new("cc").args(["-O1", "-Wall", "-o"]).arg(&program).arg(&source).status()?;
    ensure!(compiled.success(), "{} does not compile", source.display());
    Ok(program)
}
