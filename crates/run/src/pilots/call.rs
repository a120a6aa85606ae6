//! The call by which one pilot is ordered, followed and ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isthmus_front::{local, output};
use isthmus_rpc::grpc;
use isthmus_wire::proto::{PilotOrder, PilotUp, pilot_up};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::Shared;
use crate::SOON;

/// How long the agent may be away, such as while it is started again. The agent that submits keeps a
/// pilot that nobody holds for 30 s.
const AWAY: Duration = Duration::from_secs(25);
const AGAIN: Duration = Duration::from_secs(1);
/// Most messages that wait to be sent.
const QUEUE: usize = 8;

/// A pilot that is ordered.
#[derive(Debug)]
pub(super) struct Call {
    says: mpsc::UnboundedSender<pilot_up::Kind>,
}

impl Call {
    /// Orders a pilot by the agent at a socket. What is told of it goes onto the board.
    pub(super) fn start(socket: PathBuf, order: PilotOrder, board: (Shared, usize)) -> Self {
        let (says, said) = mpsc::unbounded_channel();
        tokio::spawn(follow(socket, order, said, board));
        Self { says }
    }

    /// Ends the pilot.
    pub(super) fn end(&self) {
        // Without a receiver it has ended.
        let _ = self.says.send(pilot_up::Kind::End(true));
    }

    /// Has the scheduler asked at once.
    pub(super) fn look(&self) {
        let _ = self.says.send(pilot_up::Kind::Look(true));
    }
}

/// What lasts longer than a call: the agent may be started again meanwhile.
struct Kept {
    said: mpsc::UnboundedReceiver<pilot_up::Kind>,
    /// Whether the agent has told anything of the pilot. If the pilot is then gone, it has ended.
    known: bool,
    /// Whether the pilot is to end.
    ends: bool,
    /// Whether the user was told of the end of the pilot's time.
    warned: bool,
    /// Until when the agent may be away.
    until: Instant,
}

/// Follows a pilot until nothing of it is left, or nothing more is heard of it.
async fn follow(
    socket: PathBuf,
    order: PilotOrder,
    said: mpsc::UnboundedReceiver<pilot_up::Kind>,
    (board, index): (Shared, usize),
) {
    let mut kept = Kept { said, known: false, ends: false, warned: false, until: Instant::now() + AWAY };
    loop {
        let reason = match once(&socket, &order, &mut kept, (&board, index)).await {
            Ok(()) => return,
            Err(Lost { reason, may_pass }) if !may_pass || Instant::now() >= kept.until => reason,
            Err(_) => {
                sleep(AGAIN).await;
                continue;
            }
        };
        board.send_modify(|board| board.lose(index, &reason));
        return;
    }
}

/// A call that has ended before the pilot.
struct Lost {
    reason: String,
    may_pass: bool,
}

async fn once(
    socket: &Path,
    order: &PilotOrder,
    kept: &mut Kept,
    (board, index): (&Shared, usize),
) -> Result<(), Lost> {
    let away = |error: anyhow::Error| Lost { reason: format!("{error:#}"), may_pass: true };
    let mut agent = local::connect(socket).await.map_err(away)?;
    let (up_tx, up_rx) = mpsc::channel(QUEUE);
    let order = PilotOrder { known: kept.known, ..order.clone() };
    let first = PilotUp { kind: Some(pilot_up::Kind::Order(order)) };
    let again = kept.ends.then_some(PilotUp { kind: Some(pilot_up::Kind::End(true)) });
    for message in std::iter::once(first).chain(again) {
        // It has room for both.
        let _ = up_tx.try_send(message);
    }
    // An agent that ends, in order or not, breaks the call in several ways.
    let failed = |status: tonic::Status| Lost {
        may_pass: matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
            || grpc::connection_broke(&status),
        reason: grpc::reason(&status),
    };
    let mut down = agent.pilot(ReceiverStream::new(up_rx)).await.map_err(failed)?.into_inner();
    loop {
        let end = board.borrow().end_of(index);
        let soon = end.and_then(|(end, _)| Instant::from_std(end).checked_sub(SOON));
        tokio::select! {
            message = down.message() => match message.map_err(failed)? {
                Some(told) => {
                    kept.known = true;
                    kept.until = Instant::now() + AWAY;
                    board.send_modify(|board| board.take(index, told, std::time::Instant::now()));
                }
                // Nothing of the pilot is left, if it has said so.
                None if board.borrow().is_over_at(index) => return Ok(()),
                None => return Err(Lost { reason: "its agent has ended the call".to_owned(), may_pass: true }),
            },
            Some(kind) = kept.said.recv() => {
                kept.ends |= kind == pilot_up::Kind::End(true);
                // Without a receiver the call has ended, which the next message tells.
                let _ = up_tx.send(PilotUp { kind: Some(kind) }).await;
            }
            () = crate::until(soon), if !kept.warned && soon.is_some() => {
                kept.warned = true;
                if let Some((end, name)) = board.borrow().end_of(index) {
                    let left = end.saturating_duration_since(std::time::Instant::now());
                    output::message(&crate::notice::ends_in(&name, left));
                }
            }
        }
    }
}
