//! The `isthmus` command: every role and tool is a subcommand. A library, so that the
//! fuzz targets reach what reads the answers of the grid.

// Texts of other parties are escaped: output writes them.
#![deny(clippy::print_stderr)]

mod cancel;
mod coll;
mod config;
mod doctor;
mod few_lines;
mod grid;
mod jobs;
mod join;
mod lab;
mod man;
mod memory;
mod own_address;
mod own_program;
mod path;
mod plan;
mod profile;
mod promptly;
mod relay;
mod service;
mod services;
mod standing;
mod status;
mod trunks;
mod up;
mod upgrade;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;
use isthmus_front::{format, output};
use isthmus_run::{self as run, alloc, exec, launch, staging};
use tokio::runtime::{Builder, Runtime};

use promptly::Children;
use service::Service;

#[doc(hidden)]
pub use status::status_texts;

/// The release and the sources that it was built from (see ../build.rs).
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (source ", env!("ISTHMUS_SOURCE_ID"), ")");

/// Run an unmodified MPI program as one job across clusters, clouds and labs
/// that sit behind NATs and firewalls.
#[derive(Debug, Parser)]
#[command(name = "isthmus", version, long_version = LONG_VERSION, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(subcommand)]
    Grid(grid::GridCommand),
    Up(up::UpArgs),
    Down(up::DownArgs),
    Join(join::JoinArgs),
    /// Run the grid's broker: certificates, registry, plans.
    Broker(service::BrokerArgs),
    /// Run a relay: splices outgoing connections of two sites.
    Relay(service::ServiceArgs),
    /// Run a site's gateway, on its front-end.
    Gateway(service::ServiceArgs),
    /// Run a node's agent.
    Agent(service::ServiceArgs),
    Status(status::StatusArgs),
    Plan(plan::PlanArgs),
    #[command(subcommand)]
    Coll(coll::CollCommand),
    #[command(subcommand)]
    Profile(profile::ProfileCommand),
    Trunks(trunks::TrunksArgs),
    Doctor(doctor::DoctorArgs),
    Run(Box<run::RunArgs>),
    Jobs(jobs::JobsArgs),
    Cancel(cancel::CancelArgs),
    Alloc(Box<alloc::AllocArgs>),
    Exec(exec::ExecArgs),
    Lab(lab::LabArgs),
    /// Print a completion script for a shell.
    ///
    /// The script runs `isthmus` for the possible words, with names of running labs and
    /// their machines. For bash: source <(isthmus completion bash)
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Man(man::ManArgs),
    /// The command by which agents run on nodes of a batch job.
    #[command(hide = true)]
    Allocated,
    #[command(hide = true)]
    Launch(launch::LaunchArgs),
    /// The command by which `isthmus run` sends files to nodes.
    #[command(hide = true)]
    Stage,
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

/// The command by which `isthmus run` and the agent start a command.
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

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    lab::run_if_asked();
    CompleteEnv::with_factory(Cli::command).complete();
    let parsed = Cli::try_parse().unwrap_or_else(|mut error| {
        if std::env::args_os().nth(1).is_some_and(|word| word == "run") {
            run::explain(&mut error);
        }
        error.exit()
    });
    match parsed.command {
        Command::Grid(command) => finish("grid", block_on(grid::run(command))),
        Command::Join(args) => finish("join", block_on(join::run(args))),
        Command::Up(args) => finish("up", block_on(up::up(args))),
        Command::Down(args) => finish("down", block_on(up::down(args))),
        Command::Broker(args) => serve(Service::Broker, args.service, args.with_relay),
        Command::Relay(args) => serve(Service::Relay, args, false),
        Command::Gateway(args) => serve(Service::Gateway, args, false),
        Command::Agent(args) => serve(Service::Agent, args, false),
        Command::Status(args) => finish("status", block_on(status::run(args))),
        Command::Plan(args) => finish("plan", block_on(plan::run(args))),
        Command::Coll(command) => finish("coll", block_on(coll::run(command))),
        Command::Profile(command) => finish("profile", profile::run(command)),
        Command::Trunks(args) => finish("trunks", block_on(trunks::run(args))),
        Command::Doctor(args) => doctor(args),
        Command::Run(args) => run::main(*args),
        Command::Jobs(args) => finish("jobs", block_on(jobs::run(args))),
        Command::Cancel(args) => finish("cancel", block_on(cancel::run(args))),
        Command::Alloc(args) => alloc::main(*args),
        Command::Exec(args) => exec::main(args),
        Command::Lab(_) => lab::run(),
        Command::Completion { shell } => finish("completion", completion(shell)),
        Command::Man(args) => finish("man", man::run(Cli::command(), &args)),
        Command::Allocated => finish("allocated", block_on(up::allocated::run())),
        Command::Launch(args) => launch::main(args),
        Command::Stage => staging::main(),
        Command::Supervise(args) => supervise(args),
    }
}

/// A script by which a shell gets completions from this program.
fn completion(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(&shell.to_string()) else {
        anyhow::bail!(
            "no completions for {shell}; there are some for: {}",
            shells.names().collect::<Vec<_>>().join(", ")
        )
    };
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", "isthmus", "isthmus", "isthmus", &mut script)?;
    Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
}

fn serve(service: Service, args: service::ServiceArgs, with_relay: bool) -> ExitCode {
    if let Some(held) = &args.check_upgrade {
        return finish(service.name(), block_on(upgrade::check(service, &args, &held.0)));
    }
    // SAFETY: nothing was started or opened yet.
    let before = match unsafe { upgrade::before(service) } {
        Ok(before) => before,
        Err(error) => return finish(service.name(), Err(error)),
    };
    // Only an agent starts programs; the others' further threads carry data.
    let children = if service == Service::Agent { Children::Usual } else { Children::Same };
    let promptly = move || promptly::run_soon_after_waking(children);
    promptly::raise_own_session();
    promptly();
    let started = Builder::new_multi_thread().enable_all().on_thread_start(promptly).build();
    finish(
        service.name(),
        started
            .map_err(Into::into)
            .and_then(|runtime| run_in(runtime, services::run(service, args, before, with_relay))),
    )
}

fn doctor(args: doctor::DoctorArgs) -> ExitCode {
    block_on(doctor::run(args)).unwrap_or_else(|error| {
        output::write(&format!("isthmus doctor: {}\n", format::causes(&error)));
        ExitCode::FAILURE
    })
}

fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_in(Builder::new_multi_thread().enable_all().build()?, command)
}

fn run_in<T>(runtime: Runtime, command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let result = runtime.block_on(command);
    // Tasks that still run have no use, and must not delay the end.
    runtime.shutdown_background();
    result
}

/// Prints an error on one line, and returns the exit status.
fn finish(what: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::write(&format!("isthmus {what}: {}\n", format::causes(&error)));
            ExitCode::FAILURE
        }
    }
}

fn supervise(args: SuperviseArgs) -> ExitCode {
    use isthmus_agent::starting::supervise::child;
    let SuperviseArgs { control, session, command } = args;
    child::run(child::Options { control, session, command }).unwrap_or_else(|error| {
        output::message(&format!("cannot supervise a command: {error}"));
        ExitCode::from(125)
    })
}
