//! What members and the master ask of their caller, who has sockets and threads.

use bytes::Bytes;

use crate::dispatch::Link;
use crate::message::{MemberId, Message, Task, TaskId};

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a message.
    Send(Link, Message),
    /// Send arguments or a result that are longer than [`MAX_INLINE`](crate::message::MAX_INLINE), in
    /// pieces, while shorter messages overtake them.
    SendLarge {
        /// Where to.
        link: Link,
        /// The task.
        id: TaskId,
        /// The arguments or the result.
        bytes: Bytes,
        /// The result is an error.
        failed: bool,
    },
    /// Close a link, once what was sent has left.
    Close(Link),
    /// Connect with a member that is to be the parent.
    Connect {
        /// The member's number.
        member: MemberId,
        /// Where it is reached: `host:port`.
        address: String,
    },
    /// Run this once before the first task.
    Setup(Bytes),
    /// Run a task. All its arguments are there.
    Run(Task),
    /// The pool has ended.
    End,
}
