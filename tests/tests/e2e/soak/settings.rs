//! What the environment says of a soak: `SOAK`, `SOAK_SEED` and `SOAK_JSON`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

/// How a soak is to be.
#[derive(Debug)]
pub(super) struct Settings {
    /// It repeats the faults, and what programs send.
    pub(super) seed: u64,
    /// No fault begins later.
    pub(super) lasts: Duration,
    /// The file that gets a line of JSON.
    pub(super) json: Option<PathBuf>,
}

impl Settings {
    /// What the environment says. Without it a soak takes `short`, and has the seed `fixed`
    /// if there is one: then it is the same at each run.
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

/// An empty one is none: `make` passes it so.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A time such as `90s`, `20m` or `2h`.
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
