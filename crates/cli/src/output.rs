//! What `isthmus status`, `doctor` and `plan` write to stdout.

use std::io::{self, Write as _};

use anyhow::Context as _;
use isthmus_wire::text;
use serde::Serialize;

/// Writes the text, or with `json` the view, to stdout. Texts in the grid come from
/// other users' agents, so control characters are escaped: a terminal would obey them.
///
/// # Errors
/// If stdout can't be written. A pipe that its reader closed is no error.
pub(crate) fn print(view: &impl Serialize, text: &str, json: bool) -> anyhow::Result<()> {
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
pub(crate) fn printed(view: &impl Serialize, text: &str, json: bool) -> anyhow::Result<String> {
    if json {
        let document = serde_json::to_string_pretty(view).context("cannot write JSON")? + "\n";
        // RFC 8259 allows most of them unescaped; a terminal obeys or hides them.
        Ok(text::json(&document))
    } else {
        Ok(text::lines(text))
    }
}

/// The text with its control characters escaped, line feeds among them.
pub(crate) fn one_line(text: &str) -> String {
    text::one_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{9b}é"), r"a\u{1b}[2J\nb\u{9b}é");
        assert_eq!(printed(&"a\u{1b}\u{9b}é", "", true).unwrap(), "\"a\\u001b\\u009bé\"\n");
        assert_eq!(printed(&"", "a\rb\u{202e}\n", false).unwrap(), "a\\rb\\u{202e}\n");
    }
}
