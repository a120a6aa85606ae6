//! `isthmus run --stage` and `--fetch`: files are brought to nodes that share no file system, and
//! back.
//!
//! Helpers on the nodes do this in a job of their own, before the program's job and after it. Their
//! connections go the ways that the program's go: relayed, punched, encrypted, and they outlive cuts.

mod args;
mod helper;
mod helpers;
mod keys;
mod manifest;
mod serve;
mod spread;
mod take;
mod target;
mod task;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use isthmus_front::format::{bytes, count, site};
use isthmus_front::local;
use isthmus_front::output::one_line;
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::{EndRequest, JobNews, JobNode};
use isthmus_wire::text::first;
use tokio::time::timeout;
use tonic::Streaming;

use helpers::Helpers;
use manifest::Manifest;
use spread::Spread;
use task::{Offers, Said, Work};

use crate::args::RunArgs;
use crate::placing::Placed;
use crate::prepare::Wanted;
use crate::progress::Progress;
use crate::pulses;
use crate::signals::{Interrupted, Signals};
use crate::timing::Stopwatch;
use crate::{Held, hold_soon};

pub(crate) use args::{Paths, StagingArgs};
pub use helper::main;

/// How long files may get nowhere, beside the time that a job waits for a site that is cut off.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the agents may take to end the helpers' job.
const END_DEADLINE: Duration = Duration::from_secs(30);
/// Most names that a line has.
const NAMES_MAX: usize = 4;

/// Brings what is at these paths to all nodes. Returns the command line of a run on these nodes: one
/// that attaches meanwhile has nothing of that.
///
/// # Errors
/// A node can't take part or write it, or a signal comes.
pub(crate) async fn bring(
    wanted: Wanted<'_>,
    paths: &[String],
    signals: &mut Signals,
    progress: &mut Progress,
) -> anyhow::Result<RunArgs> {
    let args = wanted.args;
    let began = Instant::now();
    let mut names = Vec::new();
    let brought = in_job(wanted, signals, progress, async |helpers, nodes, progress| {
        let brought = spread(helpers, nodes, paths, progress).await?;
        // The head takes part in any case. If it isn't named, no program runs there.
        names = nodes.iter().filter(|node| node.slots > 0).map(|node| node.name.clone()).collect();
        Ok(brought.text(nodes, began.elapsed()))
    });
    let (line, _) = brought.await.context("files can't be staged")?;
    tell(progress, args.quiet, &line);
    Ok(on(args, wanted.given.is_some(), names))
}

/// The command line with the nodes of these names. Nodes that batch jobs give are named elsewhere.
fn on(args: &RunArgs, are_given: bool, names: Vec<String>) -> RunArgs {
    if are_given {
        return args.clone();
    }
    // Of sites as a whole, those count that are up.
    let all = !args.nodes.is_empty() && args.nodes.iter().all(|name| name.contains('.'));
    let min_nodes = args.min_nodes.or((!all).then_some(1));
    RunArgs { nodes: names, min_nodes, ..args.clone() }
}

