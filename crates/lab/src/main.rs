//! The lab alone, with the subcommands it has in `isthmus`; for the tests of
//! this crate.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use clap_complete::CompleteEnv;
use isthmus_lab::command::{self, LabCommand};

#[derive(Debug, Parser)]
enum Arguments {
    /// Emulate a grid on this machine.
    #[command(subcommand)]
    Lab(LabCommand),
}

fn main() -> ExitCode {
    CompleteEnv::with_factory(Arguments::command).complete();
    let Arguments::Lab(command) = Arguments::parse();
    match command::run(command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("isthmus-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
