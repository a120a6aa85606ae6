//! The list of all that is staged, with the HMAC of each block.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use isthmus_service::mac::Secret;
use isthmus_wire::preamble::Mac;
use serde::{Deserialize, Serialize};

/// Bytes of a block: what is checked, and taken again, as one. The last block of a file is shorter.
pub(super) const BLOCK: usize = 4 << 20;
/// Most bytes of an encoded manifest, which is enough for about 2 TB.
pub(super) const MANIFEST_MAX: usize = 64 << 20;
/// Most files, directories and symbolic links.
const ENTRIES_MAX: usize = 100_000;
/// How the names of files end that aren't whole yet. They are never staged.
pub(super) const PART: &str = ".isthmus-part";

/// Files, directories and symbolic links, each directory before what is in it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The absolute paths that are asked for. What is missing there has no entry.
    pub roots: Vec<String>,
    pub entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The index of its root.
    pub root: usize,
    /// Its path below the root, with `/` between names; empty for the root itself.
    pub below: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// With its permission bits.
    Directory {
        mode: u32,
    },
    File(FileEntry),
    Link {
        target: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    /// Permission bits.
    pub mode: u32,
    pub bytes: u64,
    /// The HMAC of each block.
    pub blocks: Vec<Mac>,
}

/// Checks that none of these paths is within another. A symbolic link below the one could lead the
/// other elsewhere.
///
/// # Errors
/// One is.
pub(super) fn apart(paths: &[String]) -> anyhow::Result<()> {
    for path in paths {
        let outer = paths.iter().find(|outer| *outer != path && Path::new(path).starts_with(outer));
        if let Some(outer) = outer {
            bail!("{path} is within {outer}: give only one of them");
        }
    }
    Ok(())
}

impl Manifest {
    /// Reads all that is at these absolute paths. `read` is told how many bytes it has read so far.
    ///
    /// # Errors
    /// A file can't be read, is of another kind, changes meanwhile, or there are too many. With
    /// `may_lack` a path may be missing.
    pub(super) fn of(
        paths: &[String],
        may_lack: bool,
        blocks: &Secret,
        read: &mut dyn FnMut(u64),
    ) -> anyhow::Result<Self> {
        let mut walk = Walk { blocks, read, so_far: 0, entries: Vec::new() };
        for (root, path) in paths.iter().enumerate() {
            let path = Path::new(path);
            match path.metadata() {
                Err(error) if may_lack && is_missing(&error) => {}
                found => {
                    let found = found.with_context(|| format!("cannot read {}", path.display()))?;
                    walk.add(root, String::new(), path, &found)?;
                }
            }
        }
        Ok(Self { roots: paths.to_vec(), entries: walk.entries })
    }

    /// Checks a manifest that another party has sent for these paths.
    ///
    /// # Errors
    /// It has other paths, or anything that no honest party sends.
    pub(super) fn check(&self, paths: &[String]) -> anyhow::Result<()> {
        ensure!(self.roots == paths, "it is for other paths");
        ensure!(self.entries.len() <= ENTRIES_MAX, "it has {} entries", self.entries.len());
        let (mut seen, mut directories) = (BTreeSet::new(), BTreeSet::new());
        for Entry { root, below, kind } in &self.entries {
            let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
            let is_root = below.is_empty();
            ensure!(
                *root < self.roots.len() && (is_root || below.split('/').all(is_name)),
                "it has the path {below:?}"
            );
            ensure!(seen.insert((root, below)), "it has the path {below:?} twice");
            let above = below.rsplit_once('/').map_or("", |(above, _)| above);
            ensure!(
                is_root || directories.contains(&(*root, above)),
                "it has the path {below:?}, but not the directory that it is in"
            );
            match kind {
                Kind::Link { .. } => ensure!(!is_root, "it has a symbolic link in place of a file"),
                Kind::File(file) => ensure!(
                    file.blocks.len() as u64 == file.bytes.div_ceil(BLOCK as u64),
                    "it has {} blocks for {} bytes",
                    file.blocks.len(),
                    file.bytes
                ),
                Kind::Directory { .. } => {
                    directories.insert((*root, below.as_str()));
                }
            }
        }
        Ok(())
    }

    /// Whether what is at this root is the same as at the only root of another one, but for permissions.
    pub(super) fn is_same(&self, root: usize, other: &Self) -> bool {
        let ours = self.entries.iter().filter(|entry| entry.root == root);
        ours.map(content).eq(other.entries.iter().map(content))
    }

    /// Where an entry's root is written, for paths that end with `suffix`.
    pub(super) fn root(&self, entry: &Entry, suffix: &str) -> PathBuf {
        let root = self.roots.get(entry.root).map(String::as_str).unwrap_or_default();
        PathBuf::from(format!("{root}{suffix}"))
    }

