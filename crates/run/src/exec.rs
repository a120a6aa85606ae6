//! `isthmus exec`: runs a command on another node of the same job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use isthmus_front::{local, output};

use crate::launch::{self, CONNECTION_FAILED};
use crate::remote;

/// Run a command on another node of the job that this command is part of.
///
/// For scripts under `isthmus run`: `isthmus exec n1.beta -- psql -h n1.alpha`.
/// Input, output and signals pass through. The command starts in the same
/// directory, if the node has it, with the environment of that node's agent.
/// Exit status: the command's own, or 255 if it could not be run.
#[derive(Debug, Args)]
#[command(override_usage = "isthmus exec [OPTIONS] NODE -- COMMAND [ARGUMENT]...")]
pub struct ExecArgs {
    /// The node, NODE.SITE.
    node: String,
    /// Set a variable for the command; without a value, to what it is here.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The job's id; `isthmus run` sets it.
    #[arg(long, env = "ISTHMUS_JOB", value_name = "ID")]
    job: Option<String>,
    /// The agent's Unix socket.
    #[arg(long, env = "ISTHMUS_AGENT", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs `isthmus exec`, and returns the exit status of this process.
pub fn main(args: ExecArgs) -> ExitCode {
    let Some(job) = args.job else {
        output::write(
            "isthmus exec: this is not within a job: call it from a command of `isthmus run`, or give --job\n",
        );
        return ExitCode::from(CONNECTION_FAILED);
    };
    launch::block_on(launch::run(
        args.socket.unwrap_or_else(local::socket),
        isthmus_wire::proto::Command {
            environment: remote::variables(&job, &args.env),
            job,
            node: args.node,
            shell_command: remote::shell_command(&args.command),
            working_directory: launch::working_directory(),
            job_directory: String::new(),
        },
        false,
        true,
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: ExecArgs,
    }

    #[test]
    fn what_follows_the_command_is_its_own() {
        for (line, want) in [
            ("n1.b -- psql -h n1.a", Some("psql -h n1.a")),
            ("n1.b psql -h n1.a --env x", Some("psql -h n1.a --env x")),
            ("n1.b --env A=1 hostname", Some("hostname")),
            ("--env A=1 n1.b -- sh -c --", Some("sh -c --")),
            ("n1.b -- --odd", Some("--odd")),
            ("n1.b --odd", None),
            ("n1.b", None),
            ("", None),
        ] {
            let words = std::iter::once("exec").chain(line.split_whitespace());
            let got = Cli::try_parse_from(words).ok().map(|cli| (cli.args.node, cli.args.command.join(" ")));
            assert_eq!(got, want.map(|want| ("n1.b".to_owned(), want.to_owned())), "{line}");
        }
    }
}
