//! After the command has ended: the agents end the job, and the user gets its
//! account.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use isthmus_agent::starting::supervise::handle;
use isthmus_front::format::count;
use isthmus_front::notes;
use isthmus_front::output::{self, message};
use isthmus_front::output_file::OutputFile;
use isthmus_rpc::grpc;
use isthmus_wire::proto::{EndReply, JobNews, Ready};
use isthmus_wire::text;
use tonic::Streaming;

use super::account::{Account, Outcome};
use super::args::RunArgs;
use super::collectives::Collectives;
use super::given::Given;
use super::prepare::Prepared;
use super::signals::Received;
use super::watch::{Ended, Watch};
use super::{CANCELLED, OWN_FAILURE, bypass, is_cancel, preflight, ranks, timing};

/// How long the nodes may take to end the job.
const END_DEADLINE: Duration = Duration::from_secs(30);
/// How long the nodes may take to end the job if this node's agent has been silent for too long.
const SILENT_DEADLINE: Duration = Duration::from_secs(1);
/// How long to wait for news that were on their way when the job ended.
const LAST_NEWS: Duration = Duration::from_millis(50);
/// How long to wait for the news that the job ends that this run has joined.
const JOINED_END: Duration = Duration::from_secs(1);

/// The files that a run writes at its end.
pub(super) struct Files<'a> {
    report: Option<OutputFile<'a>>,
    timing: Option<OutputFile<'a>>,
    picture: Option<OutputFile<'a>>,
}

impl<'a> Files<'a> {
    /// Opens the files, so that a file that can't be written ends the run before anything starts.
    ///
    /// # Errors If a file can't be written.
    pub(super) fn create(args: &'a RunArgs) -> anyhow::Result<Self> {
        let timing = args.timing.as_ref().and_then(Option::as_deref);
        Ok(Self {
            report: args.report.as_deref().map(OutputFile::create).transpose()?,
            timing: timing.map(OutputFile::create).transpose()?,
            picture: args.picture.as_deref().map(OutputFile::create).transpose()?,
        })
    }

    fn write(self, account: &Account, title: &str) -> anyhow::Result<()> {
        if let Some(file) = self.report {
            let json = serde_json::to_string_pretty(account).context("cannot write the account")?;
            file.write(&text::json(&(json + "\n")))?;
        }
        if let Some(file) = self.timing {
            file.write(&timing::draw(&account.timing, &format!("Start of {title}")))?;
        }
        if let Some(file) = self.picture {
            file.write(&account.picture(title))?;
        }
        Ok(())
    }
}

/// A job whose command has ended.
pub(super) struct Finished<'a> {
    pub args: &'a RunArgs,
    /// What this process notes of itself.
    pub note: &'a notes::Own,
    /// What the batch job has given, in one.
    pub given: Option<&'a Given>,
    pub prepared: Prepared<'a>,
    pub ready: Ready,
    pub watch: Watch,
    pub ended: Ended,
    /// Time from the command's start to its end.
    pub took: Duration,
}

/// How a run has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conclusion {
    /// The exit status.
    pub status: i32,
    /// Whether a signal to `isthmus run` has ended it.
    pub was_interrupted: bool,
}

