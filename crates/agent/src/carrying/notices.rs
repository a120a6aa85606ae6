//! What processes of a job tell the agent: of themselves, of programs that they start, and of
//! other processes.

use std::path::PathBuf;

use isthmus_wire::proto::{self, Hindrance, job_news};
use isthmus_wire::shim::Request;
use tracing::info;

use crate::accepting::past;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::observing::starters;
use crate::starting::programs::{self, Uncarried};

/// Takes what a process tells of itself, or of another process.
pub(super) async fn noticed(node: &Node, job: &Job, process: u32, notice: Request) {
    match notice {
        Request::Starting { fd } => {
            let examining = tokio::task::spawn_blocking(move || examine(process, fd));
            if let Ok(Some(found)) = examining.await {
                info!(job = %job.id, program = found.program, reason = ?found.hindrance, "not carried");
                job.news.uncarried(node.uncarried(found));
            }
        }
        Request::Rank { rank } => job.ranks.introduced(process, rank, tell_live(node, job)),
        Request::Daemon { daemon } => job.starters.is_daemon(process, daemon),
        Request::Ended { pid, status } => {
            tell_end(job, job.ranks.ended(node.name(), pid, status, tell_live(node, job)));
            tell_killed(job, job.starters.ended(node.name(), pid, status));
        }
        Request::Collected { pid } => {
            job.ranks.collected(pid, tell_live(node, job));
        }
        Request::Unfinished => tell_end(job, job.ranks.unfinished(node.name(), process)),
        Request::Signalled { signal, sender } => {
            tell_killed(job, starters::signalled(node.name(), process, signal, sender));
        }
        Request::Keep { port } => {
            info!(job = %job.id, process, port, "a listener that can't fetch its connections");
            job.sockets.keep(port);
        }
        Request::Leave => past::report_process(node, job, process, Hindrance::Filter),
        Request::Connect { .. } | Request::Accept { .. } | Request::Whois { .. } | Request::Stand => {}
    }
}

/// Makes a function that tells the head whether any process here is a rank.
fn tell_live(node: &Node, job: &Job) -> impl FnOnce(bool) {
    move |any| {
        let node = node.name().to_string();
        job.news.send(job_news::Kind::RanksLive(proto::RanksLive { node, any }));
    }
}

/// Tells the head of a rank's end, unless the job is ending here: that ends its ranks.
fn tell_end(job: &Job, ended: Option<proto::RankEnded>) {
    if let Some(ended) = ended.filter(|_| !job.processes.is_closed()) {
        info!(job = %job.id, rank = ended.rank, signal = ended.signal, status = ended.status, "a rank has ended");
        job.news.rank_ended(ended);
    }
}

/// Tells the head of the end of a process that starts ranks, unless the job is ending here.
fn tell_killed(job: &Job, killed: Option<proto::CommandKilled>) {
    if let Some(killed) = killed.filter(|_| !job.processes.is_closed()) {
        info!(job = %job.id, command = killed.command, signal = killed.signal, "what starts ranks is ended");
        job.news.send(job_news::Kind::CommandKilled(killed));
    }
}

/// Examines a program that a process is about to start and has open.
fn examine(pid: u32, fd: u32) -> Option<Uncarried> {
    let held = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
    let path = std::fs::read_link(&held).ok()?;
    let hindrance = programs::hindrance(programs::open(&held).ok()?)?;
    Some(Uncarried { program: path.to_string_lossy().into_owned(), file: path, hindrance })
}
