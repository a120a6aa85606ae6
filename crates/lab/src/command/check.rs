//! `isthmus lab check`.

use std::process::ExitCode;

use super::output;
use crate::check::{Report, check};

pub(super) fn run(json: bool) -> anyhow::Result<ExitCode> {
    let report = check();
    output::print(match json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => text(&report),
    })?;
    Ok(if report.all_works() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report) -> String {
    let rights = if report.as_root { "as root" } else { "without root's rights, in user namespaces" };
    let answer = |problem: &Option<String>, yes: &str| match problem {
        None => yes.to_owned(),
        Some(problem) => format!("no: {problem}"),
    };
    let labs = answer(&report.labs, &format!("yes, {rights}"));
    let links = answer(&report.emulated_links, "yes");
    format!("labs: {labs}\nlinks with delay, rate or loss: {links}\n")
}
