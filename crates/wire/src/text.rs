//! Texts of other parties: characters that a terminal obeys or hides.

use std::fmt::{Display, Write as _};

/// A text has a character that a terminal obeys or hides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has the control character or invisible character U+{code:04X}, which is not allowed")]
pub struct UnsafeText {
    /// The name of the field, such as "a host name".
    pub what: &'static str,
    /// The first character that a terminal obeys or hides.
    pub code: u32,
}

/// Whether a terminal obeys a character or hides it. That is so for C0, DEL, C1, and the marks and
/// overrides of bidirectional text (UAX #9). It is so for other characters without a shape, too
/// (Default_Ignorable_Code_Point of Unicode, and the line and paragraph separators).
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Checks a text of another party; `what` names the field.
///
/// # Errors
/// [`UnsafeText`] if it has a character that [`is_unsafe`].
pub fn check(what: &'static str, text: &str) -> Result<(), UnsafeText> {
    match text.chars().find(|character| is_unsafe(*character)) {
        Some(character) => Err(UnsafeText { what, code: character.into() }),
        None => Ok(()),
    }
}

/// The first `limit` names of a list, and how many names are missing: those left out here, and
/// `more`.
pub fn first<T: Display>(names: impl ExactSizeIterator<Item = T>, more: u64, limit: usize) -> String {
    let more = more.saturating_add(names.len().saturating_sub(limit) as u64);
    let named = names.take(limit).map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// The text on one line, with unsafe characters as escapes: `\u{1b}`, `\n`.
pub fn one_line(text: &str) -> String {
    escape(text, is_unsafe, |out, character| out.extend(character.escape_default()))
}

/// The text with unsafe characters as escapes, such as `\u{1b}`. Line feeds stay.
pub fn lines(text: &str) -> String {
    let which = |character| character != '\n' && is_unsafe(character);
    escape(text, which, |out, character| out.extend(character.escape_default()))
}

/// A JSON document with unsafe characters as JSON's escapes, which leave the document's meaning as
/// it is. Line feeds stay.
pub fn json(document: &str) -> String {
    let which = |character| character != '\n' && is_unsafe(character);
    escape(document, which, |out, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            // A String takes everything.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn escape(text: &str, which: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if which(character) { escape(&mut escaped, character) } else { escaped.push(character) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_refused_and_escaped() {
        for (text, line, in_json) in [
            ("mpirun -n 2 ./é 漢字", "mpirun -n 2 ./é 漢字", "mpirun -n 2 ./é 漢字"),
            ("a\u{1b}[2Jb", r"a\u{1b}[2Jb", r"a\u001b[2Jb"),
            ("a\u{9b}\u{7f}", r"a\u{9b}\u{7f}", r"a\u009b\u007f"),
            ("n\u{202e}1\u{2066}", r"n\u{202e}1\u{2066}", r"n\u202e1\u2066"),
            ("a\rb\u{200b}", r"a\rb\u{200b}", r"a\u000db\u200b"),
            ("\u{e0041}", r"\u{e0041}", r"\udb40\udc41"),
        ] {
            assert_eq!((one_line(text), json(text)), (line.to_owned(), in_json.to_owned()));
            assert_eq!(check("a name", text).is_ok(), text == line, "{line}");
        }
        assert_eq!((one_line("a\nb"), lines("a\nb\r")), (r"a\nb".to_owned(), "a\nb\\r".to_owned()));
        let error = check("a host name", "x\u{1b}").unwrap_err().to_string();
        assert_eq!(
            error,
            "a host name has the control character or invisible character U+001B, which is not allowed"
        );
    }
}
