//! Where staged files are written.
//!
//! No symbolic link is followed below a path that the user has named: else a party that sends files
//! could have them written anywhere.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use isthmus_service::mac::{self, Secret};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::manifest::{BLOCK, FileEntry, PART};

/// Who may write to a directory: all users.
const WORLD_WRITABLE: u32 = 0o002;
/// Most former results of a path that are kept beside it.
const NUMBERS: u32 = 10_000;
/// Longest name of a file, in bytes (NAME_MAX of Linux).
const NAME_MAX: usize = 255;

/// Makes the directories above a path that the user has named.
///
/// # Errors
/// One can't be made, or another user has made one where all may.
pub(super) fn make_parents(path: &Path) -> anyhow::Result<()> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    for directory in above {
        if is_missing(directory) {
            // Another helper of the run may make it at the same time.
            match fs::create_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.with_context(|| cannot_make(directory))?,
            }
        }
        check_owner(directory)?;
        let followed = directory.metadata().with_context(|| cannot_make(directory))?;
        ensure!(followed.is_dir(), "{} is no directory", directory.display());
    }
    Ok(())
}

/// Checks that no other user has made what is at a path, in a directory where all users may. That user
/// could put something else there at any time.
///
/// # Errors
/// Another user has.
pub(super) fn check_owner(path: &Path) -> anyhow::Result<()> {
    let Some(above) = path.parent() else { return Ok(()) };
    let found = above.metadata().with_context(|| format!("cannot look at {}", above.display()))?;
    if found.mode() & WORLD_WRITABLE == 0 || is_missing(path) {
        return Ok(());
    }
    let found = path.symlink_metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    let own = [nix::unistd::geteuid().as_raw(), 0];
    ensure!(
        own.contains(&found.uid()),
        "{} belongs to user id {}, in a directory that all users may write to: choose another directory",
        path.display(),
        found.uid()
    );
    Ok(())
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn cannot_make(directory: &Path) -> String {
    format!(
        "cannot make the directory {}: run from a directory that you may make on all nodes",
        directory.display()
    )
}

/// Checks that the way from a root to an entry below it leads through directories only.
///
/// # Errors
/// Something else is in the way.
pub(super) fn check_way(root: &Path, below: &str) -> anyhow::Result<()> {
    let Some((above, _)) = below.rsplit_once('/') else { return Ok(()) };
    let mut path = root.to_owned();
    for name in above.split('/') {
        path.push(name);
        let found = path.symlink_metadata().with_context(|| format!("cannot look at {}", path.display()))?;
        ensure!(found.is_dir(), "{} is in the way: it is no directory", path.display());
    }
    Ok(())
}

/// Makes a directory. Returns whether it wasn't there. For now only its owner has rights in it.
///
/// # Errors
/// It can't be made, or something else is there.
pub(super) fn make_directory(path: &Path, is_root: bool) -> anyhow::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = if is_root { path.metadata() } else { path.symlink_metadata() };
            ensure!(found.is_ok_and(|found| found.is_dir()), "{} is there, and no directory", path.display());
            Ok(false)
        }
        made => made.map(|()| true).with_context(|| cannot_make(path)),
    }
}

/// Lets the owner, if that is this user, write in a directory. Returns whether that wasn't so.
///
/// # Errors
/// As chmod(2).
pub(super) fn open_directory(path: &Path) -> anyhow::Result<bool> {
    let found = path.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    let is_closed = found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o700 != 0o700;
    if is_closed {
        set_mode(path, found.mode() | 0o700, 0)?;
    }
    Ok(is_closed)
}

/// Gives what is at a path another name: the same with the next number.
///
/// # Errors
/// As rename(2), or there are very many numbers.
pub(super) fn move_aside(path: &Path) -> anyhow::Result<()> {
    let numbered = (1..NUMBERS).map(|number| PathBuf::from(format!("{}.{number}", path.display())));
    let free = numbered.into_iter().find(|path| is_missing(path));
    let free = free.with_context(|| format!("remove {}.1 and those after it", path.display()))?;
    fs::rename(path, free).with_context(|| format!("cannot rename {}", path.display()))
}

