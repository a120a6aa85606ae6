//! The audit log: one line for each event that changes who may do what, each job that
//! starts, and each refusal.
//!
//! A line is appended with one write, and the file is opened anew for each line. So
//! logrotate may rename the file at any time, and the broker and a command may write to
//! the same one. The file has mode 0600. No line has a secret in it.

use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use isthmus_service::few_lines::FewLines;
use isthmus_service::{lock, private};
use isthmus_wire::bounds::cut_text;
use isthmus_wire::text;
use serde::{Deserialize, Serialize};

use crate::Identity;

/// Name of the audit log in a state directory.
pub const FILE: &str = "audit.log";
/// Most bytes of a value in a line.
const VALUE: usize = 512;
/// Most refusals of an identity that are written within [`WINDOW`]; others are only counted.
/// Unidentified peers of the same kind count together. [Frequent](Entry::frequent) events have the
/// same bound.
const REFUSALS: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Most identities whose refusals are counted apart. [`COUNTED_FREQUENT`] is the number for
/// frequent events: the nodes of a large grid.
const COUNTED: usize = 1024;
const COUNTED_FREQUENT: usize = 64 * 1024;

/// The format of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Time, event, result and `key="value"` pairs.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Done,
    Refused,
}

/// An event, which [`Entry::record`] writes.
#[derive(Debug, Clone, Serialize)]
#[must_use = "record() writes it"]
pub struct Entry {
    event: &'static str,
    result: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    identity: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    owner: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    source: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip)]
    frequent: bool,
}

impl Entry {
    /// An event that took place, such as "join", "renew", "job".
    pub fn done(event: &'static str) -> Self {
        let empty = String::new;
        Self {
            event,
            result: Outcome::Done,
            identity: empty(),
            owner: empty(),
            source: empty(),
            subject: empty(),
            reason: empty(),
            frequent: false,
        }
    }

    /// An event that took place, and that its party may cause again and again.
    pub fn frequent(event: &'static str) -> Self {
        Self { frequent: true, ..Self::done(event) }
    }

    /// An event that was refused, with the reason.
    pub fn refused(event: &'static str, reason: impl Display) -> Self {
        Self { result: Outcome::Refused, reason: value(reason), ..Self::done(event) }
    }

    /// Names the party that acted, with its owner.
    pub fn by(self, identity: &Identity) -> Self {
        let owner = identity.owner().map_or_else(String::new, ToString::to_string);
        Self { identity: value(identity), owner, ..self }
    }

    /// Names the party that acted, by its name in logs.
    pub fn by_name(self, name: &str) -> Self {
        Self { identity: value(name), ..self }
    }

    /// Names a user of this machine who acted.
    pub fn by_user(self, uid: u32) -> Self {
        Self { identity: format!("user id {uid}"), ..self }
    }

    /// Names the address that the request came from.
    pub fn from(self, source: Option<impl Display>) -> Self {
        Self { source: source.map_or_else(String::new, value), ..self }
    }

    /// Names the object of the event, such as an invited or revoked identity, or a job with its
    /// nodes.
    pub fn about(self, subject: impl Display) -> Self {
        Self { subject: value(subject), ..self }
    }

    /// Writes the event's line, if this process has an audit log. A failure is logged.
    pub fn record(self) {
        let Some(log) = LOG.get() else { return };
        let (counts, others) = match self.result {
            Outcome::Done if self.frequent => (Some(&log.frequent), "attachments"),
            Outcome::Done => (None, ""),
            Outcome::Refused => (Some(&log.refusals), "refusals"),
        };
        let now = Instant::now();
        let (passed, left_out) =
            counts.map_or((true, 0), |counts| lock(counts).pass(self.identity.clone(), now));
        if left_out > 0 {
            let reason = format!("{left_out} {others} were not written: at most {REFUSALS} a minute are");
            log.write(&Self { event: others, reason, ..self.clone() });
        }
        if passed {
            log.write(&self);
        }
    }
}

fn value(text: impl Display) -> String {
    let mut text = text.to_string();
    cut_text(&mut text, VALUE);
    text
}

static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
struct Log {
    path: PathBuf,
    format: Format,
    /// Refusals, counted by identity.
    refusals: Mutex<FewLines<String>>,
    /// Frequent events, counted by identity.
    frequent: Mutex<FewLines<String>>,
}

/// Has the entries of this process appended to a file. `setting` is a path, or "off"; without a
/// setting, the file is [`FILE`] in `directory`.
///
/// # Errors
/// If the file can't be opened.
pub fn start(setting: Option<&Path>, format: Format, directory: &Path) -> io::Result<()> {
    if setting.is_some_and(|path| path == Path::new("off")) {
        return Ok(());
    }
    let path = setting.map_or_else(|| directory.join(FILE), Path::to_owned);
    let log = Log::new(path, format);
    log.append("").map_err(|error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", log.path.display()))
    })?;
    // Set once per process; tests with several services share the first one.
    let _ = LOG.set(log);
    Ok(())
}

impl Log {
    fn new(path: PathBuf, format: Format) -> Self {
        let [refusals, frequent] =
            [COUNTED, COUNTED_FREQUENT].map(|most| Mutex::new(FewLines::new(REFUSALS, WINDOW, most)));
        Self { path, format, refusals, frequent }
    }

    fn write(&self, entry: &Entry) {
        if let Err(error) = self.append(&line(entry, self.format, SystemTime::now())) {
            tracing::error!(path = %self.path.display(), %error, "cannot write the audit log");
        }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        // A FIFO without a reader would be waited for.
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
        options.append(true).create(true).mode(0o600).custom_flags(flags);
        let mut file = options.open(&self.path)?;
        let found = file.metadata()?;
        if !found.is_file() || !private::is_trusted(&found) {
            return Err(io::Error::other("it is not a regular file of this user or root; remove it"));
        }
        file.write_all(line.as_bytes())
    }
}

fn line(entry: &Entry, format: Format, now: SystemTime) -> String {
    let time = humantime::format_rfc3339_millis(now).to_string();
    match format {
        Format::Text => text::one_line(&format!("{time} {entry}")) + "\n",
        Format::Json => {
            #[derive(Serialize)]
            struct Line<'a> {
                time: String,
                #[serde(flatten)]
                entry: &'a Entry,
            }
            // Strings alone: serialising them can't fail.
            text::json(&serde_json::to_string(&Line { time, entry }).unwrap_or_default()) + "\n"
        }
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = if self.result == Outcome::Done { "done" } else { "refused" };
        write!(f, "{} {result}", self.event)?;
        for (key, value) in [
            ("identity", &self.identity),
            ("owner", &self.owner),
            ("source", &self.source),
            ("subject", &self.subject),
            ("reason", &self.reason),
        ] {
            if !value.is_empty() {
                write!(f, " {key}={value:?}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
