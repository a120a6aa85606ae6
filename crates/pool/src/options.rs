//! What a program asks of a pool: lines of `name=value`, so that programs that were built with an earlier
//! release work with a later one.

use std::time::Duration;

use isthmus_workers::{FLAT_BELOW, MOST_PLACES};

/// Settings of the master's or of a worker's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Where it runs, from the outermost level to its node.
    pub places: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: Option<u32>,
    /// A task isn't run again once so many processes have certainly ended while they ran it.
    pub attempts: u32,
    /// Below so many members there are no bosses.
    pub flat_below: usize,
    /// How the master is reached, if not by the name of its host; its port, or 0 for any.
    pub host: Option<String>,
    pub port: u16,
    /// The pool's key, in hexadecimal digits. The default is a random one.
    pub key: Option<String>,
    /// How many workers will join, which the master waits for before it ends the pool.
    pub expects: u64,
    /// How long a worker tries to reach the master, and the master waits for workers.
    pub patience: Duration,
}

/// An option that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongOption {
    /// There is no such option.
    #[error("there is no option `{0}`")]
    Unknown(String),
    /// The value isn't one of this option.
    #[error("option `{name}` can't be `{value}`")]
    Value {
        /// The option.
        name: String,
        /// What was given.
        value: String,
    },
}

impl Options {
    pub(crate) fn read(text: &str) -> Result<Self, WrongOption> {
        let mut options = Self {
            places: Vec::new(),
            slots: None,
            attempts: 2,
            flat_below: FLAT_BELOW,
            host: None,
            port: 0,
            key: None,
            expects: 0,
            patience: Duration::from_secs(60),
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once('=').ok_or_else(|| WrongOption::Unknown(line.to_owned()))?;
            let wrong = || WrongOption::Value { name: name.to_owned(), value: value.to_owned() };
            match name {
                "places" => {
                    let places: Vec<_> = value.split('/').filter(|place| !place.is_empty()).collect();
                    let [levels, name] = MOST_PLACES;
                    if places.len() > levels || places.iter().any(|place| place.len() > name) {
                        return Err(wrong());
                    }
                    options.places = places.into_iter().map(str::to_owned).collect();
                }
                "slots" => options.slots = Some(value.parse().map_err(|_| wrong())?),
                "attempts" => {
                    options.attempts =
                        value.parse().ok().filter(|attempts| *attempts > 0).ok_or_else(wrong)?;
                }
                "flat_below" => options.flat_below = value.parse().map_err(|_| wrong())?,
                "host" => options.host = Some(value.to_owned()),
                "port" => options.port = value.parse().map_err(|_| wrong())?,
                "key" => options.key = Some(value.to_owned()),
                "expects" => options.expects = value.parse().map_err(|_| wrong())?,
                "patience_s" => options.patience = Duration::from_secs(value.parse().map_err(|_| wrong())?),
                _ => return Err(WrongOption::Unknown(name.to_owned())),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_text() {
        let options = Options::read("places=europe/alpha/n1\nslots=2\nattempts=5\npatience_s=3\n").unwrap();
        assert_eq!(options.places, ["europe", "alpha", "n1"]);
        assert_eq!((options.slots, options.attempts, options.patience), (Some(2), 5, Duration::from_secs(3)));
        assert_eq!(Options::read("").unwrap().attempts, 2);
        let deep = format!("places={}", "x/".repeat(17));
        for wrong in [deep.as_str(), "slots=-1", "attempts=0", "port=70000", "colour=red", "slots"] {
            assert!(Options::read(wrong).is_err(), "{wrong}");
        }
    }
}