/// Gives a file or directory these permission bits, as far as the process's umask has them.
///
/// # Errors
/// As chmod(2).
pub(super) fn set_mode(path: &Path, mode: u32, umask: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode & 0o777 & !umask))
        .with_context(|| format!("cannot change the mode of {}", path.display()))
}

/// Gives a file that is there these permission bits, if it has others. If it is another user's, only
/// what its owner may do counts.
///
/// # Errors
/// As chmod(2): the file may be another user's.
pub(super) fn mend_mode(path: &Path, mode: u32, umask: u32) -> anyhow::Result<()> {
    let found = path.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    let counts = if found.uid() == nix::unistd::geteuid().as_raw() { 0o777 } else { 0o700 };
    if (found.mode() ^ (mode & !umask)) & counts == 0 { Ok(()) } else { set_mode(path, mode, umask) }
}

/// Makes a symbolic link. Another one at its path is replaced. Returns whether it wasn't there.
///
/// # Errors
/// It can't be made, or something else is there.
pub(super) fn make_link(path: &Path, target: &str) -> anyhow::Result<bool> {
    let failed = || format!("cannot make the symbolic link {}", path.display());
    match path.symlink_metadata() {
        Ok(found) if !found.is_symlink() => {
            bail!("{} is there, and no symbolic link", path.display())
        }
        Ok(_) if path.read_link().is_ok_and(|there| there == Path::new(target)) => return Ok(false),
        _ => {}
    }
    let new = unique(path);
    symlink(target, &new).with_context(failed)?;
    fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new))).with_context(failed)?;
    Ok(true)
}

/// A file of which not all is there. It is beside its target, with another name.
pub(super) struct Part {
    path: PathBuf,
    file: File,
    /// So that another run writes to another file.
    _lock: Lock,
    /// How many blocks are there.
    blocks: usize,
}

/// What a file needs.
pub(super) enum Need {
    /// Nothing: it is there.
    Nothing,
    /// All blocks.
    All,
    /// The blocks that a former run hasn't written.
    Rest(Part),
}

impl Need {
    /// Finds out what is there of a file. `read` is told how many bytes each block has that is.
    ///
    /// # Errors
    /// Something else is at its path, or a file can't be read.
    pub(super) fn find(
        path: &Path,
        wanted: &FileEntry,
        keys: &Secret,
        read: &mut dyn FnMut(u64),
    ) -> anyhow::Result<Self> {
        let failed = || format!("cannot read {}", path.display());
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => {
                let found = found.with_context(failed)?;
                ensure!(!found.is_dir(), "{} is a directory, and is to become a file", path.display());
                if found.is_file() && found.len() == wanted.bytes {
                    // What may not be read is replaced.
                    let mut file = open(path, OpenOptions::new().read(true)).ok();
                    let same = file.as_mut().map(|file| wanted.same_blocks(file, keys, read)).transpose();
                    if same.with_context(failed)? == Some(wanted.blocks.len()) {
                        return Ok(Self::Nothing);
                    }
                }
            }
        }
        let Some(part) = Part::left(path) else { return Ok(Self::All) };
        Ok(part.with_same_blocks(wanted, keys, read).map_or(Self::All, Self::Rest))
    }

    /// How many blocks are there.
    pub(super) fn blocks(&self) -> usize {
        match self {
            Self::Rest(part) => part.blocks,
            Self::Nothing | Self::All => 0,
        }
    }
}

impl Part {
    /// A new one.
    ///
    /// # Errors
    /// It can't be made.
    pub(super) fn new(target: &Path) -> anyhow::Result<Self> {
        let mut make = OpenOptions::new();
        make.write(true).create_new(true).mode(0o600);
        for path in [usual(target), unique(target)] {
            let file = match make.open(&path) {
                // That of another run, or of another user, stays.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.with_context(|| format!("cannot write to {}", path.display()))?,
            };
            // Another run may have found and locked it just now.
            if let Some(lock) = Lock::of(&file) {
                return Ok(Self { path, file, _lock: lock, blocks: 0 });
            }
        }
        bail!("another run writes to {}", target.display())
    }

