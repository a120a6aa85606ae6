//! A turn: the work that a worker does at once for one of the items that it carries.

/// Most bytes that are moved in one turn: some 200 µs of work.
pub(crate) const TURN_BYTES: usize = 1 << 20;

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The sockets allow no more until the next event.
    Waits,
    /// There is more to do, but others are due.
    Unfinished,
    /// The item has ended.
    Ended,
}
