//! Bounds of a profile.

pub use isthmus_wire::topology::GROUPS_MAX;

use std::time::Duration;

/// Longest file in bytes.
pub const FILE_MAX: usize = 1 << 20;
/// Most ranks of all groups together: as many as the MPI library knows of (docs/collectives.md).
pub const RANKS_MAX: u32 = 1_000_000;
/// Most pairs of groups that ask for something between them.
pub const BETWEEN_MAX: usize = 10_000;
/// Most words of a group's command.
pub const COMMAND_WORDS_MAX: usize = 1000;
/// Most tags of a group.
pub const TAGS_MAX: usize = 32;
/// Most cores of a rank.
pub const CORES_MAX: u32 = 10_000;
/// Longest time that a job may ask for.
pub const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Shortest round trip that may be asked for.
pub const RTT_MIN: Duration = Duration::from_micros(1);
