//! `isthmus jobs`: the running jobs, and those of this user that wait on this machine.

#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_front::ask::Grid;
use isthmus_front::notes::{self, Note};
use isthmus_front::output::{message, print};
use isthmus_front::state::StateArgs;
use isthmus_front::without_broker;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{JobFilter, ListReply};
use serde::Serialize;

use crate::status::table;
use view::Command;

pub(crate) use view::{Job, name, short};

/// Digits of a whole id.
const WHOLE: usize = 32;

/// Show the running jobs, and those that wait for nodes.
///
/// It shows the jobs that you may see: your own, as a user of the grid; those with a node at your site,
/// with the identity of its gateway; all, as an administrator. It also shows what `isthmus run` and
/// `isthmus alloc` of yours on this machine wait for.
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Only these jobs, with their nodes and what joins their sites: ids, or how they begin.
    #[arg(value_name = "JOB", value_parser = id)]
    jobs: Vec<String>,
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output of `isthmus jobs --json`.
#[derive(Debug, Serialize)]
struct View {
    jobs: Vec<Job>,
    /// Commands of this user on this machine that have started no job yet, or keep nodes for several.
    commands: Vec<Command>,
    /// What a gateway told of itself if it answered, because it doesn't reach the broker.
    without_broker: Option<without_broker::View>,
}

/// Runs `isthmus jobs`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: JobsArgs) -> anyhow::Result<()> {
    let grid = Grid::find(&args.state).await?.or_without_broker();
    let reply = listed(&grid).await?;
    let notes = notes::all().unwrap_or_else(|error| {
        message(&format!("{error:#}: what waits on this machine isn't shown"));
        Vec::new()
    });
    let notes = notes.into_iter().map(|found| found.note).collect();
    let line = reply.without_broker.as_ref().map(without_broker::line);
    let view = View::new(&reply, notes).only(&args.jobs);
    // Without the broker, few jobs are known.
    let view = match &line {
        Some(line) => view.with_context(|| line.clone())?,
        None => view?,
    };
    let head = line.map(|line| format!("{line}\n")).unwrap_or_default();
    print(&view, &(head + &view.text(!args.jobs.is_empty())), args.json)
}

/// The running jobs that this user may see.
///
/// # Errors
/// If the grid can't be asked.
pub(crate) async fn listed(grid: &Grid) -> anyhow::Result<ListReply> {
    grid.list(Records::Jobs(JobFilter::default())).await
}

/// Reads an id, or how one begins.
///
/// # Errors
/// If no id begins so.
pub(crate) fn id(text: &str) -> Result<String, String> {
    let is_id = (1..=WHOLE).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("give 1 to {WHOLE} hexadecimal digits, as `isthmus jobs` shows them"))
    }
}

/// Which of these things has an id that begins so, or is so; `None` if none has. A thing may have
/// several ids.
///
/// # Errors
/// If several have.
pub(crate) fn find(beginning: &str, ids: &[Vec<&str>]) -> anyhow::Result<Option<usize>> {
    let begins = |ids: &&Vec<&str>| ids.iter().any(|id| id.starts_with(beginning));
    let found: Vec<&Vec<&str>> = ids.iter().filter(begins).collect();
    if let [_, _, ..] = found.as_slice() {
        let all = found.iter().filter_map(|ids| ids.first()).map(|id| (*id).to_owned()).collect::<Vec<_>>();
        bail!("several ids begin with {beginning}, so give more digits: {}", all.join(", "));
    }
    Ok(ids.iter().position(|ids| begins(&ids)))
}

impl View {
    fn new(reply: &ListReply, notes: Vec<Note>) -> Self {
        let jobs: Vec<Job> = reply.jobs.iter().map(Job::new).collect();
        let is_listed = |note: &Note| jobs.iter().any(|job| note.ids().contains(&job.id.as_str()));
        let commands = notes.into_iter().filter(|note| !is_listed(note)).map(Command::new).collect();
        let without_broker = reply.without_broker.as_ref().map(without_broker::View::new);
        Self { jobs, commands, without_broker }
    }

    /// Only what these words name; all if there are none.
    ///
    /// # Errors
    /// If one names nothing, or more than one.
    fn only(mut self, words: &[String]) -> anyhow::Result<Self> {
        if words.is_empty() {
            return Ok(self);
        }
        let mut chosen = BTreeSet::new();
        {
            let jobs = self.jobs.iter().map(|job| vec![job.id.as_str()]);
            let commands = self.commands.iter().map(|one| vec![one.id.as_str(), one.first_id.as_str()]);
            let ids: Vec<Vec<&str>> = jobs.chain(commands).collect();
            for word in words {
                let Some(index) = find(word, &ids)? else { bail!("{}", none(word)) };
                chosen.insert(index);
            }
        }
        // Commands come behind the jobs.
        let mut next = 0..;
        let mut is_chosen = || next.next().is_some_and(|index| chosen.contains(&index));
        self.jobs.retain(|_| is_chosen());
        self.commands.retain(|_| is_chosen());
        Ok(self)
    }

    /// A table of jobs, or with `details` each by itself; and lines for the commands.
    fn text(&self, details: bool) -> String {
        if self.jobs.is_empty() && self.commands.is_empty() {
            return "no job runs\n".to_owned();
        }
        let mut parts = Vec::new();
        if details {
            parts.extend(self.jobs.iter().map(Job::details));
        } else {
            parts.push(table(&view::HEADER, &view::NUMBERS, self.jobs.iter().map(Job::row)));
        }
        parts.push(self.commands.iter().map(Command::text).collect());
        let parts = parts.iter().map(|part| part.trim_start_matches('\n')).filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }
}

/// The message that no job has an id that begins so.
pub(crate) fn none(beginning: &str) -> String {
    format!(
        "no running job that you may see has an id that begins with {beginning}; `isthmus jobs` lists them"
    )
}
