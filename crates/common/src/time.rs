//! Times as people write them: `90s`, `15m`, `2h 30m`.

use std::time::Duration;

use humantime::DurationError;

/// Reads a time of whole seconds.
///
/// # Errors
/// What to write instead.
pub fn whole_seconds(text: &str) -> Result<Duration, String> {
    let read = humantime::parse_duration(text).map_err(|error| match error {
        DurationError::UnknownUnit { .. } => error.to_string(),
        _ => "give a time, such as 90s or 15m".to_owned(),
    })?;
    if read.subsec_nanos() == 0 { Ok(read) } else { Err("give whole seconds".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, want) in [("90s", Some(90)), ("2h 30m", Some(9000)), ("1500ms", None), ("soon", None)] {
            assert_eq!(whole_seconds(text).ok(), want.map(Duration::from_secs), "{text}");
        }
    }
}
