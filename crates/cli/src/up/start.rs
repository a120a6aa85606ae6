//! Starts a service in the background or as a unit of the user's systemd, and waits until it
//! is ready.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use isthmus_batch::command::PLACES;
use isthmus_service::upgrade::Program;
use tokio::time::{Instant, sleep};

use super::detached::Lasts;
use super::systemd::{self, Manager};
use super::unit::Unit;
use super::{detached, running};
use crate::config::Config;
use crate::service::Service;
use crate::standing::{self, ServiceReport};

/// Name of the log of a service that was started here, in its state directory.
pub(super) const LOG_FILE: &str = "log";
/// A log that is longer than this, in bytes, is put aside when the service is started.
const LOG_BYTES: u64 = 16 << 20;
/// How long a service may take to be ready. An agent is ready once it is attached to its gateway,
/// and the gateway to the broker.
const READY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
/// How many last lines of the log a message shows if a service fails.
const LAST_LINES: usize = 5;

/// A service that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Whether the service ran before.
    pub(super) already: bool,
    /// The id of the service's process.
    pub(super) pid: u32,
    /// The unit as which the service runs; `None` without one.
    pub(super) unit: Option<String>,
}

/// What became of a start.
#[derive(Debug)]
pub(super) enum Started {
    Runs(Running),
    /// The service's certificate is revoked, so it serves for nothing. It was ended, unless it ran
    /// before.
    Revoked,
}

/// Starts a service unless it runs. It becomes a unit of `manager`, or of the user's systemd if it
/// has a unit already.
///
/// # Errors If it ends or isn't ready in time; the error has the end of its log.
pub(super) async fn start(
    service: Service,
    directory: &Path,
    manager: Option<&Manager>,
) -> anyhow::Result<Started> {
    let noted = systemd::noted(directory, service)?;
    if let Some(pid) = running::pid(directory, service)? {
        if manager.is_some() && noted.is_none() {
            bail!(
                "the {} runs as a process of its own; isthmus down first, then isthmus up --user-unit",
                service.name()
            );
        }
        return before(directory, pid, None);
    }
    let found;
    let manager = match (manager, &noted) {
        (None, None) => return in_background(service, directory, Lasts::On).await,
        (Some(manager), _) => manager,
        (None, Some(_)) => {
            found = Manager::find().await?;
            &found
        }
    };
    as_unit(service, directory, manager, noted).await
}

/// What there is to say of a service that runs already.
fn before(directory: &Path, pid: u32, unit: Option<String>) -> anyhow::Result<Started> {
    if ServiceReport::of(directory, pid)?.is_some_and(|report| report.revoked) {
        return Ok(Started::Revoked);
    }
    Ok(Started::Runs(Running { already: true, pid, unit }))
}

/// Starts a service that ends with this process, also if that is killed. It must not run.
///
/// # Errors If it ends or isn't ready in time; the error has the end of its log.
pub(super) async fn start_child(service: Service, directory: &Path) -> anyhow::Result<Started> {
    in_background(service, directory, Lasts::AsLongAsItsParent).await
}

