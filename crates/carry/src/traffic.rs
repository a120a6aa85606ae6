//! Bytes of a program's connection, counted while it is carried.

use isthmus_trunk::CarrierId;

/// Gets the counts of one connection, or of several.
pub trait Traffic: Send + Sync + std::fmt::Debug {
    /// Bytes that the program here wrote.
    fn sent(&self, bytes: u64);
    /// Bytes that were written to the program here.
    fn received(&self, bytes: u64);
    /// The same bytes by the carriers of a trunk that moved them, if the trunk notes that:
    /// what a carrier was given of the one, less what was taken back from it to be sent again,
    /// and what came over it of the other. By default nobody needs it.
    fn moved(&self, _carrier: CarrierId, _sent: i64, _received: u64) {}
}

/// Counts nothing: another party does, or nobody needs it.
#[derive(Debug)]
pub struct Uncounted;

impl Traffic for Uncounted {
    fn sent(&self, _: u64) {}
    fn received(&self, _: u64) {}
}
