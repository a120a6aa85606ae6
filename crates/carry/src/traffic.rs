//! Bytes of a program's connection, counted while it is carried.

use isthmus_trunk::CarrierId;

/// Gets the byte counts of one connection, or of several.
pub trait Traffic: Send + Sync + std::fmt::Debug {
    /// The program here wrote so many bytes.
    fn sent(&self, bytes: u64);
    /// So many bytes were written to the program here.
    fn received(&self, bytes: u64);
    /// A carrier of a trunk moved bytes of the connection. `sent` is what the carrier was given,
    /// less what was taken back to be sent by another. `received` is what came over it. Only trunks
    /// that note it call this. By default it does nothing.
    fn moved(&self, _carrier: CarrierId, _sent: i64, _received: u64) {}
}

/// Counts nothing: another party does, or nobody needs it.
#[derive(Debug)]
pub struct Uncounted;

impl Traffic for Uncounted {
    fn sent(&self, _: u64) {}
    fn received(&self, _: u64) {}
}
