//! What is on disk of a pilot: enough to end it after a restart, and to go on if somebody still
//! wants it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use isthmus_batch::{Job, JobId, Word, WordError};
use isthmus_service::files::{self, FileError};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::status::Arrived;

/// Longest record that is read, in bytes: enough for 10,000 nodes.
const LONGEST: u64 = 4 << 20;
const SUFFIX: &str = "pilot.json";

/// Names a pilot. Whoever asks for the pilot draws it at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PilotId(pub [u8; 16]);

impl PilotId {
    /// The batch job's name, by which the user finds it in the queue.
    ///
    /// # Errors
    /// Never: the name has hexadecimal digits and a hyphen.
    pub fn job_name(self) -> Result<Word, WordError> {
        format!("isthmus-{}", &self.to_string()[..12]).parse()
    }
}

impl fmt::Display for PilotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for PilotId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = plain.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| "a pilot's id has 32 hexadecimal digits".to_owned())
    }
}

impl TryFrom<String> for PilotId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PilotId> for String {
    fn from(id: PilotId) -> Self {
        id.to_string()
    }
}

/// A pilot, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Names the pilot.
    pub id: PilotId,
    /// Names the token by which its nodes join.
    pub token: PilotId,
    /// Until when nodes may join by it, in seconds since 1970.
    pub token_expires: u64,
    /// How many nodes it asks for.
    pub nodes: u32,
    /// The batch job's number; `None` as long as it isn't known. There may be a batch job all the same.
    pub job: Option<String>,
    /// The nodes that are there, or were.
    pub arrived: Vec<Arrived>,
}

impl Record {
    /// The batch job; `None` if its number isn't known.
    pub fn job(&self) -> Option<Job> {
        let id = self.job.as_ref()?.parse().ok()?;
        Some(Job { id: JobId(id), name: self.id.job_name().ok()? })
    }

    fn path(directory: &Path, id: PilotId) -> PathBuf {
        directory.join(format!("{id}.{SUFFIX}"))
    }

    /// Writes the record into a directory of this user's.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, directory: &Path) -> Result<(), FileError> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        files::write(&Self::path(directory, self.id), &text, 0o600)
    }

    /// Removes the record of a pilot, of which nothing is left.
    pub fn remove(directory: &Path, id: PilotId) {
        let path = Self::path(directory, id);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(path = %path.display(), %error, "cannot remove the record of a pilot that has ended");
            }
            _ => {}
        }
    }

    /// The records in a directory. Those that can't be read are left out, and the log says so.
    pub fn all(directory: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let paths = paths.filter(|path| path.to_string_lossy().ends_with(&format!(".{SUFFIX}")));
        paths
            .filter_map(|path| match read(&path) {
                Ok(record) => Some(record),
                Err(reason) => {
                    warn!(path = %path.display(), reason, "cannot read the record of a pilot");
                    None
                }
            })
            .collect()
    }
}

fn read(path: &Path) -> Result<Record, String> {
    let length = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?.len();
    if length > LONGEST {
        return Err(format!("it has more than {LONGEST} bytes"));
    }
    let text = files::read_secret(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u8) -> Record {
        let arrived = vec![Arrived { name: "n2-ada-1.alpha".to_owned(), host: "n2".to_owned() }];
        let (id, token) = (PilotId([id; 16]), PilotId([9; 16]));
        Record { id, token, token_expires: 7, nodes: 2, job: Some("12".to_owned()), arrived }
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let (one, two) = (record(1), Record { job: None, arrived: Vec::new(), ..record(2) });
        one.write(path).unwrap();
        two.write(path).unwrap();
        std::fs::write(path.join("x.pilot.json"), "{}").unwrap();
        let mut read = Record::all(path);
        read.sort_by_key(|record| record.id);
        assert_eq!(read, [one.clone(), two.clone()]);
        assert_eq!(one.job().unwrap().name.as_str(), "isthmus-010101010101");
        assert_eq!((one.job().unwrap().id.to_string().as_str(), two.job()), ("12", None));
        Record::remove(path, one.id);
        Record::remove(path, one.id);
        assert_eq!(Record::all(path), [two]);
    }

    #[test]
    fn an_id_is_32_digits() {
        let id = PilotId([0xa5; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "a5", "+5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5", "g5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"] {
            assert!(text.parse::<PilotId>().is_err(), "{text}");
        }
    }
}
