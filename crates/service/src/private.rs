//! Paths at which no other user can put anything: those of the agent's socket, of the
//! library that is preloaded, and of all that a job reads.
//!
//! A path is private if each directory on it belongs to this user or to root, and no
//! other user may write to it. A directory with the sticky bit may be writable: other
//! users can't rename in it what this user made.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Gid, Group, Uid, User};

const REMEDY: &str = "remove it, or choose another directory";

/// Why a path can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// Another user owns the file or directory.
    #[error(
        "{} belongs to user id {owner}, not to user id {user}, so another user decides what it holds; {REMEDY}",
        path.display()
    )]
    Owner {
        /// The path of the file or directory.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The id of this process's effective user.
        user: u32,
    },
    /// Others than the owner may write to the file or directory.
    #[error(
        "{} (owner: user id {owner}, mode {mode:04o}) may be written by other users than user id {user}; \
         run chmod go-w on it, or choose another directory",
        path.display()
    )]
    Writable {
        /// The path of the file or directory.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The permission bits of its mode.
        mode: u32,
        /// The id of this process's effective user.
        user: u32,
    },
    /// The path leads to something of another type.
    #[error("{} (owner: user id {owner}) is not a {wanted}; {REMEDY}", path.display())]
    Kind {
        /// The path of the file or directory.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The type that was wanted: "directory" or "socket".
        wanted: &'static str,
    },
    /// The process behind a socket runs as another user.
    #[error(
        "the process that listens at {} runs as user id {owner}, not as user id {user}; {REMEDY}",
        path.display()
    )]
    Peer {
        /// The path of the socket.
        path: PathBuf,
        /// The id of the user that the process runs as.
        owner: u32,
        /// The id of this process's effective user.
        user: u32,
    },
    /// The operating system refused an action.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried: "create" or "read".
        action: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A directory as lstat(2) describes it.
#[derive(Debug, Clone, Copy)]
struct Found {
    is_directory: bool,
    owner: u32,
    /// The permission bits, with the sticky bit.
    mode: u32,
    /// Whether its group has no member but this user, or is root's.
    group_is_own: bool,
}

/// The users whose files are believed.
#[derive(Debug, Clone, Copy)]
struct Trusted {
    /// The id of this process's effective user.
    user: u32,
    /// The owner of `/`. It differs from 0 in a user namespace without root.
    root: u32,
}

/// What a directory on a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryRole {
    /// The directory only holds another directory of the path.
    Ancestor,
    /// This process puts files into the directory, or reads them there.
    Last,
}

/// What is wrong with a directory of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Kind,
    Owner,
    Writable,
}

/// Decides whether a directory may be on a private path.
fn judge(found: Found, role: DirectoryRole, trusted: Trusted) -> Result<(), Wrong> {
    const STICKY: u32 = 0o1000;
    if !found.is_directory {
        return Err(Wrong::Kind);
    }
    if !trusted.owns(found.owner) {
        return Err(Wrong::Owner);
    }
    let kept = role == DirectoryRole::Ancestor && found.mode & STICKY != 0;
    if found.is_open() && !kept { Err(Wrong::Writable) } else { Ok(()) }
}

impl Found {
    /// Whether other users may make files in the directory.
    fn is_open(self) -> bool {
        const GROUP_WRITES: u32 = 0o020;
        const OTHERS_WRITE: u32 = 0o002;
        self.mode & OTHERS_WRITE != 0 || (self.mode & GROUP_WRITES != 0 && !self.group_is_own)
    }
}

/// Whether users other than this user and root may make files in a directory, with the sticky bit
/// or without.
pub fn is_open(directory: &Metadata) -> bool {
    describe(directory).is_open()
}

/// Whether a file belongs to this user or to root.
pub fn is_trusted(file: &Metadata) -> bool {
    Trusted::now().owns(file.uid())
}

/// Checks an existing directory, in which this process keeps files. The directories above it aren't
/// checked: a home may be below a directory of another user, who then has the home, too.
///
/// # Errors
/// If another user could put something into the directory.
pub fn check(directory: &Path) -> Result<(), PrivateError> {
    check_one(&canonical(directory)?, DirectoryRole::Last, Trusted::now())
}

impl Trusted {
    fn owns(self, owner: u32) -> bool {
        owner == self.user || owner == 0 || owner == self.root
    }

