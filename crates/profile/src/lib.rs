//! A job's profile: groups of ranks, and what they need of their nodes and of each other (paper 2,
//! section 3.1). Everything but a group's name is optional: what is left blank is filled with what
//! was got.

mod profile;

pub use profile::{Architecture, Between, Group, Link, Needs, Profile, Ranks};
