//! Memory that a service no longer uses goes back to the machine.
//!
//! The C library's allocator keeps what thousands of connections have used, in an arena for
//! each thread, for as long as the service runs. `malloc_trim(3)` gives it back.

use std::time::Duration;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Growth that is worth it.
const GROWTH: u64 = 16 << 20;

/// Gives memory back whenever the service has grown; never ends.
pub(crate) async fn keep_small() {
    let mut least = resident_bytes();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = resident_bytes();
        if now > least.saturating_add(GROWTH) {
            // On a thread that may take its time: it walks all arenas.
            let _ = tokio::task::spawn_blocking(trim).await;
            least = resident_bytes();
        }
        least = least.min(now);
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: takes no pointer, and locks each arena that it looks at.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

/// Bytes of this process in memory, 0 where the kernel doesn't say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    pages.unwrap_or(0).saturating_mul(page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It counts what the whole process has.
    mod alone {
        use super::*;

        #[test]
        fn what_was_freed_goes_back() {
            // Small pieces, with one that stays above them all: the heap can't shrink by itself.
            let pieces: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 2000]).collect();
            let last = vec![1_u8; 2000];
            let full = resident_bytes();
            drop(pieces);
            trim();
            let left = resident_bytes();
            assert!(left + (40 << 20) < full, "{left} of {full}");
            drop(last);
        }
    }
}
