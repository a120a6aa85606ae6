//! The `isthmus` command: every role and tool is a subcommand.

mod launch;
mod local;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Run an unmodified MPI program as one job across clusters, clouds and labs
/// that sit behind NATs and firewalls.
#[derive(Debug, Parser)]
#[command(name = "isthmus", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Launch(launch::LaunchArgs),
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

/// What `isthmus run` and the agent call to start a command.
#[derive(Debug, clap::Args)]
struct SuperviseArgs {
    /// Descriptor number of the control socket.
    #[arg(long)]
    control: i32,
    /// Start a session of its own.
    #[arg(long)]
    session: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::main(args),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "isthmus", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        Command::Launch(args) => launch::main(args),
        Command::Supervise(args) => supervise(args),
    }
}

fn supervise(args: SuperviseArgs) -> ExitCode {
    use isthmus_agent::supervise::child;
    let SuperviseArgs { control, session, command } = args;
    child::run(child::Options { control, session, command }).unwrap_or_else(|error| {
        eprintln!("isthmus: cannot supervise a command: {error}");
        ExitCode::from(125)
    })
}
