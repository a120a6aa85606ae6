//! Running a command so that nothing of it can stay behind.
//!
//! A supervisor process stands between whoever wants the command (an agent, or
//! `isthmus run`) and the command. It is a child subreaper (`prctl(2)`), so
//! that daemonised descendants stay below it, and it holds one end of a socket
//! whose other end its parent holds: when the parent dies in whatever way, the
//! socket ends and the supervisor kills every descendant.
//!
//! | module | |
//! |---|---|
//! | [`child`] | what the supervisor process does |
//! | [`handle`] | how the parent starts one and talks to it |
//! | `message` | what the two send each other |
//! | [`tree`] | which processes descend from which |

pub mod child;
pub mod handle;
mod message;
pub mod tree;

pub use handle::{Outcome, Supervised};
pub(crate) use message::GRACE;
