//! Lists of files, which nodes send.

use std::path::{Component, Path};

use isthmus_run::staging::paths;

/// Lists of files that are fetched: an accepted one writes below the path that was asked for, and
/// nowhere else.
pub fn staging(bytes: &[u8]) {
    let Some(paths) = paths(bytes, &["/data/results".to_owned()], ".beta") else { return };
    for path in paths {
        let below = path.strip_prefix(Path::new("/data/results.beta"));
        assert!(below.is_ok_and(|below| below.components().all(|part| matches!(part, Component::Normal(_)))));
    }
}
