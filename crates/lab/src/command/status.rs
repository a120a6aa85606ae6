//! `isthmus lab status`.

use std::process::ExitCode;

use comfy_table::Table;
use serde::Serialize;

use super::output;
use crate::emulator::statistics::{DirectionReport, Report};
use crate::emulator::{DeviceKind, control};
use crate::faults::FaultRecord;
use crate::grid::{Grid, Role};
use crate::state::{LabDirectory, Record};

#[derive(Serialize)]
struct Status<'a> {
    lab: &'a str,
    keeper_pid: i32,
    machines: Vec<MachineStatus<'a>>,
    grid: &'a Grid,
    emulator: Option<EmulatorStatus>,
    services: Vec<ServiceStatus<'a>>,
    faults: &'a FaultRecord,
}

#[derive(Serialize)]
struct ServiceStatus<'a> {
    role: Role,
    machine: &'a str,
    pid: i32,
    alive: bool,
}

#[derive(Serialize)]
struct MachineStatus<'a> {
    name: &'a str,
    kind: crate::topology::MachineKind,
    host_name: &'a str,
    address: std::net::Ipv4Addr,
    pid: i32,
    alive: bool,
}

#[derive(Serialize)]
struct EmulatorStatus {
    pid: i32,
    alive: bool,
    report: Option<Report>,
}

pub(super) fn status(lab: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let (directory, record) = LabDirectory::find(lab)?;
    let status = gather(&directory, &record);
    if json {
        output::print(serde_json::to_string_pretty(&status)? + "\n")?;
    } else {
        output::print(text(&status))?;
    }
    let whole = status.machines.iter().all(|machine| machine.alive)
        && status.services.iter().all(|service| service.alive)
        && status.emulator.as_ref().is_none_or(|emulator| emulator.report.is_some());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn gather<'a>(directory: &'a LabDirectory, record: &'a Record) -> Status<'a> {
    let machines = record.machines.iter().map(|machine| MachineStatus {
        name: &machine.name,
        kind: machine.kind,
        host_name: &machine.host_name,
        address: machine.address,
        pid: machine.init.pid,
        alive: machine.init.is_alive(),
    });
    let services = record.services.iter().map(|service| ServiceStatus {
        role: service.role,
        machine: &service.machine,
        pid: service.process.pid,
        alive: service.process.is_alive(),
    });
    let emulator = record.emulator.map(|process| EmulatorStatus {
        pid: process.pid,
        alive: process.is_alive(),
        report: control::report(&directory.emulator_socket()).ok(),
    });
    Status {
        lab: directory.lab(),
        keeper_pid: record.keeper.pid,
        machines: machines.collect(),
        grid: &record.grid,
        emulator,
        services: services.collect(),
        faults: &record.faults,
    }
}

fn text(status: &Status<'_>) -> String {
    let mut machines = table(&["machine", "host name", "address", "process", "services"]);
    for machine in &status.machines {
        let process = if machine.alive { machine.pid.to_string() } else { "dead".to_owned() };
        let services = status.services.iter().filter(|service| service.machine == machine.name);
        let services = services.map(|service| match service.alive {
            true => service.role.command().to_owned(),
            false => format!("{} (DEAD)", service.role.command()),
        });
        let services = services.collect::<Vec<_>>().join(", ");
        machines.add_row([
            machine.name,
            machine.host_name,
            &machine.address.to_string(),
            &process,
            &services,
        ]);
    }
    let links = match &status.emulator {
        None => String::new(),
        Some(EmulatorStatus { report: Some(report), .. }) => links(report),
        Some(EmulatorStatus { pid, alive, report: None }) => {
            let what = if *alive { "doesn't answer" } else { "is dead" };
            format!("the emulator (process {pid}) {what}: links with delay or rate carry nothing\n")
        }
    };
    let broken = broken(status.faults);
    format!("lab {} (keeper {})\n{broken}{machines}\n{links}", status.lab, status.keeper_pid)
}

/// The faults in force, with the commands that mend them. Empty without faults.
fn broken(faults: &FaultRecord) -> String {
    let mut text = String::new();
    let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    if !faults.cut.is_empty() {
        text += &format!("CUT: {} (mend with: isthmus lab heal --all)\n", names(&faults.cut));
    }
    if !faults.frozen.is_empty() {
        text += &format!("FROZEN: {} (mend with: isthmus lab thaw NODE)\n", names(&faults.frozen));
    }
    text
}

fn links(report: &Report) -> String {
    let header =
        ["link", "shape", "direction", "packets", "MB", "dropped", "lost", "late µs p50 / p99 / max"];
    let mut links = table(&header);
    for link in &report.links {
        for (direction, carried) in [("up", &link.up), ("down", &link.down)] {
            let name = if direction == "up" { link.name.as_str() } else { "" };
            let shape = carried.shape.to_string();
            links.add_row([name, &shape, direction].map(str::to_owned).into_iter().chain(figures(carried)));
        }
    }
    let share = report.processor_seconds / report.running_seconds.max(1e-9) * 100.0;
    let used = report.processor_seconds;
    let devices = match report.devices {
        DeviceKind::Tun => "TUN devices",
        DeviceKind::PacketSocket => "packet sockets",
    };
    let mut text = format!(
        "{links}\nemulator: over {devices}, seed {}; {used:.1} s of processor time, {share:.1} % of one since the start\n",
        report.seed
    );
    text.push_str(&warning(report));
    text
}

/// A warning that the emulation wasn't faithful at all times. Empty if it was.
pub(super) fn warning(report: &Report) -> String {
    const SHOWN: usize = 5;
    if report.is_faithful() {
        return String::new();
    }
    let times =
        if report.lapses == 1 { "at one time".to_owned() } else { format!("{} times", report.lapses) };
    let mut text = format!("WARNING: the emulation wasn't faithful {times}; figures from then are void");
    let last = report.recent_lapses.iter().rev().take(SHOWN);
    text.push_str(&last.map(|lapse| format!("\n  {lapse}")).collect::<String>());
    text.push('\n');
    text
}

fn figures(carried: &DirectionReport) -> [String; 5] {
    let late = &carried.lateness;
    [
        carried.packets.to_string(),
        format!("{:.1}", carried.bytes as f64 / 1e6),
        carried.dropped.to_string(),
        carried.lost.to_string(),
        format!("{:.0} / {:.0} / {:.0}", late.p50_us, late.p99_us, late.max_us),
    ]
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(header);
    table
}