/// Brings what is at these paths on the nodes back, to paths that end with their sites' names.
///
/// # Errors
/// As [`bring`]. What can be fetched is fetched in any case.
pub(crate) async fn fetch(
    wanted: Wanted<'_>,
    paths: &[String],
    signals: &mut Signals,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let quiet = wanted.args.quiet;
    // A node that is gone by now keeps no other's files back.
    let args = RunArgs { min_nodes: Some(1), ..wanted.args.clone() };
    let wanted = Wanted { args: &args, ..wanted };
    let mut failures = Vec::new();
    let (line, without) = in_job(wanted, signals, progress, async |helpers, nodes, progress| {
        collect(helpers, nodes, paths, (progress, &mut failures)).await
    })
    .await?;
    if let Some(without) = without {
        progress.message(&format!("to fetch files, {without}"));
    }
    tell(progress, quiet, &line);
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

fn tell(progress: &mut Progress, quiet: bool, line: &str) {
    if !quiet {
        progress.message(line);
    }
    progress.clear();
}

/// Has helpers work in a job of their own on the nodes with slots and on the head, which comes first.
/// Returns the outcome, and a line about nodes that the job goes without if there are any.
async fn in_job(
    wanted: Wanted<'_>,
    signals: &mut Signals,
    progress: &mut Progress,
    work: impl AsyncFnOnce(&mut Helpers<'_>, &[JobNode], &mut Progress) -> anyhow::Result<String>,
) -> anyhow::Result<(String, Option<String>)> {
    let args = RunArgs {
        each: true,
        no_check: true,
        no_coll: true,
        min_memory: None,
        placed: Placed::default(),
        ..wanted.args.clone()
    };
    let wanted = Wanted { args: &args, launcher: None, is_staging: true, ..wanted };
    let Held { prepared, mut news, .. } =
        hold_soon(wanted, signals, (progress, &mut Stopwatch::start())).await?;
    let (head, others) = prepared.nodes.split_at(1.min(prepared.nodes.len()));
    let nodes: Vec<JobNode> =
        head.iter().chain(others.iter().filter(|node| node.slots > 0)).cloned().collect();
    let mut agent = prepared.agent.clone();
    let mut helpers =
        Helpers::new(agent.clone(), (&prepared.job, &nodes), args.outlive.saturating_add(PATIENCE));
    let result = tokio::select! {
        result = work(&mut helpers, &nodes, progress) => result,
        lost = lost(&mut news, &nodes) => Err(lost),
        signal = signals.next() => Err(Interrupted(signal).into()),
    };
    if result.is_ok() {
        helpers.end().await;
    }
    // The agents end the job in any case, as its call ends now.
    let _ = timeout(END_DEADLINE, agent.end(EndRequest { job: prepared.job.clone() })).await;
    Ok((result?, prepared.left_out()))
}

/// Returns why the job can't go on, once it can't.
async fn lost(news: &mut Streaming<JobNews>, nodes: &[JobNode]) -> anyhow::Error {
    let head = nodes.first().map(|head| head.name.as_str()).unwrap_or_default();
    loop {
        let text = match news.message().await {
            Ok(Some(JobNews { kind: Some(Kind::NodeLost(lost)) })) => {
                format!("{} is lost: {}", lost.node, lost.reason)
            }
            Ok(Some(JobNews { kind: Some(Kind::CutOff(cut)) })) => pulses::cut_off(&cut, head),
            Ok(Some(JobNews { kind: Some(Kind::ConnectFailed(failed)) })) if failed.given_up => {
                format!("{} could not connect to {}: {}", failed.initiator, failed.acceptor, failed.reason)
            }
            Ok(Some(_)) => continue,
            Ok(None) => "the agent has ended the job that stages files".to_owned(),
            Err(status) => return local::failure(status),
        };
        return anyhow::anyhow!("{}", one_line(&text));
    }
}

/// What was brought.
struct Brought {
    /// What the head has.
    of_head: Offers,
    /// Indices of nodes, with what they wrote.
    others: Vec<(usize, Offers)>,
}

async fn spread(
    helpers: &mut Helpers<'_>,
    nodes: &[JobNode],
    paths: &[String],
    progress: &mut Progress,
) -> anyhow::Result<Brought> {
    helpers.start(0, Work::Offer { paths: paths.to_vec(), may_lack: false })?;
    progress.show("reading the files to be staged");
    let (_, of_head) = helpers.offers(|_, said| show_read(progress, said)).await?;
    let mut ports = vec![of_head.port; nodes.len()];
    let mut spread = Spread::new(nodes.iter().map(|node| site(&node.name)));
    let mut others = Vec::new();
    progress.show(&format!("staging {}", bytes(of_head.bytes)));
    loop {
        while let Some((from, to)) = spread.next() {
            let from = helpers.address(from, ports[from]);
            helpers.start(to, Work::Take { from, paths: paths.to_vec(), suffix: String::new() })?;
        }
        if spread.is_over() {
            return Ok(Brought { of_head, others });
        }
        let (node, offers) = helpers.offers(|node, said| show_taken(progress, nodes, node, said)).await?;
        ports[node] = offers.port;
        spread.has(node);
        others.push((node, offers));
    }
}

fn show_read(progress: &mut Progress, said: &Said) {
    if let Said::Read { bytes: so_far } = said {
        progress.show(&format!("reading the files to be staged: {}", bytes(*so_far)));
    }
}

fn show_taken(progress: &mut Progress, nodes: &[JobNode], node: usize, said: &Said) {
    if let Said::Taken { bytes: so_far, of } = said {
        let (so_far, of, node) = (bytes(*so_far), bytes(*of), &nodes[node].name);
        progress.show(&format!("staging: {so_far} of {of} are at {node}"));
    }
}

impl Brought {
    /// What the user reads.
    fn text(&self, nodes: &[JobNode], took: Duration) -> String {
        let files = format!("{} ({})", count(self.of_head.files, "file"), bytes(self.of_head.bytes));
        let wrote: Vec<_> = self.others.iter().filter(|(_, offers)| offers.written > 0).collect();
        if self.others.is_empty() {
            return format!("{files} to be staged, and no other node");
        }
        if wrote.is_empty() {
            return format!("the nodes have the {files} to be staged already");
        }
        let names: BTreeSet<&str> = wrote.iter().map(|(node, _)| nodes[*node].name.as_str()).collect();
        let received = wrote.iter().fold(0, |sum: u64, (_, offers)| sum.saturating_add(offers.received));
        format!(
            "staged {files} at {}: {} sent in {:.1} s",
            first(names.iter(), 0, NAMES_MAX),
            bytes(received),
            took.as_secs_f64()
        )
    }
}

/// Fetches what the nodes have. What can't be fetched is noted in `failures`.
async fn collect(
    helpers: &mut Helpers<'_>,
    nodes: &[JobNode],
    paths: &[String],
    (progress, failures): (&mut Progress, &mut Vec<String>),
) -> anyhow::Result<String> {
    progress.show("looking for the files to be fetched");
    for node in 0..nodes.len() {
        helpers.start(node, Work::Offer { paths: paths.to_vec(), may_lack: true })?;
    }
    let mut offers: Vec<Option<Offers>> = vec![None; nodes.len()];
    let mut open: BTreeSet<usize> = (0..nodes.len()).collect();
    while !open.is_empty() {
        let (node, said) = helpers.next().await?;
        match said {
            Ok(Said::Offers(offered)) => offers[node] = Some(offered),
            Ok(_) => continue,
            Err(error) => failures.push(format!("{error:#}")),
        }
        open.remove(&node);
    }
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let mut fetched = Vec::new();
    for (node, offered, suffix) in picks(&names, &offers) {
        progress.show(&format!("fetching {} from {}", bytes(offered.bytes), names[node]));
        let from = helpers.address(node, offered.port);
        helpers.start(0, Work::Take { from, paths: paths.to_vec(), suffix: suffix.clone() })?;
        let taken = loop {
            match helpers.next().await? {
                // Only the head takes files. Another node may say anything.
                (0, Ok(Said::Offers(taken))) => break Ok(taken),
                (0, Ok(said)) => show_fetched(progress, names[node], &said),
                (at, Err(error)) if at == 0 || at == node => break Err(error),
                _ => {}
            }
        };
        match taken {
            Ok(taken) => {
                let to =
                    paths.iter().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned() + &suffix);
                let (to, files) = (first(to, 0, NAMES_MAX), count(taken.files, "file"));
                fetched.push(format!("{to} ({files}, {})", bytes(taken.bytes)));
            }
            Err(error) => failures.push(format!("from {}: {error:#}", names[node])),
        }
    }
    Ok(match fetched.is_empty() {
        true => format!("nothing fetched: no other node has more of {}", first(paths.iter(), 0, NAMES_MAX)),
        false => format!("fetched {}", first(fetched.iter(), 0, NAMES_MAX)),
    })
}

fn show_fetched(progress: &mut Progress, from: &str, said: &Said) {
    if let Said::Taken { bytes: so_far, of } = said {
        progress.show(&format!("fetching from {from}: {} of {}", bytes(*so_far), bytes(*of)));
    }
}

/// The nodes whose files the head takes, each with what it offers and how the paths end there. Node 0
/// is the head. Files that it has itself aren't taken, nor what another node of the same site has as
/// well, as nodes that share a file system do. Paths end with the site, or if several of its nodes have
/// different files, with the node.
fn picks<'a>(names: &[&str], offers: &'a [Option<Offers>]) -> Vec<(usize, &'a Offers, String)> {
    let mut seen = BTreeSet::new();
    let own = offers.first().and_then(Option::as_ref).map(|own| own.digest);
    let mut picked = Vec::new();
    for (index, (name, offer)) in names.iter().zip(offers).enumerate().skip(1) {
        let Some(offer) = offer.as_ref().filter(|offer| offer.entries > 0) else { continue };
        if Some(offer.digest) != own && seen.insert((site(name), offer.digest)) {
            picked.push((index, *name, offer));
        }
    }
    let are_several = |of: &str| picked.iter().filter(|(_, name, _)| site(name) == of).count() > 1;
    let with_suffix = |(index, name, offer): &(usize, &str, &'a Offers)| {
        let end = if are_several(site(name)) { name } else { site(name) };
        (*index, *offer, format!(".{end}"))
    };
    picked.iter().map(with_suffix).collect()
}

