//! A multi-level master-worker (Coti, Herault, Cappello: MPI Applications on Grids, Euro-Par 2009,
//! section 3.1), without its I/O: messages and times in, messages and tasks to run out.
//!
//! A pool has one *master*, with all tasks at first, and any number of *workers*, which come and go. A
//! worker whose place, such as a site or a node, has several is the *boss* there besides: it gets tasks
//! for all of them and hands them on, so that a message crosses to a place once for many tasks.
//!
//! - **Tasks are pulled.** A worker says how many it takes: those that it runs at once, and as many as it
//!   gets done during a round trip to its parent.
//! - **Each task has one result.** Only the master keeps arguments. What a lost worker had is given to
//!   another one, unless a member below it comes back with the task.
//! - **Large arguments and results** go between master and worker, and not through bosses.
//!
//! | module | what |
//! |---|---|
//! | [`message`] | the messages and their layout |
//! | `dispatch` | who gets which task |
//! | `speed` | how many tasks are asked for ahead |
//! | `roster` | who gets tasks from whom |
//! | `member` | [`Member`]: a worker, and a boss |
//! | `master` | [`Master`] |
#![forbid(unsafe_code)]

mod action;
mod dispatch;
mod master;
mod member;
pub mod message;
mod roster;
mod speed;

pub use action::Action;
pub use dispatch::Link;
pub use master::{Counts, Finished, MAX_BYTES, Master, Settings, SiteCounts};
pub use member::Member;
pub use message::{MOST_PLACES, MemberId};
pub use roster::FLAT_BELOW;
