// Included by build.rs and by the end-to-end tests, which compare.

use std::io;
use std::path::{Path, PathBuf};

/// A hash over all that the programs are made from: the files of crates/*/src and
/// crates/*/proto, the manifests and build scripts, and the lock file.
pub(crate) fn of(workspace: &Path) -> io::Result<String> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325; // FNV-1a
    let mut files = Vec::new();
    for path in parts(workspace)? {
        collect(&path, &mut files)?;
    }
    files.sort();
    for file in files {
        let name = file.strip_prefix(workspace).unwrap_or(&file).to_string_lossy().into_owned();
        let content = std::fs::read(&file)?;
        let lengths = [name.len() as u64, content.len() as u64].map(u64::to_le_bytes).concat();
        for byte in lengths.iter().chain(name.as_bytes()).chain(&content) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

/// The manifests, the lock file, the build scripts, and the directories `src` and `proto` of each
/// crate, as far as they exist.
pub(crate) fn parts(workspace: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts = vec![workspace.join("Cargo.toml"), workspace.join("Cargo.lock")];
    for entry in std::fs::read_dir(workspace.join("crates"))? {
        let directory = entry?.path();
        parts.extend(["Cargo.toml", "build.rs", "src", "proto"].map(|name| directory.join(name)));
    }
    parts.retain(|path| path.exists());
    Ok(parts)
}

fn collect(path: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_file() {
        found.push(path.to_owned());
    } else if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), found)?;
        }
    }
    Ok(())
}
