//! Why there is no placement.

use std::time::Duration;

use isthmus_wire::Label;

use crate::impossible::Impossible;

/// Why a profile isn't placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The offer doesn't meet what the profile asks.
    #[error("{0}")]
    Impossible(Impossible),
    /// Time ran out before a placement was found, or before it was sure that there is none. Groups
    /// that may be split aren't tried at more than 1,000 sites together, either.
    #[error("no placement was found within {limit:?}, and there may be one: allow more time, or ask less")]
    OutOfTime {
        /// How long the search was to take.
        limit: Duration,
    },
    /// Something is there more often than the search can take.
    #[error("too many {what}: {count}, but {most} at most can be matched")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Two groups have one name.
    #[error("two groups of the profile have the name {group}: give each its own")]
    SameName {
        /// The name.
        group: Label,
    },
    /// A range of ranks is empty, or begins with no ranks.
    #[error("{group} has {least} to {most} ranks: the first must be 1 at least, and no more than the second")]
    Ranks {
        /// The group.
        group: Label,
        /// The least ranks.
        least: u32,
        /// The most ranks.
        most: u32,
    },
    /// The profile asks something of the network to a group that isn't there.
    #[error("the profile asks something of the network to {name}, but has no group of that name")]
    NoGroup {
        /// The name.
        name: Label,
    },
    /// The profile has a pair of a group and itself.
    #[error("the profile has {group} twice in a pair of groups: say what is needed inside of it instead")]
    Itself {
        /// The group.
        group: Label,
    },
}
