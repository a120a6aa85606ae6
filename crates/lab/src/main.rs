//! The program isthmus-lab, which `isthmus lab` executes with its own arguments. So it calls itself
//! `isthmus lab` wherever it writes its name.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use clap_complete::CompleteEnv;
use isthmus_common::error::causes;
use isthmus_lab::command::{self, LabCommand};
use isthmus_wire::text;

/// The part of the command `isthmus` that is in this program.
#[derive(Debug, Parser)]
#[command(name = "isthmus", bin_name = "isthmus", version, propagate_version = true)]
enum Arguments {
    #[command(subcommand)]
    Lab(LabCommand),
    /// Write the manual of `isthmus lab`: a page for each subcommand. For packages.
    #[command(hide = true)]
    Man {
        /// Where to; made if it is missing.
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    CompleteEnv::with_factory(Arguments::command).complete();
    let done = match Arguments::parse_from(arguments(std::env::args_os().collect())) {
        Arguments::Lab(command) => command::run(command),
        Arguments::Man { directory } => man(&directory).map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    done.unwrap_or_else(|error| {
        let message = text::lines(&format!("isthmus lab: {}\n", causes(&error)));
        // The terminal may be gone.
        let _ = io::stderr().lock().write_all(message.as_bytes());
        ExitCode::FAILURE
    })
}

/// The arguments as `isthmus` gets them: by hand, the word `lab` may be left out.
fn arguments(mut given: Vec<OsString>) -> Vec<OsString> {
    let is_whole = given.get(1).is_some_and(|word| ["lab", "help", "man"].iter().any(|known| word == known));
    if !is_whole {
        given.insert(given.len().min(1), "lab".into());
    }
    given
}

/// Writes isthmus-lab.1, isthmus-lab-up.1 and so on.
fn man(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    // Gives each subcommand the names of those above it.
    command.build();
    let lab = command.find_subcommand("lab").cloned().unwrap_or_default();
    clap_mangen::generate_to(lab, directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_word_lab_may_be_left_out() {
        for (line, want) in [
            ("isthmus-lab", "isthmus-lab lab"),
            ("isthmus-lab lab up a.toml", "isthmus-lab lab up a.toml"),
            ("isthmus-lab up a.toml", "isthmus-lab lab up a.toml"),
            ("isthmus-lab --help", "isthmus-lab lab --help"),
            ("isthmus-lab help lab up", "isthmus-lab help lab up"),
        ] {
            let words = line.split(' ').map(OsString::from).collect();
            let want: Vec<_> = want.split(' ').map(OsString::from).collect();
            assert_eq!(arguments(words), want);
        }
    }

    #[test]
    fn it_calls_itself_isthmus_lab() {
        for (line, usage) in [
            ("isthmus-lab --help", "Usage: isthmus lab <COMMAND>"),
            ("isthmus-lab down --help", "Usage: isthmus lab down [OPTIONS]"),
            ("isthmus-lab help lab down", "Usage: isthmus lab down [OPTIONS]"),
        ] {
            let words = arguments(line.split(' ').map(OsString::from).collect());
            let help = Arguments::try_parse_from(words).unwrap_err().to_string();
            assert!(help.contains(usage), "{line}: {help}");
        }
    }

    #[test]
    fn each_command_that_is_shown_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("man1");
        man(&made).unwrap();
        let page = |name: &str| std::fs::read_to_string(made.join(name));
        for name in ["isthmus-lab.1", "isthmus-lab-up.1", "isthmus-lab-nat-move.1"] {
            assert!(page(name).unwrap().contains(".SH SYNOPSIS"), "{name}");
        }
        for missing in ["isthmus.1", "isthmus-man.1", "isthmus-lab-keeper.1", "isthmus-lab-help.1"] {
            assert!(page(missing).is_err(), "{missing}");
        }
    }
}
