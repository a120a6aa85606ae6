//! `isthmus man`: the manual, made of the command line's own descriptions. For packages.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};

/// Write the manual: a page for each command.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where to; made if it is missing.
    directory: PathBuf,
}

/// Writes isthmus.1, isthmus-grid.1, isthmus-grid-init.1 and so on. Of `isthmus lab`, isthmus-lab
/// writes more.
///
/// # Errors
/// If a page can't be written.
pub(crate) fn run(command: Command, args: &ManArgs) -> anyhow::Result<()> {
    write(command, &args.directory)
        .with_context(|| format!("cannot write the manual to {}", args.directory.display()))
}

fn write(command: Command, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn each_command_that_is_shown_has_a_page() {
        let made = tempfile::tempdir().unwrap();
        let directory = made.path().join("man1");
        run(crate::Cli::command(), &ManArgs { directory: directory.clone() }).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.join(name));
        for name in ["isthmus.1", "isthmus-run.1", "isthmus-grid-invite.1", "isthmus-lab.1"] {
            assert!(page(name).unwrap().contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(page("isthmus-run.1").unwrap().contains("outlive"));
        for hidden in ["isthmus-man.1", "isthmus-supervise.1", "isthmus-help.1"] {
            assert!(page(hidden).is_err(), "{hidden}");
        }
    }
}
