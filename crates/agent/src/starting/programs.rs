//! Checks before a job starts that its programs exist and can be carried. Some
//! launchers wait for ever for a rank that could not be started, and a rank that isn't
//! carried waits for ever for the others.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use isthmus_wire::proto::ProgramCheck;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use object::ReadCache;

use crate::starting::preloadable::{self, Hindrance, Rights, SCRIPT_LINE_MAX};

/// Most interpreters of interpreters that are followed; Linux stops at four.
const SCRIPTS_MAX: usize = 5;

/// The programs that this node doesn't have. `own_path` is the agent's own
/// search path.
pub fn missing(check: &ProgramCheck, own_path: &str) -> Vec<String> {
    let lacking = |program: &&String| locate(program, check, own_path).is_none();
    check.programs.iter().filter(lacking).cloned().collect()
}

/// A program that this node has and that can't be carried.
#[derive(Debug, PartialEq, Eq)]
pub struct Uncarried {
    /// The program, as the check names it.
    pub program: String,
    /// The executable: the program itself, or the interpreter of a script.
    pub file: PathBuf,
    /// Why the executable can't be carried.
    pub hindrance: Hindrance,
}

/// The programs that this node has and that can't be carried.
pub fn uncarried(check: &ProgramCheck, own_path: &str) -> Vec<Uncarried> {
    let examine = |program: &String| {
        let named = |name: &str| locate(name, check, own_path);
        let (file, hindrance) = inspect(named(program)?, named)?;
        Some(Uncarried { program: program.clone(), file, hindrance })
    };
    check.programs.iter().filter_map(examine).collect()
}

/// The executable that can't be carried when the program at `path` is started, and why; `None` if
/// there is none. The executable of a script is its interpreter. If that is env(1), it is the
/// result of `find` for env's program.
pub fn inspect(path: PathBuf, find: impl Fn(&str) -> Option<PathBuf>) -> Option<(PathBuf, Hindrance)> {
    let mut path = path;
    for _ in 0..SCRIPTS_MAX {
        // An unreadable program can't be judged.
        let mut file = open(&path).ok()?;
        let mut start = Vec::new();
        (&file).take(SCRIPT_LINE_MAX as u64).read_to_end(&mut start).ok()?;
        let Some((interpreter, argument)) = preloadable::script(&start) else {
            file.rewind().ok()?;
            return hindrance(file).map(|hindrance| (path, hindrance));
        };
        let by_env = Path::new(interpreter).file_name().is_some_and(|name| name == "env");
        let started = argument.filter(|_| by_env).and_then(preloadable::of_env);
        path = match started {
            Some(program) => find(program)?,
            None => PathBuf::from(interpreter),
        };
    }
    None
}

/// Opens a program. Does not block if the path is a FIFO.
///
/// # Errors As open(2); also if the path is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Why the program in an open file can't be carried; `None` if it can be.
pub fn hindrance(file: File) -> Option<Hindrance> {
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let raised = rights(&file).ok().and_then(|rights| preloadable::raised(rights, user, group));
    raised.or_else(|| preloadable::hindrance(&ReadCache::new(file)))
}

fn rights(file: &File) -> io::Result<Rights> {
    let metadata = file.metadata()?;
    // SAFETY: the name is a C string; without room the value is only measured.
    let size = unsafe {
        libc::fgetxattr(file.as_raw_fd(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    Ok(Rights {
        mode: metadata.mode(),
        user: metadata.uid(),
        group: metadata.gid(),
        capabilities: size > 0,
        void: fstatvfs(file)?.flags().contains(FsFlags::ST_NOSUID),
    })
}

/// The path of one of the check's programs on this node; `None` if the node doesn't have it.
pub(crate) fn locate(program: &str, check: &ProgramCheck, own_path: &str) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return Some(Path::new(&check.working_directory).join(path)).filter(|path| is_program(path));
    }
    // Some launchers look for a bare name in their working directory, too.
    let directories = std::env::split_paths(&check.search_path).chain(std::env::split_paths(own_path));
    let here = std::iter::once(PathBuf::from(&check.working_directory));
    directories.chain(here).map(|directory| directory.join(path)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_launchers_find_them() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("app");
        std::fs::write(&program, "").unwrap();
        std::fs::write(directory.path().join("data"), "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let here = directory.path().display().to_string();
        for (name, program, working_directory, search_path, found) in [
            ("absolute", program.to_str().unwrap(), "/", "", true),
            ("relative", "./app", here.as_str(), "", true),
            ("relative, elsewhere", "./app", "/", "", false),
            ("in the search path", "app", "/", here.as_str(), true),
            ("in the agent's own path", "sh", "/", "", true),
            ("nowhere", "app", "/", "", false),
            ("not executable", "./data", here.as_str(), "", false),
            ("a directory", "/tmp", "/", "", false),
        ] {
            let check = ProgramCheck {
                programs: vec![program.to_owned()],
                working_directory: working_directory.to_owned(),
                search_path: search_path.to_owned(),
            };
            assert_eq!(missing(&check, "/usr/bin:/bin").is_empty(), found, "{name}");
        }
    }

    #[test]
    fn scripts_are_judged_by_their_interpreters() {
        use isthmus_wire::proto::Hindrance as Kind;

        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        // The start of an executable for 32 bits suffices.
        let mut image = b"\x7fELF\x01\x01\x01".to_vec();
        image.resize(52, 0);
        image[18] = 3;
        image[20] = 1;
        let foreign = write("foreign", &image);
        write("script", format!("#!{}\n", foreign.display()).as_bytes());
        write("nested", format!("#!{}/script x\n", directory.path().display()).as_bytes());
        write("by-env", b"#!/usr/bin/env -S foreign x\n");
        write("endless", format!("#!{}/endless\n", directory.path().display()).as_bytes());
        write("shell", b"#!/bin/sh\n");
        for (program, want) in [
            ("./foreign", true),
            ("./script", true),
            ("./nested", true),
            ("./by-env", true),
            ("./endless", false),
            ("./shell", false),
            ("./absent", false),
        ] {
            let here = directory.path().display().to_string();
            let check = ProgramCheck {
                programs: vec![program.to_owned()],
                working_directory: here.clone(),
                search_path: here,
            };
            let found = uncarried(&check, "");
            assert_eq!(!found.is_empty(), want, "{program}");
            for found in found {
                assert_eq!(found.file.file_name(), foreign.file_name(), "{program}");
                assert_eq!(found.hindrance.kind, Kind::OtherArchitecture, "{program}");
            }
        }
    }
}
