//! `isthmus doctor`: measurements of sites and of the ways between them, problems,
//! and hints.

mod findings;
mod one_address;
mod overall;
mod pair;
mod site;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use isthmus_front::output;

/// Say whether the grid works; or show measurements of a site, or of the way between two,
/// with problems and hints.
///
/// Agents find out what their site lets in and out: relays try to reach them,
/// every five minutes and whenever the outside address changes. Round trips and
/// bandwidths between sites are measured in the background, the bandwidth once a
/// day.
///
/// Exit status: 0 without problems; 1 if there is a problem, or the grid does not
/// answer; 2 if the command line names nothing in the grid.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    overall: overall::OverallArgs,
    #[command(subcommand)]
    command: Option<DoctorCommand>,
}

#[derive(Debug, Subcommand)]
enum DoctorCommand {
    Site(site::SiteArgs),
    Pair(pair::PairArgs),
}

enum Outcome {
    Healthy,
    Ill,
    /// The command line names nothing in the grid. The text is the message for the user.
    Unknown(String),
}

/// Runs `isthmus doctor`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let outcome = match args.command {
        None => overall::run(&args.overall).await?,
        Some(DoctorCommand::Site(args)) => site::run(args).await?,
        Some(DoctorCommand::Pair(args)) => pair::run(args).await?,
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
