//! Faults in a TOML file that a user has written, each with its place in the file.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use toml::Spanned;

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, in bytes of the file; empty at 0 if the fault is in the file as a whole.
    pub at: Range<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Where a fault is, for its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line of the wrong value, counted from 1.
    pub line: usize,
    /// The first character of the wrong value in its line, counted from 1.
    pub column: usize,
    /// The file's line with the wrong value marked, on lines of its own. Empty if something is
    /// missing.
    pub excerpt: String,
}

/// A fault at a value.
///
/// # Errors
/// Always: the fault.
pub fn fault<T, V>(value: &Spanned<V>, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at: value.span(), message: message.into() })
}

impl Fault {
    /// A fault with the parser's message, and a guess at the intended word.
    pub fn of_syntax(error: &toml::de::Error) -> Self {
        let message = error.message().trim_end();
        let guess = guess(message).map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default();
        Self { at: error.span().unwrap_or(0..0), message: format!("{message}{guess}") }
    }

    /// The fault's place in the file, whose content is `text`.
    pub fn place(&self, text: &str) -> Place {
        let before = text.get(..self.at.start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Place {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            excerpt: match text.get(self.at.clone()) {
                Some(marked) if !text.is_empty() && self.at != (0..0) => {
                    excerpt(text, first_line(marked, self.at.clone()))
                }
                _ => String::new(),
            },
        }
    }
}

/// The part of `at` on its first line, as a table over several lines is marked where it begins.
fn first_line(marked: &str, at: Range<usize>) -> Range<usize> {
    match marked.trim_end().find('\n') {
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

    fn place(at: Range<usize>, text: &str) -> (usize, usize, String) {
        let Place { line, column, excerpt } = Fault { at, message: String::new() }.place(text);
        (line, column, excerpt)
    }

    #[test]
    fn the_value_is_marked() {
        let text = "name = \"a\"\nkind = \"é\" # why\n";
        let at = text.find("\"é\"").unwrap();
        let marked = "\n  |\n2 | kind = \"é\" # why\n  |        ^^^";
        assert_eq!(place(at..at + "\"é\"".len(), text), (2, 8, marked.to_owned()));
        let at = text.find('#').unwrap();
        let (line, column, _) = place(at..at + 1, text);
        assert_eq!((line, column), (2, 12), "a column is counted in characters");
    }

    #[test]
    fn a_fault_of_the_whole_file_marks_nothing() {
        for text in ["", "a = 1"] {
            assert_eq!(place(0..0, text), (1, 1, String::new()), "{text:?}");
        }
    }

    #[test]
    fn a_place_that_the_file_lacks_marks_nothing() {
        for (at, text) in [(9..10, "a"), (1..2, "é")] {
            assert_eq!(place(at, text), (1, 1, String::new()), "{text:?}");
        }
    }
}
