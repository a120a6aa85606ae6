//! What the command writes to stdout and stderr, but for the output of users' programs.
//!
//! Texts in the grid come from other parties: names, versions, reasons. A terminal would
//! obey control characters in them. So all that is written goes through this module,
//! which escapes them. Reasons of failed calls are on one line (`grpc::reason`).

use std::io::{self, Write as _};

use anyhow::Context as _;
use isthmus_wire::text;
use serde::Serialize;

/// Writes the text, or with `json` the view, to stdout. Texts in the grid come from
/// other users' agents, so control characters are escaped: a terminal would obey them.
///
/// # Errors If stdout can't be written. A pipe whose reader has closed it is no error.
pub fn print(view: &impl Serialize, text: &str, json: bool) -> anyhow::Result<()> {
    match io::stdout().write_all(printed(view, text, json)?.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The characters that [`print`] writes.
///
/// # Errors
/// If the view isn't valid as JSON.
pub fn printed(view: &impl Serialize, text: &str, json: bool) -> anyhow::Result<String> {
    if json {
        let document = serde_json::to_string_pretty(view).context("cannot write JSON")? + "\n";
        // RFC 8259 allows most of them unescaped; a terminal obeys or hides them.
        Ok(text::json(&document))
    } else {
        Ok(text::lines(text))
    }
}

/// Writes a line to stderr, or several, with control characters escaped. The terminal may
/// be gone; a panic would then keep a job from its orderly end.
pub fn message(text: &str) {
    write(&format!("isthmus: {text}\n"));
}

/// Writes whole lines to stderr, with control characters escaped, and ignores failure.
pub fn write(lines: &str) {
    let _ = io::stderr().lock().write_all(text::lines(lines).as_bytes());
}

/// The log of a service on stderr: each write is one event, and one line.
#[derive(Debug, Clone, Copy)]
pub struct Log;

impl io::Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(event_line(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn event_line(event: &[u8]) -> String {
    let event = String::from_utf8_lossy(event);
    text::one_line(event.strip_suffix('\n').unwrap_or(&event)) + "\n"
}

/// The text with its control characters escaped, line feeds among them.
pub fn one_line(text: &str) -> String {
    text::one_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{9b}é"), r"a\u{1b}[2J\nb\u{9b}é");
        assert_eq!(printed(&"a\u{1b}\u{9b}é", "", true).unwrap(), "\"a\\u001b\\u009bé\"\n");
        assert_eq!(event_line("warn a=\"x\u{202e}\ny\"\n".as_bytes()), "warn a=\"x\\u{202e}\\ny\"\n");
        assert_eq!(printed(&"", "a\rb\u{202e}\n", false).unwrap(), "a\\rb\\u{202e}\n");
    }
}
