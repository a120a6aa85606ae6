//! `isthmus doctor`: what was found out of sites and of the ways between them,
//! what is wrong, and what could be better.

mod findings;
mod pair;
mod site;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;

/// Show what was found out of a site, or of the way between two, what is wrong
/// and what could be better.
///
/// Agents find out what their site lets in and out by asking relays to reach
/// them, every five minutes and whenever the outside address changes. How fast
/// the ways between sites are is measured in the background, too, the bandwidth
/// once a day.
///
/// Ends with status 0 if all is well, 1 if something is wrong or the grid
/// can't be asked, 2 if the command line names nothing in the grid.
#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    Site(site::SiteArgs),
    Pair(pair::PairArgs),
}

/// What a command found.
enum Outcome {
    Healthy,
    Ill,
    /// What the command line names isn't there.
    Unknown(String),
}

/// Runs `isthmus doctor`.
///
/// # Errors
/// What went wrong, for people.
pub(crate) async fn run(command: DoctorCommand) -> anyhow::Result<ExitCode> {
    let outcome = match command {
        DoctorCommand::Site(args) => site::run(args).await?,
        DoctorCommand::Pair(args) => pair::run(args).await?,
    };
    Ok(match outcome {
        Outcome::Healthy => ExitCode::SUCCESS,
        Outcome::Ill => ExitCode::FAILURE,
        Outcome::Unknown(what) => {
            eprintln!("isthmus doctor: {what}");
            ExitCode::from(2)
        }
    })
}

fn print(view: &impl Serialize, text: &str, json: bool) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(view).context("cannot write JSON")? + "\n"
    } else {
        text.to_owned()
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