    /// Where an entry is written, for paths that end with `suffix`.
    pub(super) fn path(&self, entry: &Entry, suffix: &str) -> PathBuf {
        let root = self.root(entry, suffix);
        // Joining an empty path would add a slash.
        if entry.below.is_empty() { root } else { root.join(&entry.below) }
    }

    /// The files.
    pub(super) fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::File(file) => Some(file),
            Kind::Directory { .. } | Kind::Link { .. } => None,
        })
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}

/// An entry's path below its root, and what it is, without permissions.
fn content(entry: &Entry) -> (&str, Kind) {
    let kind = match &entry.kind {
        Kind::Directory { .. } => Kind::Directory { mode: 0 },
        Kind::File(file) => Kind::File(FileEntry { mode: 0, ..file.clone() }),
        link @ Kind::Link { .. } => link.clone(),
    };
    (&entry.below, kind)
}

impl FileEntry {
    /// The length of a block in bytes.
    pub(super) fn block_len(&self, index: usize) -> usize {
        let left = self.bytes.saturating_sub((index * BLOCK) as u64);
        usize::try_from(left).unwrap_or(BLOCK).min(BLOCK)
    }

    /// How many blocks a file has the same, counted from its beginning. `read` is told how many bytes
    /// each has.
    ///
    /// # Errors
    /// The file can't be read.
    pub(super) fn same_blocks(
        &self,
        file: &mut impl Read,
        blocks: &Secret,
        read: &mut dyn FnMut(u64),
    ) -> io::Result<usize> {
        let mut buffer = Vec::new();
        for (index, mac) in self.blocks.iter().enumerate() {
            buffer.resize(self.block_len(index), 0);
            match file.read_exact(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(index),
                whole => whole?,
            }
            read(buffer.len() as u64);
            if !blocks.verify(&buffer, mac) {
                return Ok(index);
            }
        }
        Ok(self.blocks.len())
    }
}

struct Walk<'a> {
    blocks: &'a Secret,
    read: &'a mut dyn FnMut(u64),
    /// Bytes that were read so far.
    so_far: u64,
    entries: Vec<Entry>,
}

impl Walk<'_> {
    /// Adds what is at a path, with all below it.
    fn add(&mut self, root: usize, below: String, path: &Path, found: &Metadata) -> anyhow::Result<()> {
        ensure!(
            self.entries.len() < ENTRIES_MAX,
            "there are more than {ENTRIES_MAX} files and directories: stage an archive of them"
        );
        // Many may be empty, and take their time all the same.
        (self.read)(self.so_far);
        let failed = || format!("cannot read {}", path.display());
        let mode = found.permissions().mode() & 0o777;
        if found.is_dir() {
            self.entries.push(Entry { root, below: below.clone(), kind: Kind::Directory { mode } });
            let names = path.read_dir().with_context(failed)?.map(|entry| Ok(entry?.file_name()));
            let mut names = names.collect::<io::Result<Vec<_>>>().with_context(failed)?;
            names.sort();
            for name in names {
                let path = path.join(&name);
                let name = utf8(&name, &path)?;
                if name.ends_with(PART) {
                    continue;
                }
                let below = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
                let failed = || format!("cannot read {}", path.display());
                let found = path.symlink_metadata().with_context(failed)?;
                self.add(root, below, &path, &found)?;
            }
            return Ok(());
        }
        let kind = if found.is_file() {
            let blocks = self.blocks(path, found.len()).with_context(failed)?;
            Kind::File(FileEntry { mode, bytes: found.len(), blocks })
        } else if found.is_symlink() {
            let target = path.read_link().with_context(failed)?;
            Kind::Link { target: utf8(target.as_os_str(), path)?.to_owned() }
        } else {
            bail!("{} is neither a file nor a directory", path.display())
        };
        self.entries.push(Entry { root, below, kind });
        Ok(())
    }

    fn blocks(&mut self, path: &Path, bytes: u64) -> io::Result<Vec<Mac>> {
        let mut file = File::open(path)?;
        let mut left = bytes;
        let mut buffer = Vec::new();
        let mut blocks = Vec::new();
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            buffer.resize(len, 0);
            file.read_exact(&mut buffer).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::other("it has become shorter meanwhile"),
                _ => error,
            })?;
            blocks.push(self.blocks.sign(&buffer));
            left -= len as u64;
            self.so_far += len as u64;
            (self.read)(self.so_far);
        }
        Ok(blocks)
    }
}

