//! Printing for people who may stop reading, and files that they have written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Writes `text` to standard output. If the reader has left, as `head` does, that is no error.
pub(super) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Makes a file, or replaces its content. A symbolic link of another user is not followed, as root
/// often runs a lab.
///
/// # Errors
/// `path` is another user's symbolic link, or open(2) fails.
pub(super) fn create(path: &Path, mode: u32) -> io::Result<File> {
    let link = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink);
    let is_own = |owner: u32| owner == 0 || owner == nix::unistd::geteuid().as_raw();
    let flags = match link {
        Some(link) if is_own(link.uid()) => 0,
        Some(link) => {
            let owner = link.uid();
            return Err(io::Error::other(format!("it is a symbolic link of user id {owner}; remove it")));
        }
        // A link that is made in this moment isn't followed either.
        None => libc::O_NOFOLLOW,
    };
    OpenOptions::new().write(true).create(true).truncate(true).mode(mode).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| directory.path().join(name));
        create(&target, 0o600).unwrap().write_all(b"kept").unwrap();
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        create(&link, 0o600).unwrap().write_all(b"own").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "own");
        // Only root can give the link away.
        if std::os::unix::fs::lchown(&link, Some(65534), None).is_ok() {
            let error = create(&link, 0o600).unwrap_err().to_string();
            assert!(error.contains("symbolic link of user id 65534"), "{error}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "own");
        }
    }
}
