//! Starting processes, and what a job needs for it.
//!
//! | module | what |
//! |---|---|
//! | [`exec`] | commands of a job |
//! | [`processes`] | those that run |
//! | [`supervise`] | ending all that a command left |
//! | [`limits`] | numbers of descriptors |
//! | [`programs`] | whether a job's programs are there |
//! | [`preloadable`] | whether they can be carried |
//! | [`preflight`] | what else a job needs |

pub mod exec;
pub mod limits;
pub mod preflight;
pub mod preloadable;
pub mod processes;
pub mod programs;
pub mod supervise;
