//! Completion of the command line: names of running labs,
//! their machines and links, presets.

use std::ffi::OsString;

use clap_complete::engine::CompletionCandidate;

use crate::grid::Role;
use crate::presets::PRESETS;
use crate::state::{self, LabDirectory, Record};

fn candidates<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Vec<CompletionCandidate> {
    names.into_iter().map(|name| CompletionCandidate::new(name.into())).collect()
}

pub(super) fn labs() -> Vec<CompletionCandidate> {
    candidates(state::running().unwrap_or_default().iter().map(|(directory, _)| directory.lab().to_owned()))
}

/// Names of the ready-made grids, with a summary of each.
pub(super) fn presets() -> Vec<CompletionCandidate> {
    PRESETS
        .iter()
        .map(|preset| CompletionCandidate::new(preset.name).help(Some(preset.summary().into())))
        .collect()
}

pub(super) fn roles() -> Vec<CompletionCandidate> {
    candidates(Role::ALL.map(Role::command))
}

/// Names of the machines in the lab that the command line means.
pub(super) fn machines() -> Vec<CompletionCandidate> {
    from_record(|record| record.machines.iter().map(|machine| machine.name.clone()).collect())
}

/// Names of the lab's links to the wide area.
pub(super) fn links() -> Vec<CompletionCandidate> {
    from_record(|record| {
        let links = record.lines.iter().filter(|line| line.to_wan);
        links.map(|line| line.name.clone()).collect()
    })
}

/// Names of all lines of the lab, as each can be cut.
pub(super) fn targets() -> Vec<CompletionCandidate> {
    from_record(|record| record.lines.iter().map(|line| line.name.clone()).collect())
}

pub(super) fn cut() -> Vec<CompletionCandidate> {
    from_record(|record| record.faults.cut.iter().cloned().collect())
}

pub(super) fn sites() -> Vec<CompletionCandidate> {
    from_record(|record| record.grid.sites.iter().map(|site| site.name.clone()).collect())
}

/// The keys of a link's table, with `=` behind them: for both directions, and for each.
pub(super) fn link_keys() -> Vec<CompletionCandidate> {
    let keys = crate::grid::LINK_KEYS;
    let one_way = ["up", "down"].into_iter().flat_map(|way| keys.map(|key| format!("{way}.{key}=")));
    candidates(keys.map(|key| format!("{key}=")).into_iter().chain(one_way))
}

fn from_record(names: impl Fn(&Record) -> Vec<String>) -> Vec<CompletionCandidate> {
    let lab = lab_in(std::env::args_os());
    let record = LabDirectory::find(lab.as_deref()).map(|(_, record)| record);
    candidates(record.map(|record| names(&record)).unwrap_or_default())
}

/// The value of `--lab` in the words of the command line. `None` if it names no lab.
fn lab_in(words: impl IntoIterator<Item = OsString>) -> Option<String> {
    let mut words = words.into_iter().filter_map(|word| word.into_string().ok());
    while let Some(word) = words.next() {
        if word == "--lab" {
            return words.next();
        }
        if let Some(name) = word.strip_prefix("--lab=") {
            return Some(name.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_is_found_on_the_command_line() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(lab_in(words("isthmus -- isthmus lab cut --lab try al")), Some("try".to_owned()));
        assert_eq!(lab_in(words("isthmus lab cut --lab=try")), Some("try".to_owned()));
        assert_eq!(lab_in(words("isthmus lab cut al")), None);
    }
}