impl Finished<'_> {
    /// Ends the job on all nodes, and prints and writes its account.
    ///
    /// # Errors
    /// If a file can't be written.
    pub(super) async fn account(
        mut self,
        mut news: Streaming<JobNews>,
        files: Files<'_>,
    ) -> anyhow::Result<Conclusion> {
        let command = self.args.command.first().map(String::as_str).unwrap_or_default();
        self.watch.command_ended(command.rsplit('/').next().unwrap_or(command));
        self.watch.work.end().await;
        let is_interrupted = self.watch.culprit(self.took).is_some_and(|culprit| culprit.signal.is_some());
        if self.args.join.is_some() && status(self.ended, false) != 0 && !is_interrupted {
            wait_for_joined_end(&mut self.watch, &mut news).await;
        }
        let (reply, unconfirmed) = end_job(&mut self.watch).await;
        let lost_late = last_news(&mut self.watch, news, &reply).await;
        let killed_here = handle::gone(&mut self.watch.work.outcome()).await;
        self.watch.progress.clear();
        let status = status(
            self.ended,
            lost_late || self.watch.observed.daemon_killed || self.watch.observed.agent_gone,
        );
        // That is no failure of the run: its work is over.
        let joined_ended = self.watch.observed.joined_ended.take();
        let status = if joined_ended.is_some() { 0 } else { status };
        let culprit = self.watch.culprit(self.took).filter(|_| status != 0);
        let signal = culprit.as_ref().and_then(|culprit| culprit.signal);
        let was_interrupted = signal.is_some();
        let cancelled = signal.filter(|signal| is_cancel(*signal, self.note)).map(|_| CANCELLED.to_owned());
        // A launcher's own status says nothing of the signal. The commands of --each decide.
        let status = signal.filter(|_| !self.args.each).map_or(status, Received::status);
        // Slurm ends the agents together with `isthmus run`: all else follows from that.
        let slurm = match self.given.filter(|_| status != 0 && cancelled.is_none()) {
            Some(given) => given.end_of_job(was_interrupted).await,
            None => None,
        };
        let joined_ended =
            joined_ended.map(|job| format!("job {job} has ended, and so does this run, which had joined it"));
        let ended_by = cancelled.or(joined_ended).or(slurm).or(culprit.map(|culprit| culprit.words));
        // This is printed before all else on the job's end.
        if let Some(culprit) = &ended_by {
            message(culprit);
        }
        if let Some(text) = unconfirmed {
            message(&text);
        }
        self.watch.warn(reply.uncarried.clone());
        if status != 0 {
            let failures = self.watch.observed.failures.iter();
            failures
                .filter(|failure| ended_by.as_ref() != Some(failure))
                .for_each(|failure| message(failure));
        }
        let account = self.make_account(status, killed_here, &reply, ended_by);
        self.print(&account);
        let nodes = count(self.prepared.nodes.len() as u64, "node");
        files.write(&account, &format!("{} on {nodes}", self.args.command[0]))?;
        Ok(Conclusion { status, was_interrupted })
    }

    fn make_account(
        &mut self,
        status: i32,
        killed_here: u32,
        reply: &EndReply,
        ended_by: Option<String>,
    ) -> Account {
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
            is_placed: self.prepared.is_placed(),
            nodes: &self.prepared.nodes,
            processes_killed: reply.processes_killed + killed_here,
            ended_by,
            bypasses,
            pauses: std::mem::take(&mut watch.observed.pauses),
            collectives: reply.collectives.as_ref().map(Collectives::new),
            groups: self.args.placed.got(),
            batch_jobs: self.given.map(Given::costs).unwrap_or_default(),
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

/// Waits for the news that the job ends that this run has joined. Workers whose job ends may fail by that,
/// and that news comes a little later.
async fn wait_for_joined_end(watch: &mut Watch, news: &mut Streaming<JobNews>) {
    let told = async {
        while watch.observed.joined_ended.is_none()
            && let Ok(Some(message)) = news.message().await
        {
            watch.take_news(message.kind);
        }
    };
    let _ = tokio::time::timeout(JOINED_END, told).await;
}

/// Has the agents end the job. If they don't confirm that, the answer is empty, and the text tells
/// the user so.
async fn end_job(watch: &mut Watch) -> (EndReply, Option<String>) {
    let is_silent = watch.pulses.is_lost();
    let limit = if is_silent { SILENT_DEADLINE } else { END_DEADLINE };
    let text = match tokio::time::timeout(limit, watch.end()).await {
        Ok(Ok(Ok(reply))) => return (reply, None),
        Ok(Ok(Err(status))) => {
            if grpc::connection_broke(&status) {
                watch.agent_gone();
            }
            format!("the job's end was not confirmed: {}", grpc::reason(&status))
        }
        Ok(Err(_)) | Err(_) => {
            format!("the job did not end everywhere within {} s", END_DEADLINE.as_secs())
        }
    };
    let text = match is_silent || watch.observed.agent_gone {
        true => "this node's agent confirms no end of the job; the other nodes' agents end it by themselves"
            .to_owned(),
        false => text,
    };
    (EndReply::default(), Some(text))
}

/// Takes in the last news, which may explain why the command ended. Returns whether they tell that
/// a node was lost.
async fn last_news(watch: &mut Watch, mut news: Streaming<JobNews>, reply: &EndReply) -> bool {
    let mut any_lost = false;
    while let Ok(Ok(Some(message))) = tokio::time::timeout(LAST_NEWS, news.message()).await {
        any_lost |= watch.take_news(message.kind);
    }
    // News of the answer that have arrived before count once.
    for message in &reply.news {
        watch.take_news(message.kind.clone());
    }
    for lost in &reply.nodes_lost {
        any_lost |= watch.lost_late(lost.clone());
    }
    any_lost
}

/// The exit status of `isthmus run`, by how the command ended. `broken` says that a node, a
/// launcher's daemon or this node's agent was lost.
fn status(ended: Ended, broken: bool) -> i32 {
    match ended {
        // Open MPI 5's launcher ends with 0 although it has noticed; others may not
        // have noticed.
        Ended::Lost(0) => OWN_FAILURE.into(),
        Ended::Command(0) if broken => OWN_FAILURE.into(),
        Ended::Command(status) | Ended::Lost(status) => status,
    }
}
