//! Errors of a grid file, with their place: every message comes with the
//! line it is about.

use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use toml::Spanned;

/// Why a grid was refused.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// The grid file can't be read.
    #[error("cannot read grid file {path}: {cause}", path = .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error at reading the file.
        cause: std::io::Error,
    },
    /// The file isn't TOML, has other tables than a grid's, or its values make no grid.
    #[error("{origin}:{line}: {message}{excerpt}")]
    Invalid {
        /// Name of the file.
        origin: String,
        /// Line of the wrong value, counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
        /// The file's line with the wrong value marked, on lines of its own. Empty if something is
        /// missing.
        excerpt: String,
    },
}

/// Something wrong in a grid file. The range `at` is in bytes of the file, and empty at 0 if the
/// fault is in the file as a whole.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: Range<usize>,
    pub message: String,
}

pub(super) fn fault<T, V>(value: &Spanned<V>, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at: value.span(), message: message.into() })
}

impl Fault {
    /// A fault with the parser's message, and a guess at the intended word.
    pub(super) fn of_syntax(error: &toml::de::Error) -> Self {
        let message = error.message().trim_end();
        let guess = guess(message).map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default();
        Self { at: error.span().unwrap_or(0..0), message: format!("{message}{guess}") }
    }

    /// The error about the file `origin` whose content is `text`.
    pub(super) fn in_file(self, origin: &str, text: &str) -> GridError {
        let Self { at, message } = self;
        let line = text.bytes().take(at.start).filter(|byte| *byte == b'\n').count() + 1;
        let excerpt = if text.get(at.clone()).is_some() && !text.is_empty() && at != (0..0) {
            excerpt(text, first_line(text, at))
        } else {
            String::new()
        };
        GridError::Invalid { origin: origin.to_owned(), line, message, excerpt }
    }
}

/// The part of `at` on its first line, as a table over several lines is marked where it begins.
fn first_line(text: &str, at: Range<usize>) -> Range<usize> {
    match text[at.clone()].trim_end().find('\n') {
        Some(length) => at.start..at.start + length,
        None => at,
    }
}

fn excerpt(text: &str, at: Range<usize>) -> String {
    let snippet = Snippet::source(text).annotation(AnnotationKind::Primary.span(at));
    let group = Group::with_level(Level::ERROR).element(snippet);
    format!("\n{}", Renderer::plain().render(&[group]).trim_end())
}

/// How alike a misspelt word and the intended word must be, from 0 to 1.
const ALIKE: f64 = 0.6;

/// The expected word that is most like the found word. `None` unless the message is "unknown …
/// `FOUND`, expected one of `A`, `B`" and a word is enough alike.
fn guess(message: &str) -> Option<&str> {
    let (found, expected) = message.strip_prefix("unknown ")?.split_once(", expected ")?;
    let found = found.split('`').nth(1)?;
    let words = expected.split('`').skip(1).step_by(2);
    let likeness = |word: &str| strsim::normalized_damerau_levenshtein(word, found);
    words
        .map(|word| (likeness(word), word))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_guessed() {
        for (message, guessed) in [
            ("unknown field `nodez`, expected one of `name`, `kind`, `nodes`", Some("nodes")),
            ("unknown variant `simmetric-nat`, expected `nat` or `symmetric-nat`", Some("symmetric-nat")),
            ("unknown field `sbunet`, expected `subnet`", Some("subnet")),
            ("unknown field `colour`, expected one of `name`, `kind`", None),
            ("invalid IPv4 address syntax", None),
            ("unknown", None),
        ] {
            assert_eq!(guess(message), guessed, "{message}");
        }
    }

    #[test]
    fn the_value_is_marked() {
        let text = "name = \"a\"\nkind = \"é\" # why\n";
        let at = text.find("\"é\"").unwrap();
        let error =
            Fault { at: at..at + "\"é\"".len(), message: "no".into() }.in_file("file", text).to_string();
        assert_eq!(error, "file:2: no\n  |\n2 | kind = \"é\" # why\n  |        ^^^");
    }

    #[test]
    fn a_fault_of_the_whole_file_marks_nothing() {
        let error = Fault { at: 0..0, message: "no nodes".into() }.in_file("file", "").to_string();
        assert_eq!(error, "file:1: no nodes");
    }
}