/// Where a list of files that a node has sent for these paths is written, for paths that end with
/// `suffix`. `None` if the list isn't accepted.
#[doc(hidden)]
pub fn paths(list: &[u8], roots: &[String], suffix: &str) -> Option<Vec<PathBuf>> {
    let list: Manifest = serde_json::from_slice(list).ok()?;
    list.check(roots).ok()?;
    Some(list.entries.iter().map(|entry| list.path(entry, suffix)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn the_command_runs_where_the_files_are() {
        for (line, are_given, want) in [
            ("true", false, (&["n1.a", "n1.b"][..], Some(1))),
            ("--nodes b true", false, (&["n1.a", "n1.b"], Some(1))),
            ("--nodes b --min-nodes 2 true", false, (&["n1.a", "n1.b"], Some(2))),
            ("--nodes n1.a,n1.b true", false, (&["n1.a", "n1.b"], None)),
            ("--nodes n1.c true", true, (&["n1.c"], None)),
        ] {
            let words = std::iter::once("run").chain(line.split_whitespace());
            let args = <Cli as clap::Parser>::try_parse_from(words).unwrap().args;
            let got = on(&args, are_given, vec!["n1.a".to_owned(), "n1.b".to_owned()]);
            let names: Vec<&str> = got.nodes.iter().map(String::as_str).collect();
            assert_eq!((names.as_slice(), got.min_nodes), want, "{line}");
        }
    }

    fn offers(digest: u8, files: u64) -> Offers {
        let digest = [digest; 32];
        let bytes = 1000 * files;
        Offers { port: 1, digest, entries: files, files, bytes, written: files, received: bytes }
    }

    #[test]
    fn files_that_differ_are_fetched() {
        let names = ["n1.a", "n2.a", "n1.b", "n2.b", "n3.b", "n1.c"];
        for (name, found, want) in [
            ("nobody has any", [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)], vec![]),
            ("all have those of the head", [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)], vec![]),
            (
                "shared in each site",
                [(1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (3, 1)],
                vec![(2, ".b"), (5, ".c")],
            ),
            (
                "each its own",
                [(1, 1), (2, 1), (3, 1), (4, 1), (3, 1), (3, 1)],
                vec![(1, ".a"), (2, ".n1.b"), (3, ".n2.b"), (5, ".c")],
            ),
        ] {
            let found = found.map(|(digest, files)| Some(offers(digest, files)));
            let picked = picks(&names, &found);
            let picked: Vec<_> = picked.iter().map(|(node, _, suffix)| (*node, suffix.as_str())).collect();
            assert_eq!(picked, want, "{name}");
        }
        let failed = [None, Some(offers(1, 1)), None, Some(offers(1, 1)), None, None];
        let picked = picks(&names, &failed);
        let picked: Vec<_> = picked.iter().map(|(node, _, suffix)| (*node, suffix.as_str())).collect();
        assert_eq!(picked, [(1, ".a"), (3, ".b")], "some have failed");
    }

    #[test]
    fn what_was_staged_is_told() {
        let nodes =
            ["n1.a", "n1.b"].map(|name| JobNode { name: name.to_owned(), virtual_address: 0, slots: 1 });
        for (others, want) in [
            (vec![], "2 files (2.0 kB) to be staged, and no other node"),
            (vec![(1, offers(1, 0))], "the nodes have the 2 files (2.0 kB) to be staged already"),
            (vec![(1, offers(1, 2))], "staged 2 files (2.0 kB) at n1.b: 2.0 kB sent in 1.5 s"),
        ] {
            let brought = Brought { of_head: offers(1, 2), others };
            assert_eq!(brought.text(&nodes, Duration::from_millis(1500)), want);
        }
    }
}
