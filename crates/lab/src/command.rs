//! `isthmus lab …`: the lab on the command line.

mod check;
mod foreground;
mod logs;
mod output;
mod status;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use isthmus_wire::Label;
use nix::sys::signal::{SigSet, Signal};

use crate::emulator::control;
use crate::enter::{self, Job};
use crate::grid::Grid;
use crate::keeper;
use crate::lab::{self, Options, find_machine};
use crate::mounts::MACHINE_DIRECTORY;
use crate::state::{ENDING, LabDirectory};

/// Emulate a grid on this machine: sites behind NATs and firewalls, joined by
/// links with delay and rate.
#[derive(Debug, clap::Subcommand)]
pub enum LabCommand {
    /// Bring an emulated grid up from a file.
    ///
    /// Returns when the lab stands. It goes on in the background until `lab down`.
    Up {
        /// The grid file (TOML).
        file: PathBuf,
        /// Name of the lab, instead of the file's.
        #[arg(long = "lab", value_name = "NAME")]
        name: Option<Label>,
        /// Leave out isthmus's own services, also where machines have roles.
        #[arg(long)]
        no_services: bool,
        /// Stay until ctrl-C, and end the lab then.
        #[arg(long)]
        foreground: bool,
    },
    /// Show the machines of a running lab and what its links carried.
    Status {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a machine of the lab.
    ///
    /// Standard input and output, signals and the exit status are the command's. The command
    /// ends when this process does.
    Exec {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// Set a variable in the command's environment.
        #[arg(long = "env", value_name = "NAME=VALUE", value_parser = assignment)]
        environment: Vec<(String, String)>,
        /// Let an ordinary user's command do with the machine's network what root may, for
        /// programs such as nft and tcpdump. As root, commands may anyhow.
        #[arg(long)]
        privileged: bool,
        /// Run it in this directory [default: the current one if the machine has it, else /].
        #[arg(long = "cwd", value_name = "DIR")]
        directory: Option<PathBuf>,
        /// NODE.SITE, HOST, router.SITE or wan.
        machine: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Open a shell in a machine of the lab.
    Shell {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// NODE.SITE, HOST, router.SITE or wan.
        machine: String,
    },
    /// Print the logs of a lab's services.
    Logs {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// NODE.SITE or HOST [default: all, and the lab's own messages].
        machine: Option<String>,
    },
    /// End a lab: nothing of it is left.
    Down {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
    },
    /// Find out whether you can run labs here, and why not.
    ///
    /// Brings two small ones up and down. As root they are made directly, for other users in user
    /// namespaces.
    Check {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// The background process that holds a lab.
    #[command(hide = true)]
    Keeper,
}

/// Which of the running labs is meant.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Name of the lab [default: the only one running].
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Carries out a command. The caller must have one thread only: the lab forks.
pub fn run(command: LabCommand) -> anyhow::Result<ExitCode> {
    match command {
        LabCommand::Up { file, name, no_services, foreground } => {
            up(&file, name.as_ref(), !no_services, foreground)
        }
        LabCommand::Status { which, json } => status::status(which.lab.as_deref(), json),
        LabCommand::Exec { which, environment, privileged, directory, machine, command } => {
            exec(&which, &machine, &Job { command, environment, directory, privileged })
        }
        LabCommand::Shell { which, machine } => shell(&which, &machine),
        LabCommand::Logs { which, machine } => logs::logs(which.lab.as_deref(), machine.as_deref()),
        LabCommand::Down { which } => down(&which),
        LabCommand::Check { json } => check::run(json),
        LabCommand::Keeper => keeper::run().map(|()| ExitCode::SUCCESS),
    }
}

fn up(file: &Path, name: Option<&Label>, services: bool, foreground: bool) -> anyhow::Result<ExitCode> {
    let grid = match name {
        Some(name) => Grid::load_as(file, name)?,
        None => Grid::load(file)?,
    };
    let options = Options { services, ..Options::default() };
    let (keeper, mut tether) = lab::start(&grid, &options)?;
    let machines = grid.machines().count();
    let sites = grid.sites.len();
    output::print(format!("lab {} is up: {machines} machines, {sites} sites\n", grid.name))?;
    if let Some((machine, _)) = grid.machines().next() {
        output::print(format!("try: isthmus lab shell --lab {} {machine}\n", grid.name))?;
    }
    if foreground {
        output::print("it stays up until you press ctrl-C\n")?;
        return foreground::stay(&grid.name, keeper, tether);
    }
    // Until here, an interruption of this process ends the lab.
    SigSet::all().thread_block()?;
    tether.write_all(b"stay\n")?;
    Ok(ExitCode::SUCCESS)
}

fn exec(which: &Which, machine: &str, job: &Job) -> anyhow::Result<ExitCode> {
    let (_, record) = LabDirectory::find(which.lab.as_deref())?;
    Ok(enter::run(find_machine(&record, machine)?, job)?.into())
}

fn shell(which: &Which, machine: &str) -> anyhow::Result<ExitCode> {
    let (_, record) = LabDirectory::find(which.lab.as_deref())?;
    let machine = find_machine(&record, machine)?;
    let command = if Path::new("/bin/bash").exists() {
        vec![
            "/bin/bash".to_owned(),
            "--rcfile".to_owned(),
            format!("{MACHINE_DIRECTORY}/bashrc"),
            "-i".to_owned(),
        ]
    } else {
        vec!["/bin/sh".to_owned(), "-i".to_owned()]
    };
    let environment = vec![("PS1".to_owned(), format!("[{}] $ ", machine.name))];
    Ok(enter::run(machine, &Job { command, environment, directory: None, privileged: false })?.into())
}

fn down(which: &Which) -> anyhow::Result<ExitCode> {
    let mut warning = String::new();
    let (directory, keeper) = match (LabDirectory::find(which.lab.as_deref()), &which.lab) {
        (Ok((directory, record)), _) => {
            if record.emulator.is_some()
                && let Ok(report) = control::report(&directory.emulator_socket())
            {
                warning = status::warning(&report);
            }
            // It may have ended just now.
            let _ = record.keeper.signal(Signal::SIGTERM);
            (directory, Some(record.keeper))
        }
        // A killed lab leaves files only.
        (Err(_), Some(name)) if LabDirectory::of(name).exists() => (LabDirectory::of(name), None),
        (Err(error), _) => return Err(error.into()),
    };
    directory.wait_gone()?;
    if let Some(keeper) = keeper {
        // Removing the directory was the last it had to do.
        keeper.wait_ended(ENDING)?;
    }
    eprint!("{warning}");
    output::print(format!("lab {} is down\n", directory.lab()))?;
    Ok(ExitCode::SUCCESS)
}
