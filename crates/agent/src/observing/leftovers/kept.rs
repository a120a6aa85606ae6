//! What is noted for a job, in a file of the job's directory: if the agent is killed, its
//! successor removes what is left.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Most files and directories that are noted for one job.
pub(super) const NOTED_MAX: usize = 1 << 14;
/// Name of the file within the job's directory.
const NAME: &str = "leftovers";
/// Most bytes that are read of the file.
const BYTES_MAX: u64 = 4 << 20;

/// What identifies a file or directory, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub device: u64,
    pub inode: u64,
}

/// Writes what is noted for a job, in lines `DEVICE INODE PATH`.
pub(super) fn write(directory: &Path, noted: &BTreeMap<PathBuf, Identity>) -> io::Result<()> {
    let line = |(path, Identity { device, inode }): (&PathBuf, &Identity)| {
        let path = path.to_str().filter(|path| !path.contains('\n'))?;
        Some(format!("{device} {inode} {path}\n"))
    };
    let text: String = noted.iter().filter_map(line).collect();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(directory.join(NAME))?.write_all(text.as_bytes())
}

/// Reads what is noted for a job; nothing if there is no such file. A line that was not written
/// whole does no harm: the file at its path has another identity.
pub(super) fn read(directory: &Path) -> BTreeMap<PathBuf, Identity> {
    let mut text = String::new();
    let read =
        File::open(directory.join(NAME)).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return BTreeMap::new();
    }
    text.lines().filter_map(parse).take(NOTED_MAX).collect()
}

fn parse(line: &str) -> Option<(PathBuf, Identity)> {
    let mut words = line.splitn(3, ' ');
    let mut number = || words.next()?.parse().ok();
    let identity = Identity { device: number()?, inode: number()? };
    Some((words.next()?.into(), identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).is_empty());
        let noted: BTreeMap<_, _> = [("/dev/shm/a b", 1, 2), ("/tmp/ompi.n1.0/pid.5", 3, u64::MAX)]
            .map(|(path, device, inode)| (PathBuf::from(path), Identity { device, inode }))
            .into();
        write(directory.path(), &noted).unwrap();
        assert_eq!(read(directory.path()), noted);
        std::fs::write(directory.path().join(NAME), "1 2\n1 x /tmp\n-1 2 /tmp\n\n7 8 /tmp/x").unwrap();
        let left = [(PathBuf::from("/tmp/x"), Identity { device: 7, inode: 8 })].into();
        assert_eq!(read(directory.path()), left);
    }
}
