//! Files that a user has a command write.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};

/// A file that is known to be writable. It stays as it was until it is written: a run that ends
/// before then leaves no empty file, and keeps an older file.
pub struct OutputFile<'a> {
    path: &'a Path,
    file: File,
    /// Whether the file was not there before, and is empty.
    fresh: bool,
}

impl<'a> OutputFile<'a> {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// If it can't be written, or is another user's symbolic link.
    pub fn create(path: &'a Path) -> anyhow::Result<Self> {
        let opened = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let found = std::fs::symlink_metadata(path).ok().filter(|found| found.is_symlink());
                if let Some(owner) = found.as_ref().map(|link| link.uid())
                    && !is_trusted(owner)
                {
                    bail!(
                        "cannot write {}: it is a symbolic link of user id {owner}; remove it, or choose another name",
                        path.display()
                    );
                }
                // A link that another user makes in this moment isn't followed.
                let flags = if found.is_some() { 0 } else { libc::O_NOFOLLOW };
                OpenOptions::new().write(true).custom_flags(flags).open(path).map(|file| (file, false))
            }
            made => made.map(|file| (file, true)),
        };
        let (file, fresh) = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file, fresh })
    }

    /// Replaces the file's content.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(mut self, text: &str) -> anyhow::Result<()> {
        self.fresh = false;
        // A pipe or a terminal has no length.
        let cut = if self.file.metadata().is_ok_and(|known| known.is_file()) {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        cut.and_then(|()| self.file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Whether a link of this owner is followed: root's and this user's are.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == nix::unistd::geteuid().as_raw()
}

impl Drop for OutputFile<'_> {
    fn drop(&mut self) {
        if self.fresh {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_exists_only_if_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("account.json");
        drop(OutputFile::create(&path).unwrap());
        assert!(!path.exists());
        OutputFile::create(&path).unwrap().write("long text").unwrap();
        drop(OutputFile::create(&path).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "long text");
        OutputFile::create(&path).unwrap().write("text").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        assert!(OutputFile::create(&directory.path().join("no/such")).is_err());
    }

    #[test]
    fn another_user_s_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(OutputFile::create(&link).is_ok(), "its own");
        // Only root can give the link away.
        if std::os::unix::fs::lchown(&link, Some(65534), None).is_ok() {
            let error = OutputFile::create(&link).map(drop).unwrap_err().to_string();
            assert!(error.contains("symbolic link of user id 65534"), "{error}");
        }
    }
}
