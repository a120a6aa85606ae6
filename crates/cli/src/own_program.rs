//! The further programs of isthmus.

use std::path::PathBuf;

use anyhow::Context as _;
use isthmus_service::files::installed;

/// Path of another program of isthmus: beside this one, or in ../lib/isthmus.
///
/// # Errors
/// It is in neither place. The error names them.
pub(crate) fn find(name: &str) -> anyhow::Result<PathBuf> {
    let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
    let places = installed(&isthmus, name);
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.with_context(|| {
        let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("cannot find {name}: looked for {}", looked.join(" and "))
    })
}