/// Whether an error says that nothing is at a path.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn utf8<'a>(name: &'a std::ffi::OsStr, path: &Path) -> anyhow::Result<&'a str> {
    name.to_str().with_context(|| format!("{}: the name is not in UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn blocks() -> Secret {
        Secret::new([7; 32])
    }

    fn manifest(path: &Path) -> anyhow::Result<Manifest> {
        Manifest::of(&[path.display().to_string()], false, &blocks(), &mut |_| {})
    }

    #[test]
    fn a_tree_is_listed_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("data");
        std::fs::create_dir_all(root.join("b")).unwrap();
        std::fs::write(root.join("b/x"), vec![1; BLOCK + 1]).unwrap();
        std::fs::write(root.join("a"), "").unwrap();
        std::fs::write(root.join(format!(".a{PART}")), "half").unwrap();
        symlink("b/x", root.join("link")).unwrap();
        let listed = manifest(&root).unwrap();
        let names: Vec<&str> = listed.entries.iter().map(|entry| entry.below.as_str()).collect();
        assert_eq!(names, ["", "a", "b", "b/x", "link"]);
        assert_eq!((listed.files().count(), listed.bytes()), (2, BLOCK as u64 + 1));
        let Kind::File(file) = &listed.entries[3].kind else { panic!("no file") };
        assert_eq!((file.blocks.len(), file.block_len(0), file.block_len(1)), (2, BLOCK, 1));
        listed.check(&[root.display().to_string()]).unwrap();
        assert_eq!(listed.path(&listed.entries[0], ".beta"), directory.path().join("data.beta"));
        assert_eq!(listed.path(&listed.entries[3], ".beta"), directory.path().join("data.beta/b/x"));
    }

    #[test]
    fn what_can_t_be_staged() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, want) in [(&pipe, "neither a file"), (&directory.path().join("none"), "No such file")] {
            let said = format!("{:#}", manifest(path).unwrap_err());
            assert!(said.contains(want), "{said}");
        }
        let none = directory.path().join("none").display().to_string();
        assert!(Manifest::of(&[none], true, &blocks(), &mut |_| {}).unwrap().entries.is_empty());
    }

    #[test]
    fn what_is_the_same_is_counted_in_blocks() {
        let content: Vec<u8> = (0..2 * BLOCK + 5).map(|index| (index / 1000) as u8).collect();
        let blocks = blocks();
        let macs = content.chunks(BLOCK).map(|block| blocks.sign(block)).collect();
        let file = FileEntry { mode: 0o600, bytes: content.len() as u64, blocks: macs };
        let mut other = content.clone();
        other[BLOCK] ^= 1;
        for (name, there, want) in [
            ("all", &content[..], 3),
            ("nothing", &[][..], 0),
            ("a block and a half", &content[..BLOCK + BLOCK / 2], 1),
            ("all but the last byte", &content[..content.len() - 1], 2),
            ("another second block", &other[..], 1),
        ] {
            assert_eq!(file.same_blocks(&mut &there[..], &blocks, &mut |_| {}).unwrap(), want, "{name}");
        }
    }

    #[test]
    fn manifests_that_no_honest_party_sends() {
        let file = |bytes, blocks: usize| {
            let blocks = vec![[0; 32]; blocks];
            Kind::File(FileEntry { mode: 0, bytes, blocks })
        };
        let directory = || Kind::Directory { mode: 0o755 };
        let entry = |root, below: &str, kind| Entry { root, below: below.to_owned(), kind };
        let link = || Kind::Link { target: "/etc".to_owned() };
        let tree = [entry(0, "", directory()), entry(0, "a", directory())];
        let below_link = [entry(0, "l", link()), entry(0, "l/x", file(0, 0))];
        for (entries, want) in [
            (vec![entry(0, "", file(1, 1))], None),
            ([&tree[..], &[entry(0, "a/b", file(1, 1)), entry(0, "l", link())]].concat(), None),
            (vec![entry(0, "a", file(0, 0))], Some("the directory")),
            (vec![entry(0, "", file(0, 0)), entry(0, "a", file(0, 0))], Some("the directory")),
            ([&tree[..], &below_link].concat(), Some("the directory")),
            (vec![entry(1, "", file(0, 0))], Some("it has the path")),
            (vec![entry(0, "../x", file(0, 0))], Some("../x")),
            (vec![entry(0, "/etc/x", file(0, 0))], Some("/etc/x")),
            (vec![entry(0, "a/./x", file(0, 0))], Some("a/./x")),
            (vec![entry(0, "a//x", file(0, 0))], Some("a//x")),
            (vec![entry(0, "a\0", file(0, 0))], Some("it has the path")),
            ([&tree[..], &[entry(0, "a", link())]].concat(), Some("twice")),
            (vec![entry(0, "", link())], Some("symbolic link")),
            (vec![entry(0, "", file(1, 0))], Some("0 blocks")),
            (vec![entry(0, "", file(u64::MAX, 1))], Some("1 blocks")),
        ] {
            let roots = vec!["/data".to_owned()];
            let said = Manifest { roots: roots.clone(), entries }.check(&roots);
            match want {
                None => said.unwrap(),
                Some(want) => {
                    let said = said.unwrap_err().to_string();
                    assert!(said.contains(want), "{want}: {said}");
                }
            }
        }
        let other = Manifest { roots: vec!["/home/ada/.ssh".to_owned()], entries: Vec::new() };
        assert!(other.check(&["/data".to_owned()]).is_err());
    }
}
