//! Which sites and which of their nodes the groups of a job get: a pure function of a profile and of
//! what a grid offers (paper 2, section 3.2).
//!
//! # What a placement keeps to
//! - A group is at one site, unless it may be split. Groups may share a site. So a job is never more
//!   scattered than it asks.
//! - Each group has at least its least number of ranks, and at most its most.
//! - A node belongs to one group. It has as many of its ranks as there are cores and memory for.
//! - What a profile asks of the network holds for each two sites at which ranks of the groups are,
//!   and within each site at which both have ranks.
//! - What isn't known meets no requirement: not the round trip or the rate of a network that nobody
//!   has measured, nor a node's memory or architecture. What isn't asked needs not be known.
//!
//! # What is best
//! Of two placements the better one has less traffic between sites. If that is equal it has more
//! ranks. If these are equal, too, the last of its nodes can be had earlier; "nobody knows when" is
//! later than any time. So a job waits for a place with less traffic, and for more ranks: whoever
//! would rather begin asks for fewer at most, or offers only nodes that can be had soon. Among the
//! placements that are best, one that takes few nodes is preferred, but nothing is promised of that.
//!
//! **Traffic** is estimated from the profile alone: as if each group, each two groups between which
//! it asks something (even an empty [`Link`](isthmus_profile::Link)), and all groups together did
//! collective operations. Such an operation crosses to each further site once, with something for
//! or from each rank. So each of these units counts as *(sites at which it is, less 1) x (ranks
//! that it has at least)*. In hypergraph partitioning this is known as the connectivity metric.
//! The least number of ranks is taken, so that more ranks at the same sites aren't punished.
//!
//! # How it is found
//! A site's nodes come in classes, and what is sought is how many nodes of which class each group
//! takes. Branch and bound (`search`) decides which groups are at which sites: traffic depends on
//! nothing else. An integer program over classes (`program`, solved by microlp) says whether a site
//! has room for several groups, and for how many ranks. The stages (`stages`) seek the least
//! traffic, then the most ranks with that traffic, then the earliest start with both. Each is exact
//! unless time runs out; [`Placement::best`] tells.
//!
//! One integer program for all would have a variable for each group and site, and rows for each pair
//! of sites that are too far apart; the search only looks at pairs of sites in use. What is left for a
//! solver is small, so that it can be one in Rust: HiGHS would need a C++ compiler, cmake and libclang
//! wherever isthmus is compiled.
//!
//! If nothing fits, [`Impossible`] has the smallest set of requirements that can't be met together,
//! and what would do instead of each.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have a clock"))]

mod above;
mod bound;
mod conflict;
mod deadline;
mod dealt;
mod greedy;
mod impossible;
mod meets;
mod moves;
mod offer;
mod placed;
mod placement;
mod problem;
mod program;
mod refusal;
mod requirement;
mod room;
mod search;
mod stages;
mod traffic;
mod valid;
mod words;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use impossible::{Conflict, Impossible, Remedy};
pub use offer::{Links, MOST_CLASSES, MOST_SITES, NodeClass, Offer, Site};
pub use placement::{PlacedGroup, Placement, Score, Share};
pub use refusal::Refusal;
pub use requirement::{Among, Requirement};
pub use stages::place;
pub use valid::MOST_GROUPS;
