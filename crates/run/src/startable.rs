//! Whether the user's command can be started here, as a shell finds that, before any node is
//! asked.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Why the user's command can't be started here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unstartable {
    /// The command names a file by its path, and there is none.
    #[error("{0}: there is no such file on this node")]
    NoFile(String),
    /// No directory of `PATH` has a program of this name.
    #[error("{0}: command not found on this node")]
    NotFound(String),
    /// No directory of `PATH` has a program of this name, but the working directory has it.
    #[error("{0}: command not found on this node; the program in this directory is ./{0}")]
    Here(String),
    /// The file may not be executed.
    #[error("{0} is not executable: chmod +x {0} makes it so")]
    NotExecutable(String),
    /// The command names a directory.
    #[error("{0} is a directory, not a program")]
    Directory(String),
}

impl Unstartable {
    /// The exit status that shells and env(1) have for this failure.
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::NoFile(_) | Self::NotFound(_) | Self::Here(_) => 127,
            Self::NotExecutable(_) | Self::Directory(_) => 126,
        }
    }
}

/// Looks for a program as execvp(3) does, with this `PATH`.
///
/// # Errors
/// [`Unstartable`].
pub(super) fn check(program: &str, search_path: &str) -> Result<(), Unstartable> {
    let name = program.to_owned();
    if program.contains('/') {
        return match Path::new(program) {
            path if path.is_dir() => Err(Unstartable::Directory(name)),
            path if is_executable(path) => Ok(()),
            path if path.exists() => Err(Unstartable::NotExecutable(name)),
            _ => Err(Unstartable::NoFile(name)),
        };
    }
    let places: Vec<PathBuf> =
        std::env::split_paths(search_path).map(|directory| directory.join(program)).collect();
    if places.iter().any(|path| is_executable(path)) {
        return Ok(());
    }
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Err(Unstartable::NotExecutable(path.display().to_string())),
        None if !name.is_empty() && is_executable(Path::new(program)) => Err(Unstartable::Here(name)),
        None => Err(Unstartable::NotFound(name)),
    }
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, mode| {
            let path = directory.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let (program, data) = (write("app", 0o755), write("data", 0o644));
        let here = directory.path().display().to_string();
        let path = format!("/nonexistent:{here}");
        let of = |make: fn(String) -> Unstartable, name: &str, status| Some((make(name.to_owned()), status));
        for (name, path, want) in [
            (program.as_str(), "", None),
            ("app", path.as_str(), None),
            ("app", "/nonexistent", of(Unstartable::NotFound, "app", 127)),
            ("", &path, of(Unstartable::NotFound, "", 127)),
            ("data", &path, of(Unstartable::NotExecutable, &data, 126)),
            (&data, "", of(Unstartable::NotExecutable, &data, 126)),
            (&here, "", of(Unstartable::Directory, &here, 126)),
            ("/no/such/file", "", of(Unstartable::NoFile, "/no/such/file", 127)),
            // The tests run in the crate's directory.
            ("Cargo.toml", "/nonexistent", of(Unstartable::NotFound, "Cargo.toml", 127)),
        ] {
            let got = check(name, path).err().map(|error| (error.clone(), error.status()));
            assert_eq!(got, want, "{name}");
        }
    }
}
