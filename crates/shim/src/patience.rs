//! How long a connect to another node may take.

use std::ffi::c_int;
use std::time::Duration;

use crate::job::Job;
use crate::sys::{self, Fd};

/// How much longer than its agent the shim waits. The agent gives up first: it knows why, and
/// tells.
const AFTER_THE_AGENT: Duration = Duration::from_secs(3);
/// Retransmissions of a SYN up to which the pauses between them double (Linux, `TCP_RTO_MAX`).
const DOUBLING: u32 = 6;
/// Seconds between retransmissions of a SYN once the pauses don't double any more.
const LONGEST_PAUSE: u64 = 120;
/// Most retransmissions of a SYN that the kernel takes (`MAX_TCP_SYNCNT`).
const MOST_SYNS: u32 = 127;

/// How long the shim waits for its agent, unless the program says otherwise.
pub(crate) fn longest(job: &Job) -> Duration {
    job.connect_limits.cut + AFTER_THE_AGENT
}

/// How long the connect of this socket may take. The program can set that by time
/// (`TCP_USER_TIMEOUT`) or by number of retransmissions (`TCP_SYNCNT`). It is [`longest`] at most.
pub(crate) fn of(job: &Job, fd: Fd) -> Duration {
    let option =
        |name| sys::get_int(fd, libc::IPPROTO_TCP, name).ok().and_then(|value| u32::try_from(value).ok());
    let by_time = option(libc::TCP_USER_TIMEOUT)
        .filter(|millis| *millis != 0)
        .map(|millis| Duration::from_millis(u64::from(millis)));
    let by_count = option(libc::TCP_SYNCNT).map(of_syns).filter(|limit| *limit < job.connect_limits.kernel);
    [by_time, by_count].into_iter().flatten().fold(longest(job), Duration::min)
}

/// How long a kernel tries that sends the SYN again `count` times: after 1 s, 2 s, 4 s and so on.
fn of_syns(count: u32) -> Duration {
    let doubling = (2_u64 << count.min(DOUBLING)) - 1;
    Duration::from_secs(doubling + LONGEST_PAUSE * u64::from(count.saturating_sub(DOUBLING)))
}

/// The number of retransmissions that take longer than `limit`, as far as the kernel goes.
pub(crate) fn syn_count(limit: Duration) -> c_int {
    let count = (1..MOST_SYNS).find(|count| of_syns(*count) > limit).unwrap_or(MOST_SYNS);
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_kernel_counts() {
        for (syns, seconds) in [(0, 1), (1, 3), (5, 63), (6, 127), (7, 247), (127, 14_647)] {
            assert_eq!(of_syns(syns).as_secs(), seconds, "{syns}");
        }
        for (seconds, syns) in [(1, 1), (126, 6), (127, 7), (130, 7), (903, 13), (1_000_000, 127)] {
            assert_eq!(syn_count(Duration::from_secs(seconds)), syns, "{seconds}");
        }
    }
}
