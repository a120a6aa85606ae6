//! What the environment says of a soak: `SOAK`, `SOAK_SEED` and `SOAK_JSON`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

/// Settings of a soak, which come from the environment.
#[derive(Debug)]
pub(super) struct Settings {
    /// Seed of the faults and of what programs send. The same seed repeats both.
    pub(super) seed: u64,
    /// Time after which no fault begins.
    pub(super) lasts: Duration,
    /// The file that gets a line of JSON. `None`: no file does.
    pub(super) json: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings from the environment. By default a soak takes `short`. Its default seed
    /// is `fixed`, with which each run is the same, or else a random one.
    pub(super) fn read(short: Duration, fixed: Option<u64>) -> Result<Self> {
        let lasts = variable("SOAK");
        let seed = match (variable("SOAK_SEED"), &lasts, fixed) {
            (Some(text), _, _) => text.parse::<u64>().context("SOAK_SEED is no number")?,
            (None, None, Some(fixed)) => fixed,
            _ => SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64 % 1_000_000,
        };
        let lasts = lasts.as_deref().map_or(Ok(short), time)?;
        Ok(Self { seed, lasts, json: variable("SOAK_JSON").map(PathBuf::from) })
    }
}

/// An environment variable. `None` if it is empty, as `make` passes it so.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Reads a time such as `90s`, `20m` or `2h`.
fn time(text: &str) -> Result<Duration> {
    let found = [("s", 1.0), ("m", 60.0), ("h", 3600.0)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?.parse::<f64>().ok()?, seconds)));
    let (number, seconds) =
        found.with_context(|| format!("SOAK={text:?} is no time such as 90s, 20m or 2h"))?;
    Ok(Duration::try_from_secs_f64(number * seconds)?)
}

#[test]
fn times_of_a_soak_are_read() -> Result<()> {
    for (text, seconds) in [("90s", 90), ("1.5m", 90), ("2h", 7200)] {
        anyhow::ensure!(time(text)? == Duration::from_secs(seconds), "{text}");
    }
    for text in ["", "5", "h", "-1s", "1d", "ü"] {
        anyhow::ensure!(time(text).is_err(), "{text}");
    }
    Ok(())
}
