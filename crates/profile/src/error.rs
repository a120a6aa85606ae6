//! Errors of a profile's file, with their place.

use isthmus_common::fault::{Fault, Place};

/// Why a file is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{line}:{column}: {message}{excerpt}")]
pub struct ProfileError {
    /// The name of the file.
    pub origin: String,
    /// The line of the wrong value, counted from 1.
    pub line: usize,
    /// The first character of the wrong value in its line, counted from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The file's line with the wrong value marked, on lines of its own. Empty if something is
    /// missing.
    pub excerpt: String,
}

impl ProfileError {
    /// The error of a fault in the file `origin` whose content is `text`.
    pub(crate) fn of(fault: Fault, origin: &str, text: &str) -> Self {
        let Place { line, column, excerpt } = fault.place(text);
        Self { origin: origin.to_owned(), line, column, message: fault.message, excerpt }
    }
}
