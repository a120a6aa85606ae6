//! A node's news for a job's head.

use std::sync::Mutex;

use isthmus_net::exhausted::Exhausted;
use isthmus_net::lock;
use isthmus_wire::proto::{CommandKilled, NodeShort, RankEnded, UncarriedProgram, job_news};
use tokio::sync::mpsc;

/// News waiting to be sent to the head; more are dropped.
const NEWS_QUEUE: usize = 1024;
/// Ranks whose bad end is told: the first is the one that counts.
const RANKS_TOLD: usize = 16;

/// The sending end, and the news that the job's account repeats at the end.
#[derive(Debug)]
pub(crate) struct News {
    news_tx: mpsc::Sender<job_news::Kind>,
    uncarried: Mutex<Vec<UncarriedProgram>>,
    killed: Mutex<Vec<CommandKilled>>,
    ranks_ended: Mutex<Vec<RankEnded>>,
}

/// The receiving end, for the task that sends them to the head.
pub(crate) type NewsReceiver = mpsc::Receiver<job_news::Kind>;

impl News {
    pub(crate) fn channel() -> (Self, NewsReceiver) {
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        let (uncarried, killed, ranks_ended) = (Mutex::default(), Mutex::default(), Mutex::default());
        (Self { news_tx, uncarried, killed, ranks_ended }, news_rx)
    }

    pub(crate) fn send(&self, news: job_news::Kind) {
        // A full queue has enough of the same kind.
        let _ = self.news_tx.try_send(news);
    }

    /// Reports that a resource has run out here.
    pub(crate) fn short(&self, node: &str, exhausted: Exhausted) {
        let short = NodeShort { node: node.to_owned(), reason: exhausted.to_string() };
        self.send(job_news::Kind::NodeShort(short));
    }

    /// Reports that a process here starts a program that can't be carried, once for
    /// each program.
    pub(crate) fn uncarried(&self, program: UncarriedProgram) {
        let mut started = lock(&self.uncarried);
        if started.len() < NEWS_QUEUE && !started.contains(&program) {
            started.push(program.clone());
            self.send(job_news::Kind::Uncarried(program));
        }
    }

    /// Reports that a signal of another party ended a command here.
    pub(crate) fn killed(&self, node: &str, (signal, command): (i32, String)) {
        let killed = CommandKilled { node: node.to_owned(), command, signal };
        lock(&self.killed).push(killed.clone());
        self.send(job_news::Kind::CommandKilled(killed));
    }

    /// Reports that a rank ended badly here.
    pub(crate) fn rank_ended(&self, ended: RankEnded) {
        let mut told = lock(&self.ranks_ended);
        if told.len() < RANKS_TOLD {
            told.push(ended.clone());
            self.send(job_news::Kind::RankEnded(ended));
        }
    }

    /// The ranks that ended badly here.
    pub(crate) fn ranks_ended(&self) -> Vec<RankEnded> {
        lock(&self.ranks_ended).clone()
    }

    /// All programs that can't be carried, and all commands that were ended by another
    /// party's signal: not all may have been sent.
    pub(crate) fn all(&self) -> (Vec<UncarriedProgram>, Vec<CommandKilled>) {
        (lock(&self.uncarried).clone(), lock(&self.killed).clone())
    }
}
