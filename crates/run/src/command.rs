//! The user's command: whether it is a launcher, and how it starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use isthmus_agent::jobs::job_directory::{HOSTS, HYDRA_HOSTS, preload};
use isthmus_agent::starting::programs;
use isthmus_agent::starting::supervise::Supervised;
use isthmus_agent::starting::supervise::handle::{BY_LIBC, Launch};
use isthmus_wire::proto::{JobNode, ProgramCheck, UncarriedProgram};
use isthmus_wire::sanitizer;

use super::mpi::{self, Launcher};
use super::programs::NamedProgram;

/// Which MPI's launcher the command is; `None` for any other command.
///
/// # Errors
/// If its name is that of a launcher, and it is missing or not supported.
pub(crate) fn launcher(command: &[String]) -> anyhow::Result<Option<Launcher>> {
    let program = command.first().context("no command given")?;
    if !mpi::looks_like_launcher(program) {
        return Ok(None);
    }
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            anyhow::bail!("{program}: command not found on this node")
        }
        output => output.with_context(|| format!("cannot run `{program} --version`"))?,
    };
    let version =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok(Some(mpi::identify(program, &version)?))
}

/// Starts the command in this terminal, supervised. Its environment has what
/// launchers need, because a command may start one.
///
/// # Errors
/// If the supervisor can't be started.
pub(super) fn start(
    command: &[String],
    (job, socket): (&str, &Path),
    job_directory: &Path,
    nodes: &[JobNode],
) -> anyhow::Result<Supervised> {
    let usable: Vec<JobNode> = nodes.iter().filter(|node| node.slots > 0).cloned().collect();
    for (name, text) in [(HOSTS, mpi::hosts(&usable)), (HYDRA_HOSTS, mpi::hydra_hosts(&usable))] {
        let file = job_directory.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
    let environment = environment(job, socket, job_directory);
    let working_directory = std::env::current_dir().context("the working directory is gone")?;
    Supervised::start(Launch {
        isthmus: &isthmus,
        command: command.iter().map(OsString::from).collect(),
        environment,
        working_directory: &working_directory,
        detached: false,
    })
    .context("cannot start the command's supervisor")
}

/// The programs that the nodes check.
pub(crate) fn program_check(wanted: &[NamedProgram]) -> ProgramCheck {
    ProgramCheck {
        programs: wanted.iter().map(|wanted| wanted.program.clone()).collect(),
        working_directory: std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned(),
        search_path: std::env::var("PATH").unwrap_or_default(),
    }
}

/// The command itself, if it can't be carried on this node; else nothing.
pub(super) fn uncarried(command: &[String], node: &str) -> Vec<UncarriedProgram> {
    let check =
        ProgramCheck { programs: command.first().cloned().into_iter().collect(), ..program_check(&[]) };
    let entry = |found: programs::Uncarried| UncarriedProgram {
        node: node.to_owned(),
        program: found.program,
        file: found.file.to_string_lossy().into_owned(),
        hindrance: found.hindrance.kind.into(),
        detail: found.hindrance.detail,
    };
    programs::uncarried(&check, "").into_iter().map(entry).collect()
}

fn environment(job: &str, socket: &Path, job_directory: &Path) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let mut set = |name: &str, value: OsString| {
        environment.retain(|(old, _)| old != name);
        environment.push((name.into(), value));
    };
    let mut preload = preload(job_directory);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    set("LD_PRELOAD", preload);
    // For `isthmus exec`.
    set("ISTHMUS_JOB", job.into());
    set("ISTHMUS_AGENT", socket.into());
    for (name, value) in BY_LIBC {
        if std::env::var_os(name).is_none() {
            set(name, value.into());
        }
    }
    let options = std::env::var_os(sanitizer::VARIABLE).unwrap_or_default();
    set(sanitizer::VARIABLE, OsString::from_vec(sanitizer::with_order(options.as_bytes())));
    for variable in mpi::environment(job_directory) {
        if !(variable.yields && std::env::var_os(variable.name).is_some()) {
            set(variable.name, variable.value.into());
        }
    }
    environment
}
