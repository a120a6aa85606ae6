//! Cut lines: a filter at both ends that drops whatever comes in. Senders
//! notice as little as with a cable that was pulled far away: their own
//! machine still takes every packet.

use super::{FaultError, Line, LineEnd, find};
use crate::lab::{Running, find_machine};
use crate::network;
use crate::state::Record;

impl Running {
    /// Has a link or all lines of a machine carry nothing, in either direction, until they are
    /// healed. Returns the names of the lines.
    pub fn cut(&self, target: &str) -> Result<Vec<String>, FaultError> {
        self.change(|record| {
            let lines: Vec<Line> = find(record, target)?.into_iter().cloned().collect();
            for (done, line) in lines.iter().enumerate() {
                if let Err(error) = apply(record, line, cut_script) {
                    for line in &lines[..=done] {
                        // The first error is the one to return.
                        let _ = apply(record, line, heal_script);
                    }
                    return Err(error);
                }
            }
            let names: Vec<String> = lines.into_iter().map(|line| line.name).collect();
            record.faults.cut.extend(names.iter().cloned());
            Ok(names)
        })
    }

    /// Has a link or all lines of a machine carry packets again. Returns the names of the lines
    /// that were cut.
    pub fn heal(&self, target: &str) -> Result<Vec<String>, FaultError> {
        self.change(|record| {
            let lines: Vec<Line> = find(record, target)?.into_iter().cloned().collect();
            heal(record, &lines)
        })
    }

    /// Heals all lines that are cut. Returns their names.
    pub fn heal_all(&self) -> Result<Vec<String>, FaultError> {
        self.change(|record| {
            let cut = |line: &&Line| record.faults.cut.contains(&line.name);
            let lines: Vec<Line> = record.lines.iter().filter(cut).cloned().collect();
            heal(record, &lines)
        })
    }
}

fn heal(record: &mut Record, lines: &[Line]) -> Result<Vec<String>, FaultError> {
    let mut healed = Vec::new();
    for line in lines {
        apply(record, line, heal_script)?;
        if record.faults.cut.remove(&line.name) {
            healed.push(line.name.clone());
        }
    }
    Ok(healed)
}

/// Runs an nft script at both ends of a line.
fn apply(record: &Record, line: &Line, script: fn(&LineEnd) -> String) -> Result<(), FaultError> {
    for end in [&line.near, &line.far] {
        let machine = find_machine(record, &end.machine)?;
        network::run_in(machine, "nft", &["-f", "-"], script(end))?;
    }
    Ok(())
}

/// Name of the nft table that cuts at one end of a line. Interfaces' names may have hyphens and
/// points, which a table's name can't.
fn table(end: &LineEnd) -> String {
    format!("lab_cut_{}", end.interface.replace(['-', '.'], "_"))
}

/// The nft script that cuts at one end of a line. Address resolution passes: otherwise a machine
/// would find no neighbour after some seconds, and its programs would get an error.
fn cut_script(end: &LineEnd) -> String {
    let (table, interface) = (table(end), &end.interface);
    format!(
        "{heal}table netdev {table} {{
  chain cut {{
    type filter hook ingress device \"{interface}\" priority -500; policy drop;
    meta protocol arp accept
  }}
}}
",
        heal = heal_script(end)
    )
}

/// The nft script that heals one end of a line. It adds the table before it deletes it: deleting a
/// missing table is an error, adding a present one is not.
fn heal_script(end: &LineEnd) -> String {
    let table = table(end);
    format!("add table netdev {table}\ndelete table netdev {table}\n")
}