    /// The one that a former run has left; `None` if there is none, or another run writes to it.
    fn left(target: &Path) -> Option<Self> {
        let path = usual(target);
        let file = open(&path, OpenOptions::new().read(true).write(true)).ok()?;
        let found = file.metadata().ok()?;
        let is_own = found.is_file() && found.nlink() == 1 && found.uid() == nix::unistd::geteuid().as_raw();
        let lock = Lock::of(&file).filter(|_| is_own)?;
        // The run that had it locked may have finished it.
        let there = path.symlink_metadata().ok()?;
        let is_same = there.ino() == found.ino() && there.dev() == found.dev();
        is_same.then_some(Self { path, file, _lock: lock, blocks: 0 })
    }

    /// Keeps the blocks that a file has. `None` if it can't be read or written.
    fn with_same_blocks(
        mut self,
        wanted: &FileEntry,
        keys: &Secret,
        read: &mut dyn FnMut(u64),
    ) -> Option<Self> {
        self.file.seek(SeekFrom::Start(0)).ok()?;
        self.blocks = wanted.same_blocks(&mut self.file, keys, read).ok()?;
        let kept = (self.blocks as u64 * BLOCK as u64).min(wanted.bytes);
        self.file.set_len(kept).ok()?;
        self.file.seek(SeekFrom::Start(kept)).ok()?;
        Some(self)
    }

    /// Writes the next block.
    ///
    /// # Errors
    /// As write(2).
    pub(super) fn write(&mut self, block: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(block).with_context(|| format!("cannot write to {}", self.path.display()))
    }

