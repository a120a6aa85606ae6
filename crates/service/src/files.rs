//! Secrets on disk: directories and files that only their owner may read. After a
//! crash a file has either its old or its new content. Another user who may write to
//! the file's directory can't redirect a write by a symbolic link.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{mac, private};

/// A file or directory that couldn't be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried: "read", "write" or "create".
    pub action: &'static str,
    /// The path of the file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

/// The places of a file that belongs to a command: beside the command, or in ../lib/isthmus.
pub fn installed(command: &Path, file: &str) -> Vec<PathBuf> {
    let directory = command.parent();
    let beside = directory.map(|directory| directory.join(file));
    let library = directory.and_then(Path::parent).map(|prefix| prefix.join("lib/isthmus").join(file));
    beside.into_iter().chain(library).collect()
}

/// Makes a directory and its parents. New directories get mode 0700.
///
/// # Errors
/// If it can't be made, or if it exists and another user could put something in it, such as an
/// `isthmus.toml`.
pub fn create_directory(path: &Path) -> Result<(), FileError> {
    let failed = |action, source| FileError { action, path: path.to_owned(), source };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| failed("create", source))?;
    private::check(path).map_err(|error| failed("keep secrets in", io::Error::other(error.to_string())))
}

/// Writes a file with these permission bits, or replaces it. A symbolic link at `path` is replaced,
/// not followed.
///
/// # Errors
/// If the file can't be written.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    // No other user can make a file or link of a random name beforehand.
    let random = u128::from_ne_bytes(mac::random());
    let temporary = path.with_extension(format!("new-{random:032x}"));
    let result = write_new(&temporary, content, mode).and_then(|()| std::fs::rename(&temporary, path));
    if result.is_err() {
        // If this fails, the first error is the one that matters.
        let _ = std::fs::remove_file(&temporary);
    }
    result.map_err(|source| FileError { action: "write", path: path.to_owned(), source })
}

/// Opens a file for writing; its content stays. A file that doesn't exist is made with these
/// permission bits.
pub fn create(path: &Path, mode: u32) -> Result<File, FileError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(mode).open(path);
    opened.map_err(|source| FileError { action: "create", path: path.to_owned(), source })
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // `O_EXCL` follows no link.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // umask may have cleared bits.
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()?;
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Reads a text file.
///
/// # Errors
/// If the file can't be read.
pub fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|source| FileError {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

/// Reads a text file that holds a secret.
///
/// # Errors
/// If the file can't be read, others than its owner may read it, or it belongs to another user.
pub fn read_secret(path: &Path) -> Result<String, FileError> {
    let refuse = |source| FileError { action: "read", path: path.to_owned(), source };
    let found = std::fs::metadata(path).map_err(refuse)?;
    if !private::is_trusted(&found) {
        let reason = format!("it belongs to user id {}, who knows the secret", found.uid());
        return Err(refuse(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
    }
    let mode = found.permissions().mode();
    if mode & 0o077 != 0 {
        let reason = format!("others may read it (mode {:03o}); run chmod 600 on it", mode & 0o777);
        return Err(refuse(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
    }
    read(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_readable_by_their_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/key.pem");
        create_directory(path.parent().unwrap()).unwrap();
        write(&path, b"one", 0o644).unwrap();
        assert!(read_secret(&path).unwrap_err().to_string().contains("chmod 600"));
        write(&path, b"two", 0o600).unwrap();
        assert_eq!(read_secret(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn secrets_of_other_users_and_their_directories_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (open, path) = (directory.path().join("open"), directory.path().join("key.pem"));
        create_directory(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = create_directory(&open).unwrap_err().to_string();
        assert!(error.contains("keep secrets in") && error.contains("chmod go-w"), "{error}");
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not tested: changing the owner needs root");
            return;
        }
        write(&path, b"planted", 0o600).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let error = read_secret(&path).unwrap_err().to_string();
        assert!(error.contains("belongs to user id 65534"), "{error}");
        std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
        let error = create_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains("belongs to user id 65534"), "{error}");
    }

    #[test]
    fn links_are_replaced_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, path) = (directory.path().join("target"), directory.path().join("token"));
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write(&path, b"secret", 0o600).unwrap();
        assert_eq!(read(&target).unwrap(), "kept");
        assert_eq!(read(&path).unwrap(), "secret");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_file_that_another_user_made_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "another's").unwrap();
        assert_eq!(write_new(&path, b"secret", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read(&path).unwrap(), "another's");
    }
}
