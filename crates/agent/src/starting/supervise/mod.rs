//! Runs a command so that none of its descendants outlives it unnoticed.
//!
//! A supervisor process is the parent of the command, and a child of an agent or of
//! `isthmus run`. It is a child subreaper (`prctl(2)`), so daemonised descendants stay
//! below it. A socket connects it to its parent. When the parent ends in whatever way,
//! the socket ends, and the supervisor kills every descendant.
//!
//! | module | |
//! |---|---|
//! | [`child`] | the supervisor process |
//! | [`handle`] | the parent's end |
//! | `message` | the messages between the two |
//! | [`tree`] | which processes descend from which |

pub mod child;
pub mod handle;
mod message;
pub mod tree;

pub use handle::{Outcome, Supervised};
pub(crate) use message::GRACE;
