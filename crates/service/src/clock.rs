//! This machine's time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970; zero if the machine's clock is before that.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time since 1970 in milliseconds, the control plane's unit; zero if the clock is before that.
pub fn unix_ms() -> u64 {
    millis(since_1970())
}

/// The seconds from 1970 to a time; zero for an earlier time.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A duration in whole seconds, in which the control plane has limits and intervals.
pub fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// A duration in its largest unit, for messages.
pub fn humane(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A duration in milliseconds, the control plane's unit.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in microseconds, the control plane's unit.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
