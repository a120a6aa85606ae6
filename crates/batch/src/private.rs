//! A directory that only this user can read, and files in it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::{BatchError, Word};

/// Most bytes of the end of a file.
const TAIL: u64 = 8 << 10;

/// A directory of this user's with mode 0700.
#[derive(Debug, Clone)]
pub(crate) struct Private {
    path: PathBuf,
}

impl Private {
    /// Opens the directory, and makes it if it isn't there. Its path goes into scripts, so it has
    /// only characters that no shell reads more into.
    pub(crate) fn open(path: &Path) -> Result<Self, BatchError> {
        let wrong = |why: String| BatchError::File { path: path.to_owned(), why };
        let plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+@-".contains(&byte));
        if !path.is_absolute() || !path.to_str().is_some_and(plain) {
            return Err(wrong(
                "its path must be absolute, of the characters A-Z a-z 0-9 / . _ + @ -".to_owned(),
            ));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| wrong(error.to_string()))?;
        let found = fs::symlink_metadata(path).map_err(|error| wrong(error.to_string()))?;
        let user = nix::unistd::geteuid().as_raw();
        if !found.is_dir() || found.uid() != user {
            return Err(wrong(format!(
                "it must be a directory of user {user}'s; remove it, or name another one"
            )));
        }
        if found.permissions().mode() & 0o077 != 0 {
            return Err(wrong(
                "others may open it; run chmod 700 on it, or name another directory".to_owned(),
            ));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, such as `NAME.script`.
    pub(crate) fn path(&self, name: &Word, kind: &str) -> PathBuf {
        self.path.join(format!("{name}.{kind}"))
    }

    /// Writes a file with mode 0600, whole or not at all.
    pub(crate) fn write(&self, name: &Word, kind: &str, bytes: &[u8]) -> Result<PathBuf, BatchError> {
        let (path, new) = (self.path(name, kind), self.path(name, &format!("{kind}.new")));
        let write = || {
            remove(&new)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write()
            .map_err(|error: io::Error| BatchError::File { path: path.clone(), why: error.to_string() })?;
        Ok(path)
    }

    /// What a file has, up to a number of bytes; `None` if it isn't there.
    pub(crate) fn read(&self, name: &Word, kind: &str, most: u64) -> Result<Option<Vec<u8>>, BatchError> {
        let path = self.path(name, kind);
        let wrong = |why: String| BatchError::File { path: path.clone(), why };
        let file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| wrong(error.to_string()))?,
        };
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > most {
            Err(wrong(format!("it has more than {most} bytes")))
        } else {
            Ok(Some(bytes))
        }
    }

    /// The end of a file, [`TAIL`] bytes at most. What isn't UTF-8 is replaced.
    pub(crate) fn tail(&self, name: &Word, kind: &str) -> Option<String> {
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).custom_flags(nix::libc::O_NOFOLLOW).open(self.path(name, kind)).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Removes files of a pilot, if they are there.
    pub(crate) fn remove(&self, name: &Word, kinds: &[&str]) -> Result<(), BatchError> {
        for kind in kinds {
            let path = self.path(name, kind);
            remove(&path).map_err(|error| BatchError::File { path, why: error.to_string() })?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_can_read_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let private = Private::open(&path).unwrap();
        let name = "p1".parse().unwrap();
        let file = private.write(&name, "secret", b"token").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&file)), (0o700, 0o600));
        assert_eq!(private.read(&name, "secret", 5).unwrap().as_deref(), Some(&b"token"[..]));
        assert!(private.read(&name, "secret", 4).is_err());
        private.write(&name, "secret", b"new").unwrap();
        assert_eq!(private.read(&name, "secret", 5).unwrap().as_deref(), Some(&b"new"[..]));
        private.remove(&name, &["secret", "script"]).unwrap();
        assert_eq!(private.read(&name, "secret", 5).unwrap(), None);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_others_may_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(Private::open(&open).unwrap_err().to_string().contains("chmod 700"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert!(Private::open(&link).is_err());
        for path in ["relative", "/tmp/a b", "/tmp/$(x)", "/tmp/a'b", "/tmp/a:b"] {
            assert!(Private::open(Path::new(path)).is_err(), "{path}");
        }
    }
}
