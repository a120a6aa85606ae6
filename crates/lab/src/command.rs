//! `isthmus lab …`: the lab on the command line.

mod capture;
mod check;
mod complete;
mod faults;
mod foreground;
mod guardian;
mod help;
mod interrupt;
mod logs;
mod output;
mod pictures;
mod status;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap_complete::engine::ArgValueCandidates;
use isthmus_wire::Label;
use nix::sys::signal::{SigSet, Signal};

use crate::emulator::control;
use crate::enter::{self, Job};
use crate::grid::Slow;
use crate::keeper;
use crate::lab::{self, Options, find_machine};
use crate::mounts::MACHINE_DIRECTORY;
use crate::state::{ENDING, LabDirectory};

pub use capture::CaptureArgs;
pub use faults::{CutArgs, FlapArgs, HealArgs, KillArgs, NatCommand, NodeArgs, SetArgs};
pub use pictures::{GraphArgs, PresetsArgs, Source};

/// Emulate a grid on this machine: sites behind NATs and firewalls, joined by
/// links with delay and rate.
#[derive(Debug, clap::Subcommand)]
#[command(help_template = help::TEMPLATE, after_help = help::AFTER)]
pub enum LabCommand {
    /// Bring an emulated grid up, from a file or a preset.
    ///
    /// Returns when the lab stands. It goes on in the background until `lab down`.
    Up {
        /// Where the grid comes from.
        #[command(flatten)]
        source: Source,
        /// Name of the lab, instead of the file's.
        #[arg(long = "lab", value_name = "NAME")]
        name: Option<Label>,
        /// Leave out isthmus's own services, also where machines have roles.
        #[arg(long)]
        no_services: bool,
        /// Slow motion: the network does the same in this many times the time.
        #[arg(long, value_name = "FACTOR", default_value_t = Slow::NONE)]
        slow: Slow,
        /// Stay until ctrl-C, and end the lab then.
        #[arg(long)]
        foreground: bool,
    },
    /// Show machines, services, links and what is broken.
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
        #[arg(add = ArgValueCandidates::new(complete::machines))]
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
        #[arg(add = ArgValueCandidates::new(complete::machines))]
        machine: String,
    },
    /// Print the logs of a lab's services.
    Logs {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// NODE.SITE or HOST [default: all, and the lab's own messages].
        #[arg(add = ArgValueCandidates::new(complete::machines))]
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
    /// List ready-made grids, or print one.
    Presets(PresetsArgs),
    /// Draw a grid as SVG.
    ///
    /// From a grid file, a preset or a running lab; the first two need neither root nor a lab.
    Graph(GraphArgs),
    /// Write the packets that pass a link as pcap.
    ///
    /// To a file, or to a program: isthmus lab capture alpha | tcpdump -nr -
    Capture(CaptureArgs),
    /// Have links carry nothing, in either direction.
    ///
    /// As if a distant cable had been pulled: no host gets an error. Ends by `heal` only.
    Cut(CutArgs),
    /// Have links carry packets again.
    Heal(HealArgs),
    /// Change what a link does to packets.
    ///
    /// Only the named settings change. Packets under way arrive as they would have.
    Set(SetArgs),
    /// Cut and heal a link in turn.
    ///
    /// The line is healed at the end, in whatever way this command ends.
    Flap(FlapArgs),
    /// Kill the processes of a machine, or one service.
    ///
    /// The machine itself stays. With another signal than KILL, processes may live on.
    Kill(KillArgs),
    /// Stop all processes of a machine.
    ///
    /// Its kernel still answers: connections stay, and nothing is read.
    Freeze(NodeArgs),
    /// Have the processes of a machine go on.
    Thaw(NodeArgs),
    /// Have NATs forget mappings, restart or change address.
    #[command(subcommand)]
    Nat(NatCommand),
    /// The background process that holds a lab.
    #[command(hide = true)]
    Keeper,
}

/// Which of the running labs is meant.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Name of the lab [default: the only one running].
    #[arg(long, value_name = "NAME", value_parser = lab_name, add = ArgValueCandidates::new(complete::labs))]
    lab: Option<String>,
}

/// A lab's name as `lab up` keeps it: in lower case.
fn lab_name(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(text.to_ascii_lowercase())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Carries out a lab command. The caller must have one thread only, as the lab forks.
pub fn run(command: LabCommand) -> anyhow::Result<ExitCode> {
    match command {
        LabCommand::Up { source, name, no_services, slow, foreground } => {
            up((&source, slow), name.as_ref(), !no_services, foreground)
        }
        LabCommand::Status { which, json } => status::status(which.lab.as_deref(), json),
        LabCommand::Exec { which, environment, privileged, directory, machine, command } => {
            exec(&which, &machine, &Job { command, environment, directory, says_where: true, privileged })
        }
        LabCommand::Shell { which, machine } => shell(&which, &machine),
        LabCommand::Logs { which, machine } => logs::logs(which.lab.as_deref(), machine.as_deref()),
        LabCommand::Down { which } => down(&which),
        LabCommand::Check { json } => check::run(json),
        LabCommand::Presets(args) => pictures::presets(&args),
        LabCommand::Graph(args) => pictures::graph(&args),
        LabCommand::Capture(args) => capture::capture(&args),
        LabCommand::Cut(args) => faults::cut(&args),
        LabCommand::Heal(args) => faults::heal(&args),
        LabCommand::Set(args) => faults::set(&args),
        LabCommand::Flap(args) => faults::flap(&args),
        LabCommand::Kill(args) => faults::kill(&args),
        LabCommand::Freeze(args) => faults::freeze(&args),
        LabCommand::Thaw(args) => faults::thaw(&args),
        LabCommand::Nat(command) => faults::nat(&command),
        LabCommand::Keeper => keeper::run().map(|()| ExitCode::SUCCESS),
    }
}

fn up(
    (source, slow): (&Source, Slow),
    name: Option<&Label>,
    services: bool,
    foreground: bool,
) -> anyhow::Result<ExitCode> {
    let missing =
        "no grid: give a grid file, or --preset NAME; isthmus lab presets lists those that there are";
    let grid = source.grid(name)?.ok_or_else(|| anyhow!(missing))?.slowed(slow)?;
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
    let ended = || format!("the lab's keeper ended without a word as soon as lab {} was up", grid.name);
    tether.write_all(b"stay\n").with_context(ended)?;
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
    // The shell's prompt says where the shell is.
    let job = Job { command, environment, directory: None, says_where: false, privileged: false };
    Ok(enter::run(machine, &job)?.into())
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
            // The keeper may have ended just now.
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
