//! How long one agent of a job may be silent before the job ends.

use std::time::Duration;

/// How long an agent may be silent unless the user says otherwise.
pub const DEFAULT: Duration = Duration::from_secs(5);
/// The longest silence of an agent that a user may ask for.
pub const LONGEST: Duration = Duration::from_secs(60);

/// The patience that a field of the protocol asks for. 0 stands for [`DEFAULT`]. A value out of
/// bounds counts as the nearest bound.
pub fn read(seconds: u32) -> Duration {
    match seconds {
        0 => DEFAULT,
        seconds => Duration::from_secs(seconds.into()).clamp(DEFAULT, LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_brought_within_bounds() {
        for (field, want) in [(0, 5), (1, 5), (5, 5), (17, 17), (60, 60), (u32::MAX, 60)] {
            assert_eq!(read(field), Duration::from_secs(want), "{field}");
        }
    }
}
