//! `isthmus cancel`: ends jobs of this user that were started on this machine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use console::Term;
use isthmus_front::ask::Grid;
use isthmus_front::notes::{self, Found};
use isthmus_front::output::{one_line, print};
use isthmus_front::state::StateArgs;
use isthmus_front::without_broker;
use isthmus_wire::proto::JobReport;
use nix::sys::signal::Signal;

use crate::jobs;

/// How long the commands may take to end: an end over several sites has 30 s, and the end of pilots as
/// well.
const END: Duration = Duration::from_secs(60);
/// How long they may take before the terminal shows what is waited for.
const LONG: Duration = Duration::from_secs(1);
/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(200);

/// End jobs of yours that were started on this machine.
///
/// Each gets SIGTERM, and `isthmus run` ends the job on all its nodes. One that still waits for nodes
/// gives back what it has, and leaves nothing in a queue. `isthmus alloc` ends in the same way.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Ids of jobs, or how they begin, as `isthmus jobs` shows them.
    #[arg(
        value_name = "JOB", value_parser = jobs::id, required_unless_present = "all",
        conflicts_with = "all"
    )]
    jobs: Vec<String>,
    /// End all jobs of yours that were started on this machine.
    #[arg(long)]
    all: bool,
    /// Kill `isthmus run`: the agents then end the job by themselves, and there is no account.
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs `isthmus cancel`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: CancelArgs) -> anyhow::Result<()> {
    let all = notes::all()?;
    let chosen: BTreeSet<usize> =
        if args.all { (0..all.len()).collect() } else { chosen(&all, &args).await? };
    let chosen: Vec<&Found> = chosen.into_iter().filter_map(|index| all.get(index)).collect();
    if chosen.is_empty() {
        return print(&(), "no job of yours that was started on this machine runs\n", false);
    }
    end(chosen, args.now)
}

/// Which of the commands on this machine are named. Nothing is ended before all words are understood.
///
/// # Errors
/// If a word names none of them, or more than one.
async fn chosen(all: &[Found], args: &CancelArgs) -> anyhow::Result<BTreeSet<usize>> {
    let ids: Vec<Vec<&str>> = all.iter().map(|found| found.note.ids()).collect();
    let mut chosen = BTreeSet::new();
    for word in &args.jobs {
        match jobs::find(word, &ids)? {
            Some(index) => chosen.insert(index),
            None => bail!("{}", elsewhere(word, &args.state).await?),
        };
    }
    Ok(chosen)
}

/// Sends the commands a signal, and waits until they have ended.
///
/// # Errors
/// If one can't be signalled, or goes on.
fn end(mut left: Vec<&Found>, now: bool) -> anyhow::Result<()> {
    let (signal, done) = match now {
        true => (Signal::SIGKILL, "killed; the agents end what is left of it"),
        false => (Signal::SIGTERM, "has ended"),
    };
    for found in &left {
        match found.cancel(signal) {
            Err(error) if found.is_alive() => {
                return Err(error).with_context(|| format!("cannot end {}", name(found)));
            }
            // If it couldn't be sent, the command has ended meanwhile.
            Ok(()) | Err(_) => {}
        }
    }
    let (began, terminal) = (Instant::now(), Term::stderr());
    loop {
        let (ended, goes_on): (Vec<_>, Vec<_>) =
            left.into_iter().map(|found| (found, found.wait_ended(Duration::ZERO))).partition(has_ended);
        if !ended.is_empty() {
            show(&terminal, "");
        }
        for (found, _) in ended {
            print(&(), &format!("{} {done}\n", name(found)), false)?;
        }
        left = goes_on.into_iter().map(|(found, _)| found).collect();
        let Some(next) = left.first() else { return Ok(()) };
        let took = began.elapsed();
        if took >= END {
            show(&terminal, "");
            bail!("{}", goes_on_text(&left, took, now));
        }
        if took >= LONG {
            let seconds = took.as_secs();
            show(&terminal, &format!("waiting for the end of {} ({seconds} s)", names(&left)));
        }
        next.wait_ended(LOOK).context("cannot wait for a process")?;
    }
}

fn has_ended((_, waited): &(&Found, std::io::Result<bool>)) -> bool {
    // What can't be waited for is told at the next wait.
    matches!(waited, Ok(true))
}

