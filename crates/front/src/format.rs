//! Numbers and names as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_service::clock::humane;

pub use isthmus_common::error::causes;

/// The site in a grid name, `node.site`.
pub fn site(grid_name: &str) -> &str {
    grid_name.split_once('.').map_or(grid_name, |(_, site)| site)
}

/// A number of things in words: "1 node", "2 nodes".
pub fn count(number: u64, what: &str) -> String {
    let plural = match what {
        _ if number == 1 => "",
        "process" => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}

/// Bytes in the largest unit that fits, powers of 1000.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// How long ago something was; "-" if it never was (0).
pub fn ago(unix_ms: u64) -> String {
    if unix_ms == 0 {
        return "-".to_owned();
    }
    let then = UNIX_EPOCH + Duration::from_millis(unix_ms);
    format!("{} ago", humane(SystemTime::now().duration_since(then).unwrap_or_default()))
}

/// A time in milliseconds, as users read it, of one in microseconds, as messages have it.
pub fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Reads a number of things.
///
/// # Errors If the text isn't a whole number from 1 on.
pub fn number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number from 1 on".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// An item of a list, without the blanks around it.
pub fn trimmed(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (number, want) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_999, "1.0 MB"), (1 << 40, "1.1 TB")]
        {
            assert_eq!(bytes(number), want);
        }
    }

    #[test]
    fn numbers() {
        for (text, want) in [("1", Some(1)), ("16", Some(16)), ("0", None), ("-1", None), ("many", None)] {
            assert_eq!(number(text).ok(), want, "{text}");
        }
    }
}
