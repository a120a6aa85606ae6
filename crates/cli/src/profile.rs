//! `isthmus profile`: whether a file is a job's profile, and what it asks for.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use isthmus_common::text_file;
use isthmus_front::output::print;
use isthmus_profile::Profile;
use isthmus_profile::explain::explain;
use isthmus_profile::limits::FILE_MAX;

/// Profiles of jobs: what a job needs, in a file.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Say whether a file is a profile, or what is wrong in it and where.
    ///
    /// Asks no grid: whether there are such nodes isn't checked.
    Check(CheckArgs),
    /// Say in words what a profile asks for, and what it leaves blank.
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The profile.
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The profile.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `isthmus profile`.
///
/// # Errors
/// The message for the user.
pub(crate) fn run(command: ProfileCommand) -> anyhow::Result<()> {
    match command {
        ProfileCommand::Check(CheckArgs { file }) => {
            let summary = explain(&read(&file)?).summary();
            print(&summary, &format!("{}: {summary}\n", file.display()), false)
        }
        ProfileCommand::Explain(ExplainArgs { file, json }) => {
            let explanation = explain(&read(&file)?);
            print(&explanation, &explanation.to_string(), json)
        }
    }
}

fn read(file: &Path) -> anyhow::Result<Profile> {
    let name = file.display().to_string();
    let text = text_file::read(file, FILE_MAX).with_context(|| format!("cannot read {name}"))?;
    Ok(Profile::parse(&text, &name)?)
}
