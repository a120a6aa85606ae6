//! `isthmus lab`: the program isthmus-lab takes the place of this one.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use clap::Args;
use isthmus_front::output;

use crate::own_program;

/// The program that emulates grids, beside `isthmus` or in ../lib/isthmus.
const LAB: &str = "isthmus-lab";
/// Exit status if a program isn't there, and if it can't be executed (POSIX, shell).
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;

/// Emulate a grid on this machine: sites behind NATs and firewalls, joined by
/// links with delay and rate.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// The subcommand and its arguments, as `isthmus lab --help` tells.
    #[allow(dead_code, reason = "the lab's program gets the arguments as this process got them")]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Whether the arguments of this process ask for help or completions that only the lab's program
/// has: `help lab …`, or `-- isthmus lab …` from a shell. `isthmus lab --help` comes to [`run`].
pub(crate) fn is_asked(arguments: &[OsString]) -> bool {
    match arguments {
        [first, second, ..] if first == "help" => second == "lab",
        [first, _, words @ ..] if first == "--" => {
            words.first().is_some_and(|word| word == "lab") || is_asked(words)
        }
        _ => false,
    }
}

/// Executes the lab's program with the arguments of this process. Returns only if that fails: the
/// exit status, and the reason.
fn execute() -> (u8, String) {
    let program = match own_program::find(LAB) {
        Ok(program) => program,
        Err(error) => {
            let text = format!("the lab is a program of its own, which must be installed as well: {error}");
            return (NOT_FOUND, text);
        }
    };
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    let status = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTED };
    (status, format!("cannot execute {}: {error}", program.display()))
}

/// Runs `isthmus lab`. Returns only if that fails.
pub(crate) fn run() -> ExitCode {
    let (status, reason) = execute();
    output::write(&format!("isthmus lab: {reason}\n"));
    ExitCode::from(status)
}

/// Executes the lab's program if the arguments ask for what only that has. Returns otherwise, and
/// also if the program isn't there: then this program's own help and completions must do.
pub(crate) fn run_if_asked() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if is_asked(&arguments) {
        let _ = execute();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_lab_knows_is_known() {
        for (line, asked) in [
            ("help lab", true),
            ("help lab up", true),
            ("-- isthmus lab ", true),
            ("-- isthmus lab cut al", true),
            ("-- /usr/bin/isthmus help lab u", true),
            ("-- isthmus la", false),
            ("-- isthmus run lab", false),
            ("--", false),
            ("help", false),
            ("help run", false),
            ("lab up", false),
            ("run -- isthmus lab", false),
            ("", false),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(is_asked(&words), asked, "{line}");
        }
    }
}
