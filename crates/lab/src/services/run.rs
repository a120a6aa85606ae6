//! Starting the services of a lab, from its keeper: each by the `isthmus` command,
//! through `isthmus lab exec`, with its output in a log file of its own.

mod daemons;
mod grid_engine;
pub(crate) mod slurm;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

use super::daemon::RealMachine;
use super::grid_engine::grid_engines;
use super::slurm::slurms;
use super::{Membership, Service, ServiceRecord, stages, state_directory};
use crate::grid::Role;
use crate::isthmus;
use crate::mounts::MACHINE_DIRECTORY;
use crate::process::{ProcessId, die_with_parent};
use crate::state::{LabDirectory, Record};

/// How long the services of each stage may take to join, and then to be ready.
const STAGE_WITHIN: Duration = Duration::from_secs(20);

/// How many of its log's last lines are shown when a service fails.
const LOG_LINES: usize = 15;

/// Starts all services of a lab whose record has been written. They are children of the caller,
/// which must end them, also after a failed start.
pub(crate) fn start(
    record: &Record,
    directory: &LabDirectory,
    signals: &SignalFd,
    children: &mut Vec<ProcessId>,
) -> anyhow::Result<Vec<ServiceRecord>> {
    let stages = stages(&record.grid);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let machine = RealMachine { user: nix::unistd::geteuid().as_raw(), cores };
    let (slurms, engines) = (slurms(&record.grid, machine), grid_engines(&record.grid, machine));
    let broker = stages.first().and_then(|stage| stage.first()).map(|broker| broker.machine.clone());
    if broker.is_none() && slurms.is_empty() && engines.is_empty() {
        return Ok(Vec::new());
    }
    std::fs::create_dir_all(directory.service_logs())?;
    let isthmus = if broker.is_some() { isthmus::of(&record.program)? } else { PathBuf::new() };
    let broker = broker.unwrap_or_default();
    let mut starter = Starter { record, isthmus, directory, signals, children, broker };
    let mut services = starter.start_slurms(&slurms)?;
    services.extend(starter.start_grid_engines(&engines)?);
    for stage in &stages {
        starter.join(stage)?;
        services.extend(starter.run(stage)?);
    }
    Ok(services)
}

struct Starter<'a> {
    record: &'a Record,
    /// Path of the `isthmus` command; empty without a broker.
    isthmus: PathBuf,
    directory: &'a LabDirectory,
    signals: &'a SignalFd,
    children: &'a mut Vec<ProcessId>,
    /// Name of the broker's machine, on which invitations are made; empty without a broker.
    broker: String,
}

/// The owner of a lab's agents: the name of the user who runs the lab, or "lab" if it can't be an
/// owner's.
fn own_user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let allowed = |name: &String| name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    user.map(|user| user.name).filter(allowed).unwrap_or_else(|| "lab".to_owned())
}

/// A running command that makes or joins a service, or the service itself.
struct Working<'a> {
    service: &'a Service,
    what: &'static str,
    child: Child,
    status: Option<ExitStatus>,
}

