//! A job's profile: groups of ranks, and what they need of their nodes and of each other (paper 2,
//! section 3.1). Everything but a group's name and its ranks is optional: what is left blank is
//! filled with what was got. docs/profiles.md describes the file.
//!
//! | module | what |
//! |---|---|
//! | [`Profile`] and its parts | what a job asks for, as plain data |
//! | [`Profile::parse`] | that, from the text of a file |
//! | [`explain`] | that, in words |
//! | [`launch`] | that, as a launcher's words |
//! | [`environment`] | what programs other than MPI's are told of it |
//!
//! Pure: no I/O, no clock.

#![forbid(unsafe_code)]

mod architecture;
mod check;
mod command;
pub mod environment;
mod error;
pub mod explain;
pub mod launch;
pub mod limits;
mod profile;
mod ranks;
mod tag;
mod written;

pub use architecture::{Architecture, ArchitectureError};
pub use error::ProfileError;
pub use profile::{Between, Group, Link, Needs, Profile, Ranks};
pub use ranks::RanksError;
pub use tag::{Tag, TagError};

#[cfg(test)]
mod tests;
