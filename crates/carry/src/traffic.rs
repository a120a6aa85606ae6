//! Bytes of a program's connection, counted while it is carried.

/// Gets the counts of one connection, or of several.
pub trait Traffic: Send + Sync + std::fmt::Debug {
    /// Bytes that the program here wrote.
    fn sent(&self, bytes: u64);
    /// Bytes that were written to the program here.
    fn received(&self, bytes: u64);
}

/// Counts nothing: another party does, or nobody needs it.
#[derive(Debug)]
pub struct Uncounted;

impl Traffic for Uncounted {
    fn sent(&self, _: u64) {}
    fn received(&self, _: u64) {}
}
