//! Ports of programs that bound none.

/// Ports that stand for programs which bound none; the range that Linux uses
/// by default for such.
#[derive(Debug, Default)]
pub struct PortCounter(std::sync::atomic::AtomicU16);

impl PortCounter {
    /// The next one.
    pub fn next(&self) -> u16 {
        const FIRST: u16 = 32768;
        const COUNT: u16 = 28232;
        FIRST + self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % COUNT
    }
}
