//! Building a lab: machines, emulator, wires, addresses, in this order.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use super::{Start, complain};
use crate::child::{self, Starting};
use crate::emulator::control::Listener;
use crate::emulator::{Device, DeviceKind, Emulator};
use crate::faults::lines::lines;
use crate::faults::record::FaultRecord;
use crate::grid::Slow;
use crate::process::ProcessId;
use crate::rootless;
use crate::state::{LabDirectory, MachineRecord, Record};
use crate::topology::{EmulatedLink, Topology, topology};
use crate::{isthmus, machine, mounts, network};

/// Builds the lab. Adds every process that it starts to `children`, which the caller must end, also
/// after an error.
pub(super) fn build(
    start: &Start,
    directory: &LabDirectory,
    lock: BorrowedFd<'_>,
    children: &mut Vec<ProcessId>,
) -> anyhow::Result<Record> {
    let grid = &start.grid;
    let keeper = ProcessId::of(Pid::this())?;
    let program = std::env::current_exe().context("cannot find the lab's own program")?;
    let topology = topology(grid);

    rootless::enter_user_namespace()?;
    // The keeper's own network stays empty, and its mounts are the model for
    // the machines'.
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .map_err(|error| anyhow!("cannot make namespaces: {error}{}", rootless::hint(error)))?;
    mounts::prepare()?;
    allow_descriptors(topology.machines.len() as u64 * 4 + 64)?;

    let mut share = grid.share.clone();
    let isthmus = isthmus::of(&program).ok();
    let own = isthmus.iter().chain([&program]).filter_map(|file| file.parent());
    share.extend(own.filter(|directory| mounts::is_private(directory)).map(PathBuf::from));
    let mut starting: Vec<Starting> = Vec::new();
    for machine in &topology.machines {
        let started = machine::start(&grid.name, machine, &share, lock)?;
        children.extend(ProcessId::of(Pid::from_raw(started.pid())));
        starting.push(started);
    }
    let pids: Vec<i32> = starting.iter().map(Starting::pid).collect();
    let inits = starting.into_iter().map(Starting::wait).collect::<Result<Vec<_>, _>>()?;
    let namespaces = pids
        .iter()
        .map(|pid| File::open(format!("/proc/{pid}/ns/net")).map(OwnedFd::from))
        .collect::<Result<Vec<_>, _>>()?;

    let devices = start.devices.unwrap_or_else(DeviceKind::available);
    if devices == DeviceKind::PacketSocket {
        network::wire_emulator(&topology, &pids)?;
    }
    let emulator =
        match start_emulator((grid.seed, grid.slow), devices, &topology, &namespaces, directory, lock)? {
            Some(started) => {
                children.extend(ProcessId::of(Pid::from_raw(started.pid())));
                Some(started.wait()?)
            }
            None => None,
        };
    network::wire(&topology, &pids)?;
    network::configure(&topology, &namespaces)?;

    let record = |(machine, init): (&crate::topology::Machine, ProcessId)| MachineRecord {
        name: machine.name.clone(),
        kind: machine.kind,
        host_name: machine.host_name.clone(),
        address: machine.address,
        init,
        clock_ahead_seconds: grid.site_of(&machine.name).map_or(0, |site| site.clock_ahead_seconds),
    };
    let machines = topology.machines.iter().zip(inits).map(record).collect();
    Ok(Record {
        grid: grid.clone(),
        keeper,
        emulator,
        machines,
        program,
        services: Vec::new(),
        lines: lines(&topology),
        faults: FaultRecord::default(),
    })
}

/// Raises this process's limit of open descriptors to `needed`. A descriptor for each machine's
/// pipe and namespace may be more than the default allows.
fn allow_descriptors(needed: u64) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard)?;
    }
    Ok(())
}

fn start_emulator(
    (seed, slow): (Option<u64>, Slow),
    devices: DeviceKind,
    topology: &Topology,
    namespaces: &[OwnedFd],
    directory: &LabDirectory,
    lock: BorrowedFd<'_>,
) -> anyhow::Result<Option<Starting>> {
    if topology.links.is_empty() {
        return Ok(None);
    }
    let keep: Vec<RawFd> = namespaces.iter().map(AsRawFd::as_raw_fd).chain([lock.as_raw_fd()]).collect();
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let set_up = || emulator((seed, slow), devices, &topology.links, namespaces, directory);
    let live = |emulator: Emulator| complain(emulator.run());
    Ok(Some(child::start("emulator", CloneFlags::empty(), &keep, set_up, live)?))
}

/// Makes the emulator with its devices, and prepares its process to be on time. Runs in the
/// emulator's process.
fn emulator(
    (seed, slow): (u64, Slow),
    devices: DeviceKind,
    links: &[EmulatedLink],
    namespaces: &[OwnedFd],
    directory: &LabDirectory,
) -> anyhow::Result<Emulator> {
    // Timers fire when they are due, not up to 50 µs later to save power.
    nix::sys::prctl::set_timerslack(1)?;
    be_first_in_line();
    let mut emulator = Emulator::new(Listener::bind(&directory.emulator_socket())?, devices, slow, seed);
    for (number, link) in links.iter().enumerate() {
        let [near, far] = [(&link.near, 0), (&link.far, 1)].map(|(port, side)| match devices {
            DeviceKind::Tun => Device::tun(namespaces[port.machine].as_fd(), &port.interface),
            DeviceKind::PacketSocket => Device::packet_socket(&network::emulator_interface(number, side)),
        });
        emulator.add_link(link.name.clone(), &link.link, near?, far?)?;
    }
    Ok(emulator)
}

/// Asks the kernel to prefer this process to all others. Otherwise packets would be milliseconds
/// late where the lab's nodes keep all processors busy. If the kernel refuses, the measured
/// lateness shows it.
fn be_first_in_line() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is valid and only read.
    let real_time = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &priority) } == 0;
    if real_time {
        return;
    }
    // An ordinary user's limit of N allows a niceness down to 20 - N (getrlimit(2)).
    let allowed = getrlimit(Resource::RLIMIT_NICE).map_or(0, |(soft, _)| 20 - soft.min(40) as i32);
    for niceness in [-20, allowed.min(0)] {
        // SAFETY: setpriority takes numbers only.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) } == 0 {
            return;
        }
    }
}