    fn now() -> Self {
        let root = fs::metadata("/").map_or(0, |found| found.uid());
        Self { user: nix::unistd::geteuid().as_raw(), root }
    }
}

/// Makes a directory and its parents with mode 0700, and checks the whole path. Returns the path
/// without symbolic links.
///
/// # Errors
/// If the directory can't be made or doesn't belong to this user, or if another user could put
/// something there.
pub fn make_directory(path: &Path) -> Result<PathBuf, PrivateError> {
    let path = &std::path::absolute(path).map_err(|source| PrivateError::System {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let existing = path.ancestors().find(|ancestor| fs::symlink_metadata(ancestor).is_ok());
    let existing = existing.unwrap_or(Path::new("/"));
    let mut real = canonical(existing)?;
    check_directory(&real, if existing == path { DirectoryRole::Last } else { DirectoryRole::Ancestor })?;
    for component in path.strip_prefix(existing).unwrap_or(Path::new("")) {
        real.push(component);
        match DirBuilder::new().mode(0o700).create(&real) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(PrivateError::System { action: "create", path: real, source });
            }
            _ => {}
        }
    }
    let real = canonical(&real)?;
    check_directory(&real, DirectoryRole::Last)?;
    let (owner, user) = (lstat(&real)?.uid(), Trusted::now().user);
    if owner == user { Ok(real) } else { Err(PrivateError::Owner { path: real, owner, user }) }
}

/// Checks a Unix socket of this user's or root's, and its whole path, before a connection to it.
/// Returns the path without symbolic links.
///
/// # Errors
/// If the socket isn't there, or another user could have put it there.
pub fn check_socket(path: &Path) -> Result<PathBuf, PrivateError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut real = canonical(directory)?;
    check_directory(&real, DirectoryRole::Last)?;
    real.push(path.file_name().unwrap_or_default());
    let found = lstat(&real)?;
    let (owner, mode, trusted) = (found.uid(), found.mode() & 0o7777, Trusted::now());
    if !found.file_type().is_socket() {
        return Err(PrivateError::Kind { path: real, owner, wanted: "socket" });
    }
    if owner != trusted.user && owner != 0 {
        return Err(PrivateError::Owner { path: real, owner, user: trusted.user });
    }
    if mode & 0o022 != 0 {
        return Err(PrivateError::Writable { path: real, owner, mode, user: trusted.user });
    }
    Ok(real)
}

/// Checks that the process at the other end of a connection runs as this user or as root. `path` is
/// the socket's, for the error.
///
/// # Errors
/// If the process runs as another user.
pub fn check_peer(stream: &impl AsFd, path: &Path) -> Result<(), PrivateError> {
    let peer = getsockopt(stream, PeerCredentials).map_err(|error| PrivateError::System {
        action: "read the peer's user id of",
        path: path.to_owned(),
        source: error.into(),
    })?;
    let (owner, user) = (peer.uid(), nix::unistd::geteuid().as_raw());
    if owner == user || owner == 0 {
        return Ok(());
    }
    Err(PrivateError::Peer { path: path.to_owned(), owner, user })
}

/// Checks each directory of a path without symbolic links.
fn check_directory(path: &Path, role: DirectoryRole) -> Result<(), PrivateError> {
    let trusted = Trusted::now();
    let mut ancestors: Vec<_> = path.ancestors().collect();
    ancestors.reverse();
    for ancestor in ancestors {
        let role = if ancestor == path { role } else { DirectoryRole::Ancestor };
        check_one(ancestor, role, trusted)?;
    }
    Ok(())
}

fn check_one(path: &Path, role: DirectoryRole, trusted: Trusted) -> Result<(), PrivateError> {
    let found = describe(&lstat(path)?);
    let (path, owner, user) = (path.to_owned(), found.owner, trusted.user);
    judge(found, role, trusted).map_err(|wrong| match wrong {
        Wrong::Kind => PrivateError::Kind { path, owner, wanted: "directory" },
        Wrong::Owner => PrivateError::Owner { path, owner, user },
        Wrong::Writable => PrivateError::Writable { path, owner, mode: found.mode, user },
    })
}

