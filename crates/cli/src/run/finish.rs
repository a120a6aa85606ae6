//! After the command has ended: the agents end the job, and the user gets its
//! account.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use isthmus_agent::starting::supervise::handle;
use isthmus_net::grpc;
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::{EndReply, JobNews, Ready};
use isthmus_wire::text;
use tonic::Streaming;

use super::account::{Account, Outcome};
use super::args::RunArgs;
use super::output::OutputFile;
use super::prepare::Prepared;
use super::watch::{Ended, Watch};
use super::{OWN_FAILURE, bypass, preflight, ranks, timing};
use crate::format::count;
use crate::output::{self, message};

/// How long the nodes may take to end the job.
const END_DEADLINE: Duration = Duration::from_secs(30);
/// The same if this node's agent has been silent for too long.
const SILENT_DEADLINE: Duration = Duration::from_secs(1);
/// How long to wait for news that were on their way when the job ended.
const LAST_NEWS: Duration = Duration::from_millis(50);

/// The files that a run writes at its end.
pub(super) struct Files<'a> {
    report: Option<OutputFile<'a>>,
    picture: Option<OutputFile<'a>>,
}

impl<'a> Files<'a> {
    /// Opens them, so that a file that can't be written ends the run before
    /// anything starts.
    ///
    /// # Errors
    /// If one can't be written.
    pub(super) fn create(args: &'a RunArgs) -> anyhow::Result<Self> {
        let picture = args.timing.as_ref().and_then(Option::as_deref);
        Ok(Self {
            report: args.report.as_deref().map(OutputFile::create).transpose()?,
            picture: picture.map(OutputFile::create).transpose()?,
        })
    }

    fn write(self, account: &Account, title: &str) -> anyhow::Result<()> {
        if let Some(file) = self.report {
            let json = serde_json::to_string_pretty(account).context("cannot write the account")?;
            file.write(&text::json(&(json + "\n")))?;
        }
        if let Some(file) = self.picture {
            file.write(&timing::draw(&account.timing, title))?;
        }
        Ok(())
    }
}

/// A job whose command has ended.
pub(super) struct Finished<'a> {
    pub args: &'a RunArgs,
    pub prepared: Prepared<'a>,
    pub ready: Ready,
    pub watch: Watch,
    pub ended: Ended,
    /// From the command's start to its end.
    pub took: Duration,
}

impl Finished<'_> {
    /// Ends the job on all nodes, and prints and writes its account. Returns the
    /// exit status.
    ///
    /// # Errors
    /// If a file can't be written.
    pub(super) async fn account(mut self, news: Streaming<JobNews>, files: Files<'_>) -> anyhow::Result<i32> {
        self.watch.command_ended();
        self.watch.work.end().await;
        let reply = end_job(&mut self.watch).await;
        let lost_late = last_news(&mut self.watch, news, &reply).await;
        let killed_here = handle::gone(&mut self.watch.work.outcome()).await;
        self.watch.warn(reply.uncarried.clone());
        self.watch.progress.clear();
        let status = status(self.ended, lost_late || self.watch.observed.daemon_killed);
        if status != 0 {
            self.watch.observed.failures.iter().for_each(|failure| message(failure));
        }
        let account = self.make_account(status, killed_here, &reply);
        self.print(&account);
        let nodes = count(self.prepared.nodes.len() as u64, "node");
        files.write(&account, &format!("Start of {} on {nodes}", self.args.command[0]))?;
        Ok(status)
    }

    fn make_account(&mut self, status: i32, killed_here: u32, reply: &EndReply) -> Account {
        let watch = &mut self.watch;
        let bypasses = bypass::bypasses(&watch.observed.links, &self.prepared.candidates.nodes);
        bypasses.iter().for_each(|bypass| message(&format!("warning: {}", bypass.text())));
        let outcome = Outcome {
            job: self.prepared.job.clone(),
            status,
            took: self.took,
            wire_up: watch.wire_up.result(),
            ranks: self.prepared.ranks(),
            placement: ranks::placement(&self.prepared.nodes, &reply.ranks, self.prepared.ranks()),
            nodes: &self.prepared.nodes,
            processes_killed: reply.processes_killed + killed_here,
            ended_by: watch.observed.cause.take().filter(|_| status != 0),
            bypasses,
            pauses: std::mem::take(&mut watch.observed.pauses),
        };
        Account::new(&outcome, &reply.joined, watch.stopwatch.times(Instant::now()))
    }

    fn print(&self, account: &Account) {
        if !self.args.quiet {
            let mut text = account.text(self.args.verbose);
            if self.args.verbose {
                text.push_str(&preflight::probes(&self.ready.reports));
            }
            output::write(&text);
        }
        if self.args.timing.is_some() {
            output::write(&account.timing.table());
        }
    }
}

/// Has the agents end the job; the answer is empty if they don't confirm it.
async fn end_job(watch: &mut Watch) -> EndReply {
    let is_silent = watch.pulses.is_lost();
    let limit = if is_silent { SILENT_DEADLINE } else { END_DEADLINE };
    match tokio::time::timeout(limit, watch.end()).await {
        Ok(Ok(Ok(reply))) => return reply,
        Ok(Ok(Err(status))) => {
            message(&format!("the job's end was not confirmed: {}", grpc::reason(&status)));
        }
        Ok(Err(_)) | Err(_) if is_silent => {
            message(
                "this node's agent confirms no end of the job; the other nodes' agents end it by themselves",
            );
        }
        Ok(Err(_)) | Err(_) => message(&format!("the job did not end everywhere within {END_DEADLINE:?}")),
    }
    EndReply::default()
}

/// Takes in the last news, which may explain why the command ended. Returns
/// whether a node was lost by them.
async fn last_news(watch: &mut Watch, mut news: Streaming<JobNews>, reply: &EndReply) -> bool {
    let mut lost = Vec::new();
    while let Ok(Ok(Some(message))) = tokio::time::timeout(LAST_NEWS, news.message()).await {
        lost.extend(watch.take_news(message.kind));
    }
    let nodes_lost = reply.nodes_lost.iter().cloned().map(Kind::NodeLost);
    lost.extend(nodes_lost.filter_map(|kind| watch.take_news(Some(kind))));
    let any_lost = !lost.is_empty();
    lost.into_iter().for_each(|reason| watch.lose(reason));
    for killed in &reply.commands_killed {
        let _ = watch.take_news(Some(Kind::CommandKilled(killed.clone())));
    }
    any_lost
}

/// The exit status of `isthmus run`.
fn status(ended: Ended, broken: bool) -> i32 {
    match ended {
        // Open MPI 5's launcher ends with 0 although it has noticed; others may not
        // have noticed.
        Ended::Lost(0) => OWN_FAILURE.into(),
        Ended::Command(0) if broken => OWN_FAILURE.into(),
        Ended::Command(status) | Ended::Lost(status) => status,
    }
}
