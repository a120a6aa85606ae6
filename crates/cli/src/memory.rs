//! Memory that a service no longer uses goes back to the machine.
//!
//! The C library's allocator keeps what thousands of connections have used, in an arena for
//! each thread, for as long as the service runs. `malloc_trim(3)` gives it back.

use std::time::Duration;

/// How often the service's memory is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// How often the service's memory is looked at if giving it back has brought nothing. The service
/// may have grown because it has more to do.
const SELDOM: Duration = Duration::from_secs(60);
/// By how many bytes a service must have grown before memory is given back.
const GROWTH: u64 = 16 << 20;

/// Gives memory back whenever the service has grown; never ends.
pub(crate) async fn keep_small() {
    let mut size = Size { least: resident_bytes(), pause: LOOK };
    loop {
        tokio::time::sleep(size.pause).await;
        let now = resident_bytes();
        if size.has_grown(now) {
            // On a thread that may take its time: it walks all arenas.
            let _ = tokio::task::spawn_blocking(trim).await;
            size.trimmed(now, resident_bytes());
        }
    }
}

/// How much memory the service has had. Reads no memory itself.
#[derive(Debug)]
struct Size {
    /// The least bytes so far. Memory that is in use for a while doesn't raise this: the allocator
    /// keeps it once it is freed.
    least: u64,
    /// Time until the next look.
    pause: Duration,
}

impl Size {
    /// Whether to give memory back, by the bytes in use `now`.
    fn has_grown(&mut self, now: u64) -> bool {
        self.least = self.least.min(now);
        let has_grown = now > self.least.saturating_add(GROWTH);
        if !has_grown {
            self.pause = LOOK;
        }
        has_grown
    }

    /// Notes the bytes in use before and after memory was given back.
    fn trimmed(&mut self, before: u64, after: u64) {
        self.least = self.least.min(after);
        let brought = before.saturating_sub(after) > GROWTH;
        self.pause = if brought { LOOK } else { (self.pause * 2).min(SELDOM) };
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: takes no pointer, and locks each arena that it looks at.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

/// Bytes of this process in memory; 0 if the kernel doesn't say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    pages.unwrap_or(0).saturating_mul(page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory was once given back while it was in use, and never again after it was free.
    #[test]
    fn memory_that_was_in_use_for_a_while_goes_back_after_it() {
        let mib = |count: u64| count << 20;
        let mut size = Size { least: mib(50), pause: LOOK };
        // What there is, what is left after it was given back, whether it was tried, and the
        // pause until the next look.
        for (now, after, tried, pause) in [
            (50, 50, false, 10),
            (60, 60, false, 10),
            // In use.
            (2770, 2765, true, 20),
            (2770, 2770, true, 40),
            (2770, 2770, true, 60),
            // Free, and kept by the allocator.
            (2770, 52, true, 10),
            (52, 52, false, 10),
            (40, 40, false, 10),
            (57, 41, true, 20),
        ] {
            assert_eq!(size.has_grown(mib(now)), tried, "{now}");
            if tried {
                size.trimmed(mib(now), mib(after));
            }
            assert_eq!(size.pause, Duration::from_secs(pause), "{now}");
        }
        assert_eq!(size.least, mib(40));
    }

    /// A module of its own: its test counts the memory of the whole process.
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