fn describe(metadata: &Metadata) -> Found {
    let mode = metadata.mode() & 0o7777;
    Found {
        is_directory: metadata.is_dir(),
        owner: metadata.uid(),
        mode,
        // The lookup may ask a directory service.
        group_is_own: mode & 0o020 != 0 && group_is_own(metadata.gid()),
    }
}

/// Whether a group is only this user's: it is root's, or it has the user's name and no other
/// member.
fn group_is_own(id: u32) -> bool {
    if id == 0 {
        return true;
    }
    let (Ok(Some(group)), Ok(Some(user))) =
        (Group::from_gid(Gid::from_raw(id)), User::from_uid(Uid::effective()))
    else {
        return false;
    };
    group.name == user.name && group.mem.iter().all(|member| *member == user.name)
}

fn canonical(path: &Path) -> Result<PathBuf, PrivateError> {
    fs::canonicalize(path).map_err(|source| PrivateError::System {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

fn lstat(path: &Path) -> Result<Metadata, PrivateError> {
    fs::symlink_metadata(path).map_err(|source| PrivateError::System {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    const TRUSTED: Trusted = Trusted { user: 1000, root: 0 };

    #[test]
    fn directories_that_others_may_write_are_refused() {
        use DirectoryRole::{Ancestor, Last};
        let found = Found { is_directory: true, owner: 1000, mode: 0o755, group_is_own: false };
        for (what, found, role, want) in [
            ("own", found, Last, Ok(())),
            ("root's", Found { owner: 0, ..found }, Last, Ok(())),
            ("another user's", Found { owner: 1001, ..found }, Last, Err(Wrong::Owner)),
            ("below another user's", Found { owner: 1001, ..found }, Ancestor, Err(Wrong::Owner)),
            ("a file", Found { is_directory: false, ..found }, Last, Err(Wrong::Kind)),
            ("for all", Found { mode: 0o777, ..found }, Ancestor, Err(Wrong::Writable)),
            ("for a group", Found { mode: 0o775, ..found }, Ancestor, Err(Wrong::Writable)),
            (
                "for the user's own group",
                Found { mode: 0o775, group_is_own: true, ..found },
                Ancestor,
                Ok(()),
            ),
            ("as /tmp", Found { mode: 0o1777, owner: 0, ..found }, Ancestor, Ok(())),
            ("/tmp itself", Found { mode: 0o1777, owner: 0, ..found }, Last, Err(Wrong::Writable)),
        ] {
            assert_eq!(judge(found, role, TRUSTED), want, "{what}");
        }
        let nobody = Found { owner: 65534, ..found };
        assert_eq!(judge(nobody, Ancestor, Trusted { root: 65534, ..TRUSTED }), Ok(()), "a user namespace");
        for (mode, group_is_own, want) in
            [(0o755, false, false), (0o1777, true, true), (0o1770, false, true), (0o1770, true, false)]
        {
            assert_eq!(Found { mode, group_is_own, ..found }.is_open(), want, "{mode:o} {group_is_own}");
        }
    }

    #[test]
    fn directories_are_made_for_their_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let made = make_directory(&base.join("a/b")).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(made.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        // A link is resolved once and for all.
        symlink(&made, base.join("link")).unwrap();
        assert_eq!(make_directory(&base.join("link")).unwrap(), made);
        symlink("/nonexistent", base.join("dangling")).unwrap();
        assert!(make_directory(&base.join("dangling")).is_err());
        fs::set_permissions(made.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = make_directory(&made).unwrap_err().to_string();
        assert!(error.contains("a (owner: user id ") && error.contains("chmod go-w"), "{error}");
    }

    #[test]
    fn a_link_within_what_is_made_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        let error = make_directory(&directory.path().join("file/below")).unwrap_err();
        assert!(matches!(error, PrivateError::Kind { .. }), "{error}");
    }

    #[test]
    fn sockets_are_checked_with_their_directories() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        assert!(check_socket(&path).unwrap_err().to_string().contains("No such file"));
        let _listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let real = check_socket(&path).unwrap();
        check_peer(&UnixStream::connect(&real).unwrap(), &real).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(check_socket(&path), Err(PrivateError::Writable { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(matches!(check_socket(&path), Err(PrivateError::Writable { .. })), "as in /tmp itself");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&path, directory.path().join("link")).unwrap();
        assert!(matches!(check_socket(&directory.path().join("link")), Err(PrivateError::Kind { .. })));
    }
}