    /// Puts the file, which is whole, in its place.
    ///
    /// # Errors
    /// As close(2) and rename(2).
    pub(super) fn finish(self, target: &Path, mode: u32, umask: u32) -> anyhow::Result<()> {
        let Self { path, file, _lock, .. } = self;
        // A file server may say only now that its disk is full.
        let closed = nix::unistd::close(file).map_err(io::Error::from);
        closed.with_context(|| format!("cannot write to {}", path.display()))?;
        set_mode(&path, mode, umask)?;
        fs::rename(&path, target).with_context(|| format!("cannot write {}", target.display()))
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Not of a pipe, at which opening would wait.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// The lock of a file, if its file system has locks.
struct Lock {
    _held: Option<Flock<File>>,
}

impl Lock {
    /// Locks a file; `None` if another process has it locked.
    fn of(file: &File) -> Option<Self> {
        match Flock::lock(file.try_clone().ok()?, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Some(Self { _held: Some(held) }),
            Err((_, Errno::EWOULDBLOCK)) => None,
            Err(_) => Some(Self { _held: None }),
        }
    }
}

/// The name of a file that isn't whole, by which a later run finds it.
fn usual(target: &Path) -> PathBuf {
    beside(target, PART)
}

/// A name that no other process knows.
fn unique(target: &Path) -> PathBuf {
    beside(target, &format!(".{:016x}{PART}", u64::from_ne_bytes(mac::random())))
}

fn beside(target: &Path, suffix: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    // Two long names may have the same beginning: then one of them gets a unique one.
    let kept = name.len().min(NAME_MAX - suffix.len() - 1);
    target.with_file_name(OsStr::from_bytes(&[b".", &name[..kept], suffix.as_bytes()].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Secret {
        Secret::new([7; 32])
    }

    fn entry(content: &[u8]) -> FileEntry {
        let blocks = content.chunks(BLOCK).map(|block| keys().sign(block)).collect();
        FileEntry { mode: 0o755, bytes: content.len() as u64, blocks }
    }

    #[test]
    fn a_file_is_written_once_and_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app");
        let content = vec![5; 2 * BLOCK + 3];
        let wanted = entry(&content);
        let need = || Need::find(&path, &wanted, &keys(), &mut |_| {}).unwrap();
        assert!(matches!(need(), Need::All));
        let mut part = Part::new(&path).unwrap();
        part.write(&content[..BLOCK + 9]).unwrap();
        assert!(matches!(need(), Need::All), "another run writes to it");
        drop(part);
        let Need::Rest(mut part) = need() else { panic!("nothing is resumed") };
        assert_eq!(part.blocks, 1);
        part.write(&content[BLOCK..]).unwrap();
        part.finish(&path, wanted.mode, 0o022).unwrap();
        assert!(matches!(need(), Need::Nothing));
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o755);
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
        fs::write(&path, "other").unwrap();
        assert!(matches!(need(), Need::All), "another content");
    }

    #[test]
    fn two_runs_write_to_files_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app");
        let (one, two) = (Part::new(&path).unwrap(), Part::new(&path).unwrap());
        assert_ne!(one.path, two.path);
        two.finish(&path, 0o600, 0).unwrap();
        one.finish(&path, 0o600, 0).unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn symbolic_links_lead_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let (root, other) = (directory.path().join("root"), directory.path().join("other"));
        fs::create_dir(&other).unwrap();
        assert!(make_directory(&root, true).unwrap() && !make_directory(&root, true).unwrap());
        assert!(make_link(&root.join("link"), "../other").unwrap());
        assert!(!make_link(&root.join("link"), "../other").unwrap());
        assert!(make_link(&root.join("link"), "../../other").unwrap());
        assert!(make_link(&root.join("link"), "../other").unwrap());
        assert!(check_way(&root, "link/x").unwrap_err().to_string().contains("no directory"));
        assert!(make_directory(&root.join("link"), false).is_err());
        check_way(&root, "x").unwrap();
        // A file takes a link's place.
        Part::new(&root.join("link")).unwrap().finish(&root.join("link"), 0o600, 0).unwrap();
        assert!(root.join("link").symlink_metadata().unwrap().is_file());
        assert!(make_link(&root.join("link"), "../other").is_err());
        assert!(Need::find(&other, &entry(b"x"), &keys(), &mut |_| {}).is_err());
    }

    #[test]
    fn names_of_parts_are_no_longer_than_names_may_be() {
        for len in [1, 200, NAME_MAX] {
            let target = Path::new("/a").join("é".repeat(len).chars().take(len / 2).collect::<String>());
            assert!(usual(&target).file_name().unwrap().len() <= NAME_MAX, "{len}");
            assert!(unique(&target).file_name().unwrap().len() <= NAME_MAX, "{len}");
        }
    }

    #[test]
    fn former_results_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.beta");
        for number in 1..=3 {
            fs::write(&path, number.to_string()).unwrap();
            move_aside(&path).unwrap();
            let kept = directory.path().join(format!("out.beta.{number}"));
            assert_eq!(fs::read_to_string(kept).unwrap(), number.to_string());
        }
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_is_closed_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, want) in [(0o555, 0o755), (0o755, 0o755), (0o400, 0o700)] {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_directory(directory.path()).unwrap(), mode != want);
            assert_eq!(directory.path().metadata().unwrap().mode() & 0o777, want);
        }
    }

    #[test]
    fn directories_above_are_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/app");
        make_parents(&path).unwrap();
        make_parents(&path).unwrap();
        assert!(directory.path().join("a/b").is_dir() && !path.exists());
        fs::write(directory.path().join("file"), "").unwrap();
        let said = make_parents(&directory.path().join("file/app")).unwrap_err().to_string();
        assert!(said.contains("is no directory"), "{said}");
        let open = directory.path().join("open");
        fs::create_dir_all(open.join("theirs")).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        make_parents(&open.join("theirs/app")).unwrap();
        check_owner(&open.join("theirs")).unwrap();
        check_owner(&open.join("none")).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(open.join("theirs"), Some(12_345), None).unwrap();
            for said in [make_parents(&open.join("theirs/app")), check_owner(&open.join("theirs"))] {
                let said = said.unwrap_err().to_string();
                assert!(said.contains("belongs to user id 12345"), "{said}");
            }
        }
    }
}
