//! Freezing, thawing and killing what runs in a machine.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::FaultError;
use crate::grid::Role;
use crate::lab::{Machine, Running, find_machine};
use crate::process::ProcessId;
use crate::state::{MachineRecord, Record};

/// How long processes may take to stop or end. A process that waits for a disk can do neither.
const OBEDIENCE: Duration = Duration::from_secs(10);

impl Running {
    /// Stops every process of a machine. The machine stays, and does nothing. Returns how many
    /// processes it has.
    pub fn freeze(&self, machine: &str) -> Result<usize, FaultError> {
        self.change(|record| {
            let machine = find_machine(record, machine)?.clone();
            let count = stop_all(&machine)?;
            record.faults.frozen.insert(machine.name);
            Ok(count)
        })
    }

    /// Has the processes of a machine go on. Returns how many were stopped.
    pub fn thaw(&self, machine: &str) -> Result<usize, FaultError> {
        self.change(|record| {
            let machine = find_machine(record, machine)?.clone();
            let mut count = 0;
            for process in processes(&machine)?.into_iter().filter(|process| process.stopped) {
                send(&machine, process.id, Signal::SIGCONT)?;
                count += 1;
            }
            record.faults.frozen.remove(&machine.name);
            Ok(count)
        })
    }

    /// Sends a signal to the processes of the service `role`. Without a role, sends it to every
    /// process of the machine but its first process, which holds the machine. After a SIGKILL,
    /// returns when the processes are gone. Returns how many processes got the signal.
    pub fn kill(&self, machine: &str, role: Option<Role>, signal: Signal) -> Result<usize, FaultError> {
        self.change(|record| {
            let machine = find_machine(record, machine)?.clone();
            if signal != Signal::SIGKILL {
                let chosen = chosen(record, &machine, role)?;
                for process in &chosen {
                    send(&machine, process.id, signal)?;
                }
                return Ok(chosen.len());
            }
            let mut killed: Vec<i32> = Vec::new();
            let deadline = Instant::now() + OBEDIENCE;
            loop {
                let left = match chosen(record, &machine, role) {
                    // The service went with its processes.
                    Err(FaultError::NoService { .. }) if !killed.is_empty() => Vec::new(),
                    left => left?,
                };
                if left.is_empty() {
                    break;
                }
                let pids: Vec<i32> = left.iter().map(|process| process.id.pid).collect();
                if Instant::now() > deadline {
                    return Err(disobedient(&machine, "live", pids));
                }
                for process in left {
                    send(&machine, process.id, signal)?;
                }
                killed.extend(pids.iter().filter(|pid| !killed.contains(pid)).collect::<Vec<_>>());
                std::thread::sleep(Duration::from_millis(1));
            }
            record.faults.frozen.remove(&machine.name);
            Ok(killed.len())
        })
    }
}

impl Machine<'_> {
    /// Stops every process of the machine, as [`Running::freeze`] does.
    pub fn freeze(&self) -> Result<usize, FaultError> {
        self.running().freeze(self.name())
    }

    /// Has the processes of the machine go on, as [`Running::thaw`] does.
    pub fn thaw(&self) -> Result<usize, FaultError> {
        self.running().thaw(self.name())
    }

    /// Sends a signal to the processes of the machine or of a service on it, as [`Running::kill`]
    /// does.
    pub fn kill(&self, role: Option<Role>, signal: Signal) -> Result<usize, FaultError> {
        self.running().kill(self.name(), role, signal)
    }
}

