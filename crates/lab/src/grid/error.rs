//! Errors of a grid file, with their place: every message comes with the
//! line it is about.

use std::path::PathBuf;

use isthmus_common::fault::Place;
pub(super) use isthmus_common::fault::{Fault, fault};

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

impl GridError {
    /// The error of a fault in the file `origin` whose content is `text`.
    pub(super) fn of(fault: Fault, origin: &str, text: &str) -> Self {
        let Place { line, excerpt, .. } = fault.place(text);
        Self::Invalid { origin: origin.to_owned(), line, message: fault.message, excerpt }
    }
}
