//! Starting processes, and the checks before.
//!
//! | module | what |
//! |---|---|
//! | `exec` | commands of a job |
//! | [`processes`] | commands that run |
//! | [`supervise`] | ends every descendant of a command |
//! | `limits` | numbers of descriptors |
//! | [`programs`] | whether a job's programs exist |
//! | `preloadable` | whether they can be carried |
//! | `preflight` | other checks of a node before a job |

pub(crate) mod exec;
pub(crate) mod limits;
pub(crate) mod preflight;
pub(crate) mod preloadable;
pub mod processes;
pub mod programs;
pub mod supervise;
