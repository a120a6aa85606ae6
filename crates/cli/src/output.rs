//! What `isthmus status`, `doctor` and `plan` write to stdout.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;

/// Writes the text, or with `json` the view, to stdout. Texts in the grid come from
/// other users' agents, so control characters are escaped: a terminal would obey them.
///
/// # Errors
/// If stdout can't be written. A pipe that its reader closed is no error.
pub(crate) fn print(view: &impl Serialize, text: &str, json: bool) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(view).context("cannot write JSON")? + "\n"
    } else {
        escaped(text, |character| character != '\n')
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The text with its control characters escaped, line feeds among them.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |_| true)
}

fn escaped(text: &str, which: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && which(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{9b}é"), r"a\u{1b}[2J\nb\u{9b}é");
        assert_eq!(escaped("a\rb\n", |character| character != '\n'), "a\\rb\n");
    }
}
