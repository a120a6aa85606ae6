//! A profile as plain data. Whoever makes one keeps the rules that each field names.

use std::time::Duration;

use isthmus_wire::Label;

use crate::{Architecture, Tag};

/// What a job asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// The groups, in the order of ranks of `MPI_COMM_WORLD`. Their names differ.
    pub groups: Vec<Group>,
    /// What pairs of groups need of the network between them. A pair is there once.
    pub between: Vec<Between>,
    /// For how long the job needs its nodes; `None` if the schedulers' defaults will do.
    pub time: Option<Duration>,
    /// Whether topologies of the program may have their ranks in another order.
    pub reorder: bool,
}

/// Ranks that belong together. A group is at one site, unless it may be split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name, unique in the profile.
    pub name: Label,
    /// How many ranks it has.
    pub ranks: Ranks,
    /// The program and its arguments; empty if the command of `isthmus run` names them.
    pub command: Vec<String>,
    /// Whether several sites may share its ranks.
    pub may_split: bool,
    /// What each of its ranks needs of its node.
    pub needs: Needs,
    /// What any two of its ranks need of the network between them.
    pub inside: Link,
}

/// A number of ranks, from the least to the most that are of use; `1 <= least <= most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// With fewer the job doesn't start.
    pub least: u32,
    /// More aren't asked for.
    pub most: u32,
}

/// What a rank needs of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Cores for each rank, at least one; `None` means one.
    pub cores: Option<u32>,
    /// Bytes of memory for each rank.
    pub memory_bytes: Option<u64>,
    /// The processor's architecture.
    pub architecture: Option<Architecture>,
    /// Features that the node must have, all of them. Sorted, each is there once.
    pub tags: Vec<Tag>,
}

/// What is asked of the network between two ranks, or what is known of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// The round trip: at most so long. `None` asks for nothing.
    pub rtt: Option<Duration>,
    /// The rate of one connection: at least so many bytes per second. `None` asks for nothing.
    pub bytes_per_second: Option<u64>,
}

/// What the ranks of two groups need of the network between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// Names of two different groups.
    pub groups: [Label; 2],
    /// What a rank of the one and a rank of the other need.
    pub link: Link,
}