impl Starter<'_> {
    /// Gives every service of a stage its identity, and waits until all have it.
    fn join(&mut self, stage: &[Service]) -> anyhow::Result<()> {
        let deadline = Instant::now() + STAGE_WITHIN;
        let state = state_directory;
        let owner = own_user();
        let mut inviting = Vec::new();
        for service in stage {
            match &service.membership {
                Membership::Found(arguments) => {
                    let mut all = vec!["grid", "init", "--state"];
                    let state = state(service.role);
                    all.push(&state);
                    all.extend(arguments.iter().map(String::as_str));
                    inviting.push(self.work(service, "making the grid", &service.machine, &all, None)?);
                }
                Membership::Join { invite, .. } => {
                    let (state, token) = (state(Role::Broker), token_file(service));
                    let mut all = vec!["grid", "invite", "--state", &state, "--out", &token];
                    all.extend(invite.iter().map(String::as_str));
                    if service.role == Role::Agent {
                        all.extend(["--owner", &owner]);
                    }
                    inviting.push(self.work(service, "inviting", &self.broker.clone(), &all, None)?);
                }
            }
        }
        self.finish(inviting, deadline)?;

        let mut joining = Vec::new();
        for service in stage {
            let Membership::Join { join, .. } = &service.membership else { continue };
            // Read where it was made, written where it is used: as if carried
            // over by hand.
            let token = self.inside(&self.broker, &token_file(service))?;
            let file = File::open(&token).with_context(|| format!("no token in {}", token.display()))?;
            std::fs::remove_file(&token)?;
            let state = state(service.role);
            let mut all = vec!["join", "--state", &state];
            all.extend(join.iter().map(String::as_str));
            joining.push(self.work(service, "joining", &service.machine, &all, Some(file))?);
        }
        self.finish(joining, deadline)
    }

    /// Starts every service of a stage and waits until all report that they are ready.
    fn run(&mut self, stage: &[Service]) -> anyhow::Result<Vec<ServiceRecord>> {
        let deadline = Instant::now() + STAGE_WITHIN;
        let mut starting = Vec::new();
        for service in stage {
            let role = service.role.command();
            let configuration = format!("{MACHINE_DIRECTORY}/{role}.toml");
            let notify = format!("{MACHINE_DIRECTORY}/{role}.notify");
            std::fs::write(self.inside(&service.machine, &configuration)?, &service.configuration)?;
            let path = self.inside(&service.machine, &notify)?;
            let socket = UnixDatagram::bind(&path).with_context(|| format!("socket {}", path.display()))?;
            socket.set_nonblocking(true)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            let state = state_directory(service.role);
            let arguments = [role, "--state", &state, "--config", &configuration];
            let mut command = self.command(service, &service.machine, &arguments)?;
            command.env("NOTIFY_SOCKET", &notify);
            starting.push((self.spawn(service, "starting", command)?, socket));
        }
        self.wait_ready(&mut starting, deadline)?;
        let record = |(working, _): (Working<'_>, UnixDatagram)| {
            Ok(ServiceRecord {
                role: working.service.role,
                machine: working.service.machine.clone(),
                process: ProcessId::of(Pid::from_raw(working.child.id() as i32))
                    .map_err(|_| self.failure(working.service, "it ended right after the start"))?,
            })
        };
        starting.into_iter().map(record).collect()
    }

    fn wait_ready(
        &self,
        starting: &mut [(Working<'_>, UnixDatagram)],
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let mut waiting: Vec<usize> = (0..starting.len()).collect();
        loop {
            for (working, _) in starting.iter_mut() {
                if let Some(status) = working.child.try_wait()? {
                    return Err(
                        self.failure(working.service, &format!("it ended before it was ready ({status})"))
                    );
                }
            }
            waiting.retain(|index| !is_ready(&starting[*index].1));
            let Some(first) = waiting.first() else { return Ok(()) };
            if Instant::now() >= deadline {
                let message =
                    format!("it did not report that it is ready within {} s", STAGE_WITHIN.as_secs());
                return Err(self.failure(starting[*first].0.service, &message));
            }
            let sockets: Vec<_> = waiting.iter().map(|index| starting[*index].1.as_fd()).collect();
            self.wait_for_news(&sockets, deadline)?;
        }
    }

    /// Waits until all commands have succeeded. Fails as soon as a command fails, or at the
    /// deadline.
    fn finish(&self, mut working: Vec<Working<'_>>, deadline: Instant) -> anyhow::Result<()> {
        loop {
            for one in working.iter_mut().filter(|one| one.status.is_none()) {
                one.status = one.child.try_wait()?;
            }
            let failed = |one: &&Working<'_>| one.status.is_some_and(|status| !status.success());
            if let Some(one) = working.iter().find(failed) {
                let status = one.status.map(|status| status.to_string()).unwrap_or_default();
                return Err(self.failure(one.service, &format!("{} failed ({status})", one.what)));
            }
            let Some(one) = working.iter().find(|one| one.status.is_none()) else { return Ok(()) };
            if Instant::now() >= deadline {
                let message = format!("{} took longer than {} s", one.what, STAGE_WITHIN.as_secs());
                return Err(self.failure(one.service, &message));
            }
            self.wait_for_news(&[], deadline)?;
        }
    }

    /// Waits until a child has ended, a socket can be read, or the deadline has passed. A signal to
    /// end the lab is an error.
    fn wait_for_news(
        &self,
        sockets: &[std::os::fd::BorrowedFd<'_>],
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let mut polled: Vec<PollFd<'_>> =
            sockets.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        polled.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        // An error there: the process that waits for the lab has ended.
        let stdout = io::stdout();
        polled.push(PollFd::new(stdout.as_fd(), PollFlags::empty()));
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        match poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if polled.last().is_some_and(|stdout| stdout.any().unwrap_or(true)) {
            bail!("the process that waited for the lab has ended");
        }
        while let Some(signal) = self.signals.read_signal()? {
            if signal.ssi_signo != libc::SIGCHLD as u32 {
                bail!("ended by a signal during the start of services");
            }
        }
        Ok(())
    }

    fn work<'s>(
        &mut self,
        service: &'s Service,
        what: &'static str,
        machine: &str,
        arguments: &[&str],
        input: Option<File>,
    ) -> anyhow::Result<Working<'s>> {
        let mut command = self.command(service, machine, arguments)?;
        command.stdin(input.map_or_else(Stdio::null, Stdio::from));
        self.spawn(service, what, command)
    }

    fn spawn<'s>(
        &mut self,
        service: &'s Service,
        what: &'static str,
        mut command: Command,
    ) -> anyhow::Result<Working<'s>> {
        let child =
            command.spawn().with_context(|| format!("cannot run {}", self.record.program.display()))?;
        // If it has ended already, there is nothing to end.
        self.children.extend(ProcessId::of(Pid::from_raw(child.id() as i32)));
        Ok(Working { service, what, child, status: None })
    }

    /// The command `isthmus …` in a machine, with its output in the service's log.
    fn command(&self, service: &Service, machine: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        self.program(&self.isthmus, &self.log(service), machine, arguments)
    }

    /// A command that runs a program in a machine, with its output in a log.
    fn program(
        &self,
        program: &Path,
        log: &Path,
        machine: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.record.program);
        command.args(["lab", "exec", "--lab", self.directory.lab(), "--cwd", "/", machine, "--"]);
        // The service has a session of its own, as from a machine's own init. The kernel shares
        // processors out by session (sched(7), autogroup). In one session, the services of all
        // machines together would get the share of one service.
        command.arg("setsid").arg(program).args(arguments);
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // SAFETY: all are system calls, allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                die_with_parent()?;
                // Away from the lab's terminal.
                nix::unistd::setsid()?;
                // The keeper reads its signals from a descriptor.
                Ok(SigSet::empty().thread_set_mask()?)
            });
        }
        Ok(command)
    }

    fn log(&self, service: &Service) -> PathBuf {
        self.log_of(service.role, &service.machine)
    }

    fn log_of(&self, role: Role, machine: &str) -> PathBuf {
        self.directory.service_log(role.command(), machine)
    }

    /// A machine's path as this process sees it.
    fn inside(&self, machine: &str, path: &str) -> anyhow::Result<PathBuf> {
        let found = self.record.machine(machine).ok_or_else(|| anyhow!("no machine {machine}"))?;
        Ok(PathBuf::from(format!("/proc/{}/root{path}", found.init.pid)))
    }

    fn failure(&self, service: &Service, message: &str) -> anyhow::Error {
        let log = self.log(service);
        let end = end_of(&log).unwrap_or_else(|error| format!("(no log: {error})"));
        anyhow!("{} at {}: {message}; its log ends:\n{end}", service.role.command(), service.machine)
    }
}

/// Path of a service's token on the broker's machine, between invitation and joining.
fn token_file(service: &Service) -> String {
    format!("{MACHINE_DIRECTORY}/token-{}-{}", service.role.command(), service.machine)
}

/// Whether a service has sent READY=1 (sd_notify(3)).
fn is_ready(socket: &UnixDatagram) -> bool {
    let mut message = [0; 4096];
    while let Ok(length) = socket.recv(&mut message) {
        if message[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
            return true;
        }
    }
    false
}

/// The last lines of a file, at most [`LOG_LINES`].
fn end_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
}