/// Stops the processes of a machine until none runs, as a process that isn't stopped yet may start
/// others. Returns how many processes the machine has.
fn stop_all(machine: &MachineRecord) -> Result<usize, FaultError> {
    let deadline = Instant::now() + OBEDIENCE;
    loop {
        let all = processes(machine)?;
        let running: Vec<&Process> = all.iter().filter(|process| !process.stopped).collect();
        if running.is_empty() {
            return Ok(all.len());
        }
        if Instant::now() > deadline {
            let pids = running.iter().map(|process| process.id.pid).collect();
            return Err(disobedient(machine, "run", pids));
        }
        for process in running {
            send(machine, process.id, Signal::SIGSTOP)?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn disobedient(machine: &MachineRecord, what: &'static str, pids: Vec<i32>) -> FaultError {
    FaultError::Processes { machine: machine.name.clone(), what, limit: OBEDIENCE, pids }
}

fn send(machine: &MachineRecord, process: ProcessId, signal: Signal) -> Result<(), FaultError> {
    match process.signal(signal) {
        Ok(()) => Ok(()),
        // The process ended by itself.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(())
        }
        Err(cause) => Err(FaultError::Signal {
            machine: machine.name.clone(),
            pid: process.pid,
            signal: signal.as_str(),
            cause,
        }),
    }
}

/// The processes of a machine, or of a service on it with all that the service started.
fn chosen(record: &Record, machine: &MachineRecord, role: Option<Role>) -> Result<Vec<Process>, FaultError> {
    let mut all = processes(machine)?;
    let Some(role) = role else { return Ok(all) };
    let here = record.services.iter().filter(|service| service.machine == machine.name);
    let alive = |service: &&crate::services::ServiceRecord| service.process.is_alive();
    let Some(service) = here.clone().filter(alive).find(|service| service.role == role) else {
        let known: Vec<_> = here.filter(alive).map(|service| service.role.command()).collect();
        let known = if known.is_empty() { "no service".to_owned() } else { known.join(", ") };
        return Err(FaultError::NoService { machine: machine.name.clone(), role, known });
    };
    // What the service itself has started belongs to it.
    let mut family = vec![service.process.pid];
    while let Some(process) =
        all.iter().find(|process| family.contains(&process.parent) && !family.contains(&process.id.pid))
    {
        family.push(process.id.pid);
    }
    all.retain(|process| family.contains(&process.id.pid));
    Ok(all)
}

/// A process of a machine other than its first process.
#[derive(Debug)]
struct Process {
    id: ProcessId,
    parent: i32,
    /// Whether all threads of the process are stopped.
    stopped: bool,
}

/// All processes in a machine's PID namespace and in those below it, without the machine's first
/// process.
fn processes(machine: &MachineRecord) -> Result<Vec<Process>, FaultError> {
    let failed = |cause| crate::NetworkError::Gone { place: machine.name.clone(), cause };
    let wanted = fs::metadata(format!("/proc/{}/ns/pid", machine.init.pid)).map_err(failed)?.ino();
    if !machine.init.is_alive() {
        return Err(failed(io::ErrorKind::NotFound.into()).into());
    }
    let entries = fs::read_dir("/proc").map_err(failed)?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let other = pids.filter(|pid| *pid != machine.init.pid && is_within(*pid, wanted));
    Ok(other.filter_map(look).collect())
}

/// The parent and state of a process. `None` if the process doesn't live any more.
fn look(pid: i32) -> Option<Process> {
    let id = ProcessId::of(Pid::from_raw(pid)).ok()?;
    let process = procfs::process::Process::new(pid).ok()?;
    let parent = process.stat().ok()?.ppid;
    // Stopped, traced, or ended meanwhile.
    let at_rest = |state: char| matches!(state, 'T' | 't' | 'Z' | 'X');
    let stat_of = |task: procfs::ProcResult<procfs::process::Task>| task.and_then(|task| task.stat());
    let stopped = process.tasks().ok()?.all(|task| stat_of(task).map_or(true, |stat| at_rest(stat.state)));
    Some(Process { id, parent, stopped })
}

/// Whether a process is in the PID namespace with the inode `wanted`, or in a namespace below it.
fn is_within(pid: i32, wanted: u64) -> bool {
    let Ok(file) = File::open(format!("/proc/{pid}/ns/pid")) else { return false };
    let mut namespace = OwnedFd::from(file);
    loop {
        match nix::sys::stat::fstat(&namespace) {
            Ok(stat) if stat.st_ino == wanted => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        match parent_namespace(&namespace) {
            Ok(parent) => namespace = parent,
            // The topmost that this process may see.
            Err(_) => return false,
        }
    }
}

/// The namespace above a PID namespace (ioctl_nsfs(2)).
fn parent_namespace(namespace: &OwnedFd) -> nix::Result<OwnedFd> {
    /// The ioctl's number, `_IO(NSIO, 0x2)`.
    const NS_GET_PARENT: libc::c_ulong = 0xb702;
    // SAFETY: the descriptor is open, and the request takes no argument.
    let raw = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_PARENT as _) };
    let raw = Errno::result(raw)?;
    // SAFETY: the kernel just made this descriptor, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