async fn in_background(service: Service, directory: &Path, lasts: Lasts) -> anyhow::Result<Started> {
    let log = open_log(directory)?;
    let from = log.metadata()?.len();
    standing::forget(directory);
    let mut child = detached::spawn(service, directory, log, lasts)?;
    if let Err(error) = running::note(directory, service, child.id()) {
        // Without the note nobody could stop the service.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let ends = Instant::now() + READY;
    loop {
        // The end is looked for first: what the service has written before it counts less.
        if let Some(status) = child.try_wait()? {
            running::forget(directory, service);
            bail!("the {} has ended ({status}):\n{}", service.name(), last_lines(directory, from));
        }
        match ServiceReport::of(directory, child.id())? {
            Some(report) if report.revoked => {
                running::stop_process(directory, service)?;
                reap(child);
                return Ok(Started::Revoked);
            }
            Some(report) if report.ready => {
                return Ok(Started::Runs(Running { already: false, pid: child.id(), unit: None }));
            }
            Some(_) | None if Instant::now() > ends => return Err(late(service, lasts, directory, from)),
            Some(_) | None => sleep(LOOK).await,
        }
    }
}

/// Collects a service that has ended. Otherwise it would stay a zombie while this command runs.
fn reap(mut child: Child) {
    let _ = child.wait();
}

/// The variables that a service needs of this command's, in a unit: an agent that submits batch jobs
/// has to find the scheduler where it was found here.
fn environment_of(service: Service, directory: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    let submits = service == Service::Agent && Config::load(None, directory)?.agent.submit.is_some();
    let places = PLACES.iter().filter(|_| submits);
    Ok(places.filter_map(|name| Some((*name, std::env::var(name).ok()?))).collect())
}

async fn as_unit(
    service: Service,
    directory: &Path,
    manager: &Manager,
    noted: Option<String>,
) -> anyhow::Result<Started> {
    let program = Program::of_this_process().context("cannot find this program")?;
    let program = std::path::absolute(program.path()).context("cannot find this program")?;
    let host = nix::unistd::gethostname().context("cannot read the host name")?;
    let (host, log_path) = (host.to_string_lossy().into_owned(), directory.join(LOG_FILE));
    let environment = environment_of(service, directory)?;
    let unit = Unit {
        service,
        program: &program,
        directory,
        host: &host,
        log: &log_path,
        environment: &environment,
    };
    let (text, name) = (unit.text()?, noted.unwrap_or_else(|| unit.name()));
    let found = manager.look(&name).await?;
    if found.active {
        systemd::note(directory, service, &name)?;
        return before(directory, found.pid, Some(name));
    }
    // The log is made here, with rights for this user alone; others might read one that systemd
    // makes.
    let from = open_log(directory)?.metadata()?.len();
    standing::forget(directory);
    systemd::note(directory, service, &name)?;
    manager.install(&name, &text).await?;
    tokio::select! {
        biased;
        started = manager.start(&name, READY + LOOK) => if let Err(error) = started {
            remove(service, directory, manager, &name).await?;
            bail!("the {} can't be started ({error:#}):\n{}", service.name(), last_lines(directory, from));
        },
        () = revoked(directory) => {
            manager.stop(&name).await?;
            return Ok(Started::Revoked);
        }
        () = sleep(READY) => return Err(late(service, Lasts::On, directory, from)),
    }
    let pid = manager.look(&name).await?.pid;
    Ok(Started::Runs(Running { already: false, pid, unit: Some(name) }))
}

async fn remove(service: Service, directory: &Path, manager: &Manager, name: &str) -> anyhow::Result<()> {
    manager.remove(name).await?;
    systemd::forget(directory, service);
    Ok(())
}

/// Ends a service that is to be started again; its unit stays.
///
/// # Errors
/// If it can't be told to end.
pub(super) async fn halt(service: Service, directory: &Path) -> anyhow::Result<()> {
    if let Some(name) = systemd::noted(directory, service)? {
        Manager::find().await?.stop(&name).await?;
    }
    running::stop_process(directory, service).map(drop)
}

/// Waits until the service has found that its certificate is revoked.
async fn revoked(directory: &Path) {
    while !ServiceReport::read(directory).ok().flatten().is_some_and(|report| report.revoked) {
        sleep(LOOK).await;
    }
}

fn late(service: Service, lasts: Lasts, directory: &Path, from: u64) -> anyhow::Error {
    let and = match lasts {
        Lasts::On => "; it goes on trying (isthmus down stops it)",
        Lasts::AsLongAsItsParent => "",
    };
    let (name, seconds) = (service.name(), READY.as_secs());
    anyhow::anyhow!(
        "the {name} runs, and isn't ready after {seconds} s{and}:\n{}",
        last_lines(directory, from)
    )
}

/// How a running service is, once that is known or `patience` is over; `None` if the service
/// doesn't tell.
///
/// # Errors
/// If another user's file is there.
pub(super) async fn settled(
    directory: &Path,
    pid: u32,
    patience: Duration,
) -> anyhow::Result<Option<ServiceReport>> {
    let ends = Instant::now() + patience;
    loop {
        let report = ServiceReport::of(directory, pid)?;
        if Instant::now() > ends || report.as_ref().is_some_and(|report| report.is_settled(SystemTime::now()))
        {
            return Ok(report);
        }
        sleep(LOOK).await;
    }
}

fn open_log(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(LOG_FILE);
    if fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES) {
        fs::rename(&path, path.with_extension("old")).context("cannot put the former log aside")?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The last lines of a service's log, of those that begin at `from` bytes.
fn last_lines(directory: &Path, from: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(directory.join(LOG_FILE))?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
