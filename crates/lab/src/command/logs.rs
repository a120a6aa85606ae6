//! `isthmus lab logs`.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::output;
use crate::lab::find_machine;
use crate::state::LabDirectory;

pub(super) fn logs(lab: Option<&str>, machine: Option<&str>) -> anyhow::Result<ExitCode> {
    let (directory, record) = LabDirectory::find(lab)?;
    let machine = machine.map(|name| find_machine(&record, name)).transpose()?;
    if machine.is_none() {
        print("the lab itself", &directory.log())?;
    }
    let wanted = |name: &str| machine.is_none_or(|machine| machine.name == name);
    for service in record.services.iter().filter(|service| wanted(&service.machine)) {
        let role = service.role.command();
        print(&format!("{role} at {}", service.machine), &directory.service_log(role, &service.machine))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(title: &str, log: &Path) -> io::Result<()> {
    let text =
        std::fs::read(log).unwrap_or_else(|error| format!("({}: {error})\n", log.display()).into_bytes());
    output::print([format!("==> {title} <==\n").as_bytes(), &text].concat())
}
