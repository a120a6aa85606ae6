//! `isthmus doctor`: measurements of sites and of the ways between them, problems,
//! and hints.

mod findings;
mod pair;
mod site;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output;

/// Show measurements of a site, or of the way between two, with problems and
/// hints.
///
/// Agents find out what their site lets in and out: relays try to reach them,
/// every five minutes and whenever the outside address changes. Round trips and
/// bandwidths between sites are measured in the background, the bandwidth once a
/// day.
///
/// Exit status: 0 without problems; 1 if there is a problem, or the grid does not
/// answer; 2 if the command line names nothing in the grid.
#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    Site(site::SiteArgs),
    Pair(pair::PairArgs),
}

enum Outcome {
    Healthy,
    Ill,
    /// The command line names nothing in the grid; the message.
    Unknown(String),
}

/// Runs `isthmus doctor`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(command: DoctorCommand) -> anyhow::Result<ExitCode> {
    let outcome = match command {
        DoctorCommand::Site(args) => site::run(args).await?,
        DoctorCommand::Pair(args) => pair::run(args).await?,
    };
    Ok(match outcome {
        Outcome::Healthy => ExitCode::SUCCESS,
        Outcome::Ill => ExitCode::FAILURE,
        Outcome::Unknown(what) => {
            output::write(&format!("isthmus doctor: {what}\n"));
            ExitCode::from(2)
        }
    })
}
