//! A user's pilots at one batch scheduler. A *pilot* is a batch job that runs an agent on each of its
//! nodes. Who asks for one gets the nodes' names, and word of what becomes of the batch job. The pilot
//! ends when nobody wants it any more, and nothing of it is left: no batch job, no member of the
//! grid.
//!
//! | module | what |
//! |---|---|
//! | [`keeper`] | brings pilots, watches and ends them |
//! | [`status`] | what is known of a pilot, and why one ended |
//! | [`record`] | what is on disk of a pilot, for an agent that was started again |
//! | [`order`] | what a pilot's nodes are told |
#![forbid(unsafe_code)]

pub mod keeper;
pub mod order;
pub mod record;
pub mod status;
mod watched;

pub use keeper::{Grid, Keeper, Wanted};
pub use order::{Of, Order};
pub use record::PilotId;
pub use status::{Arrived, Phase, Status, Why};
