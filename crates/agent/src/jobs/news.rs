//! A node's news for a job's head.

use std::mem::discriminant;
use std::sync::Mutex;

use isthmus_service::exhausted::Exhausted;
use isthmus_service::lock;
use isthmus_wire::GridName;
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::{CommandKilled, JobNews, NodeLost, NodeShort, RankEnded, UncarriedProgram};
use tokio::sync::mpsc;
use tonic::Status;

/// Most news that wait to be sent to the head. Further news are dropped.
const NEWS_QUEUE: usize = 1024;
/// Most news of one kind that are repeated at the job's end. Also the most ranks whose bad end is
/// told at all: only the first one's cause counts.
const REPEATED_MAX: usize = 16;

/// Sends a job's news to its head. Keeps those that are repeated at the job's end: the command may
/// end because of news, and before they arrive.
#[derive(Debug)]
pub(crate) struct News {
    news_tx: mpsc::Sender<Kind>,
    uncarried: Mutex<Vec<UncarriedProgram>>,
    repeated: Mutex<Vec<Kind>>,
}

/// The receiving end of [`News`], for the task that sends the news to the head.
pub(crate) type NewsReceiver = mpsc::Receiver<Kind>;

/// The sending end for a job's news on the way to its head: this node's, and those of the nodes
/// that it holds.
pub(crate) type NewsSender = mpsc::Sender<Result<JobNews, Status>>;

impl News {
    pub(crate) fn channel() -> (Self, NewsReceiver) {
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        (Self { news_tx, uncarried: Mutex::default(), repeated: Mutex::default() }, news_rx)
    }

    pub(crate) fn send(&self, news: Kind) {
        if explains_an_end(&news) {
            let mut repeated = lock(&self.repeated);
            // The job's end finds a killed command as well as the task that follows it.
            if matches!(news, Kind::CommandKilled(_)) && repeated.contains(&news) {
                return;
            }
            let alike = repeated.iter().filter(|other| discriminant(*other) == discriminant(&news));
            if alike.count() < REPEATED_MAX {
                repeated.push(news.clone());
            } else if matches!(news, Kind::RankEnded(_)) {
                return;
            }
        }
        // A full queue has enough of the same kind.
        let _ = self.news_tx.try_send(news);
    }

    /// Tells the head that a resource has run out here.
    pub(crate) fn short(&self, node: &str, exhausted: Exhausted) {
        self.send(Kind::NodeShort(NodeShort { node: node.to_owned(), reason: exhausted.to_string() }));
    }

    /// Tells the head that a gateway is lost that connections of the job depend on.
    pub(crate) fn lost_gateway(&self, node: &str, reason: String) {
        self.send(Kind::NodeShort(NodeShort { node: node.to_owned(), reason }));
    }

    /// Tells the head that a process here starts a program that can't be carried, once for each
    /// program.
    pub(crate) fn uncarried(&self, program: UncarriedProgram) {
        let mut started = lock(&self.uncarried);
        if started.len() < NEWS_QUEUE && !started.contains(&program) {
            started.push(program.clone());
            self.send(Kind::Uncarried(program));
        }
    }

    /// Tells the head that a signal of another party ended a command here.
    pub(crate) fn killed(&self, node: &str, (signal, command): (i32, String)) {
        self.send(Kind::CommandKilled(CommandKilled { node: node.to_owned(), command, signal }));
    }

    /// Tells the head that a rank ended badly here.
    pub(crate) fn rank_ended(&self, ended: RankEnded) {
        self.send(Kind::RankEnded(ended));
    }

    /// All programs that can't be carried: not all may have been sent.
    pub(crate) fn all_uncarried(&self) -> Vec<UncarriedProgram> {
        lock(&self.uncarried).clone()
    }

    /// News that may explain why the job ends: not all may have been sent.
    pub(crate) fn repeated(&self) -> Vec<JobNews> {
        lock(&self.repeated).iter().map(|kind| JobNews { kind: Some(kind.clone()) }).collect()
    }
}

/// A node's word that it leaves the job: why, and for how long it heard nothing. `None` for other
/// news.
pub(crate) fn own_loss<'a>(news: &'a JobNews, from: &GridName) -> Option<&'a NodeLost> {
    match &news.kind {
        Some(Kind::NodeLost(lost)) if lost.node == from.to_string() => Some(lost),
        _ => None,
    }
}

/// Whether a job may end because of what these news tell.
fn explains_an_end(news: &Kind) -> bool {
    match news {
        Kind::ConnectFailed(failed) => failed.given_up,
        Kind::NodeShort(_) | Kind::CommandKilled(_) | Kind::RankEnded(_) | Kind::NodeLost(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_explain_the_end_is_repeated_within_bounds() {
        let (news, mut news_rx) = News::channel();
        let (count, more) = (u32::try_from(REPEATED_MAX).unwrap(), 5);
        for rank in 0..count + more {
            news.rank_ended(RankEnded { rank, ..RankEnded::default() });
            news.short("n1.a", Exhausted::Memory);
        }
        for _ in 0..2 {
            news.killed("n1.a", (9, "orted".to_owned()));
        }
        news.send(Kind::Joined(isthmus_wire::proto::Joined::default()));
        let repeated = news.repeated();
        assert_eq!(repeated.len(), 2 * REPEATED_MAX + 1);
        assert!(matches!(repeated.last(), Some(JobNews { kind: Some(Kind::CommandKilled(_)) })));
        let mut sent = 0;
        while news_rx.try_recv().is_ok() {
            sent += 1;
        }
        assert_eq!(sent, count + (count + more) + 2);
    }

    #[test]
    fn only_the_node_itself_gives_its_reason() {
        const REASON: &str = "its agent was stopped";
        let lost = |node: &str| {
            let (node, reason) = (node.to_owned(), REASON.to_owned());
            Some(Kind::NodeLost(NodeLost { node, reason, ago_ms: 0 }))
        };
        let back = Kind::SiteBack(isthmus_wire::proto::SiteBack {
            node: "n1.beta".to_owned(),
            silent_ms: 1,
            from: String::new(),
        });
        let from: GridName = "n1.beta".parse().unwrap();
        for (kind, want) in
            [(lost("n1.beta"), Some(REASON)), (lost("n2.beta"), None), (Some(back), None), (None, None)]
        {
            let news = JobNews { kind };
            let reason = own_loss(&news, &from).map(|lost| lost.reason.as_str());
            assert_eq!(reason, want, "{news:?}");
        }
    }
}