/// The message that commands go on.
fn goes_on_text(left: &[&Found], took: Duration, now: bool) -> String {
    let (names, seconds) = (names(left), took.as_secs());
    if now {
        return format!(
            "SIGKILL hasn't ended {names} within {seconds} s: the kernel waits for something, such as a disk"
        );
    }
    let ids = left.iter().map(|found| jobs::short(&found.note.id)).collect::<Vec<_>>().join(" ");
    format!("not ended within {seconds} s: {names}. The end goes on; `isthmus cancel --now {ids}` kills")
}

fn names(left: &[&Found]) -> String {
    left.iter().map(|found| name(found)).collect::<Vec<_>>().join(", ")
}

fn name(found: &Found) -> String {
    one_line(&jobs::name(found.note.kind, &found.note.id))
}

/// Shows a text on a terminal, in place of the one before.
fn show(terminal: &Term, text: &str) {
    if terminal.is_term() {
        // The terminal may be gone.
        let _ = terminal.clear_line().and_then(|()| terminal.write_str(text));
    }
}

/// Why a job can't be ended here, of which no command of this user is on this machine.
///
/// # Errors
/// If the grid can't be asked, or several ids begin so.
async fn elsewhere(word: &str, state: &StateArgs) -> anyhow::Result<String> {
    let none =
        || format!("no job of yours that was started on this machine has an id that begins with {word}");
    let grid = Grid::find(state).await.with_context(none)?.or_without_broker();
    let reply = jobs::listed(&grid).await.with_context(none)?;
    let ids: Vec<Vec<&str>> = reply.jobs.iter().map(|job| vec![job.job.as_str()]).collect();
    let Some(job) = jobs::find(word, &ids)?.and_then(|index| reply.jobs.get(index)) else {
        // Without the broker, few jobs are known.
        let away = reply.without_broker.as_ref().map(|answer| format!(" ({})", without_broker::line(answer)));
        return Ok(jobs::none(word) + &away.unwrap_or_default());
    };
    Ok(refusal(job, grid.own_node().await?.as_ref()))
}

/// Why a running job isn't ended here. `own` is the owner and the name of the node that asks, if a
/// node does.
fn refusal(job: &JobReport, own: Option<&(String, String)>) -> String {
    let (id, owner) = (jobs::short(&job.job), &job.owner);
    let head = job.nodes.first().map_or("an unknown node", String::as_str);
    match own {
        Some((user, _)) if user != owner => format!("job {id} is {owner}'s: only {owner} can cancel it"),
        Some((_, node)) if node == head => format!(
            "job {id} was started on this node, but by another user of the machine, with another HOME, or without a \
             place for its note: whoever has started it can cancel it, or kill its `isthmus run`"
        ),
        Some(_) => format!("job {id} was started on {head}: `isthmus cancel {id}` there ends it"),
        None => {
            format!(
                "job {id} is {owner}'s and was started on {head}: {owner} can `isthmus cancel {id}` there"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: CancelArgs,
    }

    #[test]
    fn jobs_are_named_or_all_are_meant() {
        for (line, want) in [
            ("3f2A 11", Ok((2, false))),
            ("--now 3f2a", Ok((1, false))),
            ("--all", Ok((0, true))),
            ("", Err("JOB")),
            ("--all 3f2a", Err("--all")),
            ("n1.alpha", Err("hexadecimal digits")),
        ] {
            let words = std::iter::once("cancel").chain(line.split_whitespace());
            match (Cli::try_parse_from(words), want) {
                (Ok(cli), Ok(want)) => assert_eq!((cli.args.jobs.len(), cli.args.all), want, "{line}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{line}: {error}"),
                (got, _) => panic!("{line}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_job_that_is_not_ended_here_is_refused() {
        let job = JobReport {
            job: "3f2a9c1e".repeat(4),
            owner: "ada".to_owned(),
            nodes: vec!["n1.alpha".to_owned(), "n1.beta".to_owned()],
            ..JobReport::default()
        };
        let node = |owner: &str, name: &str| Some((owner.to_owned(), name.to_owned()));
        for (own, want) in [
            (node("ada", "n1.beta"), "was started on n1.alpha: `isthmus cancel 3f2a9c1e` there ends it"),
            (node("ada", "n1.alpha"), "was started on this node, but by another user"),
            (node("bob", "n1.alpha"), "is ada's: only ada can cancel it"),
            (None, "is ada's and was started on n1.alpha: ada can `isthmus cancel 3f2a9c1e` there"),
        ] {
            let said = refusal(&job, own.as_ref());
            assert!(said.starts_with("job 3f2a9c1e ") && said.contains(want), "{said}");
        }
    }
}
