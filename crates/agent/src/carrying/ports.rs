//! Ports of programs that bound none.

/// Counts through source ports for programs that have bound none, in Linux's default range of
/// ephemeral ports.
#[derive(Debug, Default)]
pub(crate) struct PortCounter(std::sync::atomic::AtomicU16);

impl PortCounter {
    pub(crate) fn next(&self) -> u16 {
        const FIRST: u16 = 32768;
        const COUNT: u16 = 28232;
        FIRST + self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % COUNT
    }
}
