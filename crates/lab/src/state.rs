//! Where a running lab leaves its traces: a directory per lab with a lock
//! that is held as long as anything of the lab lives, and a record of its
//! processes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::faults::record::{FaultRecord, Line};
use crate::grid::Grid;
use crate::groups;
use crate::process::ProcessId;
use crate::services::ServiceRecord;
use crate::topology::MachineKind;

/// Why a lab's directory or record can't be used, or isn't there.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// An operation on a file or directory failed.
    #[error("cannot {action} {path}: {cause}", path = .path.display())]
    File {
        /// The operation that failed.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error at the operation.
        cause: io::Error,
    },
    /// Other users could tamper with what is in the directory of all labs.
    #[error(
        "labs can't be kept in {path}: {problem}; remove it, or set XDG_RUNTIME_DIR to a directory of yours \
         that no other user can enter",
        path = .path.display()
    )]
    Unsafe {
        /// Path of the directory.
        path: PathBuf,
        /// What is wrong with the directory.
        problem: String,
    },
    /// The path of the emulator's socket would be too long.
    #[error(
        "lab {lab:?} can't be kept in {path}: its socket's path would have {length} bytes, and Unix sockets allow \
         {SOCKET_PATH_MAX}; give it a shorter name, or set XDG_RUNTIME_DIR to a shorter path",
        path = .path.display()
    )]
    TooLong {
        /// Name of the lab.
        lab: String,
        /// Path of the lab's directory.
        path: PathBuf,
        /// Length of the socket's path, in bytes.
        length: usize,
    },
    /// The lab's record can't be read or written, as its JSON is wrong.
    #[error("the record of lab {lab:?} can't be read: {cause}")]
    Record {
        /// Name of the lab.
        lab: String,
        /// What is wrong with the record.
        cause: serde_json::Error,
    },
    /// A lab of this name is running already.
    #[error("lab {0:?} is running already; end it with: isthmus lab down --lab {0}")]
    Running(String),
    /// Processes of an earlier lab of this name haven't ended yet.
    #[error("processes of an earlier lab {0:?} are still ending; try again in a moment")]
    Ending(String),
    /// Other commands keep changing the lab of this name, or one of them hangs.
    #[error("lab {0:?} has been kept busy by other commands for {limit} s; try again", limit = BUSY.as_secs())]
    Busy(String),
    /// No lab of this name is running. The second value names the running labs.
    #[error("no lab {0:?} is running; {others}", others = others(.1))]
    NotRunning(String, Vec<String>),
    /// No lab is running at all.
    #[error("no lab is running; start one with: isthmus lab up FILE, or --preset two-nats")]
    NoneRunning,
    /// Several labs are running, and none was chosen. The value has their names.
    #[error("{count} labs are running, choose one with --lab: {names}", count = .0.len(), names = .0.join(", "))]
    SeveralRunning(Vec<String>),
}

fn others(names: &[String]) -> String {
    if names.is_empty() { "none is".into() } else { format!("running: {}", names.join(", ")) }
}

/// What a running lab consists of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The checked grid, with the changes of its links since.
    pub grid: Grid,
    /// The keeper, which all other processes of the lab depend on.
    pub keeper: ProcessId,
    /// The process that carries packets over emulated links. `None` if no link is emulated.
    pub emulator: Option<ProcessId>,
    /// The lab's machines, each with the process that holds its namespaces.
    pub machines: Vec<MachineRecord>,
    /// The program that runs the lab, for other programs that use
    /// [`Machine::command`](crate::Machine::command).
    pub program: PathBuf,
    /// isthmus's own services that were started.
    pub services: Vec<ServiceRecord>,
    /// The lines between the lab's machines.
    pub lines: Vec<Line>,
    /// The faults in force.
    pub faults: FaultRecord,
}

/// A machine of a running lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Name of the machine in the lab.
    pub name: String,
    /// Whether the machine is a router, host or node.
    pub kind: MachineKind,
    /// The machine's own host name.
    pub host_name: String,
    /// The address that the machine's host name stands for.
    pub address: std::net::Ipv4Addr,
    /// The machine's first process, which holds its namespaces.
    pub init: ProcessId,
    /// By how many seconds the clock of its programs is ahead.
    pub clock_ahead_seconds: i32,
}

impl Record {
    /// The machine of this name in the lab. `None` if the lab has none.
    pub fn machine(&self, name: &str) -> Option<&MachineRecord> {
        self.machines.iter().find(|machine| machine.name.eq_ignore_ascii_case(name))
    }
}

/// The directory of a lab, which need not exist.
#[derive(Debug, Clone)]
pub struct LabDirectory {
    lab: String,
    path: PathBuf,
}

/// Longest path of a Unix socket, in bytes (`sun_path`, without its end).
const SOCKET_PATH_MAX: usize = 107;

/// How long to wait for other processes that change a lab's record.
const BUSY: Duration = Duration::from_secs(30);

/// How long to wait for the last processes of a lab to end.
pub(crate) const ENDING: Duration = Duration::from_secs(10);

/// How long the sweeper waits for them. On a busy machine the kernel may take long to end network
/// namespaces, and nobody waits for the sweeper.
const SWEEPING: Duration = Duration::from_secs(600);

impl LabDirectory {
    /// The directory for the lab `name`, whether it exists or not.
    pub fn of(name: &str) -> Self {
        Self { lab: name.to_owned(), path: base().join(name) }
    }

    /// Finds the running lab of this name, with its record. Without a name, finds the only lab that
    /// is running.
    pub fn find(name: Option<&str>) -> Result<(Self, Record), StateError> {
        let running = running()?;
        let names = || running.iter().map(|(directory, _)| directory.lab.clone()).collect();
        match (name, running.len()) {
            (Some(name), _) => match running.iter().find(|(directory, _)| directory.lab == name) {
                Some(found) => Ok(found.clone()),
                None => Err(StateError::NotRunning(name.to_owned(), names())),
            },
            (None, 0) => Err(StateError::NoneRunning),
            (None, 1) => running.into_iter().next().ok_or(StateError::NoneRunning),
            (None, _) => Err(StateError::SeveralRunning(names())),
        }
    }

    /// Name of the lab.
    pub fn lab(&self) -> &str {
        &self.lab
    }

    /// Whether the directory exists, of a running lab or one that left something behind.
    pub fn exists(&self) -> bool {
        matches!(check_base(), Ok(true)) && self.path.exists()
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the log with messages of the keeper and the emulator.
    pub fn log(&self) -> PathBuf {
        self.path.join("lab.log")
    }

    /// Path of the directory with the services' logs.
    pub(crate) fn service_logs(&self) -> PathBuf {
        self.path.join("services")
    }

    /// Path of the log of the service `role` in a machine.
    pub(crate) fn service_log(&self, role: &str, machine: &str) -> PathBuf {
        self.service_logs().join(format!("{machine}.{role}.log"))
    }

    /// Path of the socket at which the emulator answers.
    pub fn emulator_socket(&self) -> PathBuf {
        self.path.join("emulator.sock")
    }

    fn record_file(&self) -> PathBuf {
        self.path.join("lab.json")
    }

    fn error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
        let path = path.to_owned();
        move |cause| StateError::File { action, path, cause }
    }

    /// Makes the directory and takes the lab's lock. Waits until the processes of an earlier lab of
    /// this name have ended, and removes what it left behind.
    pub(crate) fn claim(&self) -> Result<Flock<File>, StateError> {
        self.check_length()?;
        let deadline = Instant::now() + ENDING;
        loop {
            self.create()?;
            match self.try_lock() {
                Ok(Some(lock)) => {
                    self.clean().map_err(Self::error("clean", &self.path))?;
                    return Ok(lock);
                }
                // Another process removed the directory meanwhile.
                Err(StateError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
                Ok(None) => {}
            }
            if self.read().is_ok_and(|record| record.keeper.is_alive()) {
                return Err(StateError::Running(self.lab.clone()));
            }
            groups::thaw(&self.lab);
            if Instant::now() > deadline {
                // A keeper that has not written its record yet, or processes
                // that don't end.
                return Err(StateError::Ending(self.lab.clone()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks that the path of the emulator's socket isn't too long.
    fn check_length(&self) -> Result<(), StateError> {
        let length = self.emulator_socket().as_os_str().len();
        if length <= SOCKET_PATH_MAX {
            return Ok(());
        }
        Err(StateError::TooLong { lab: self.lab.clone(), path: self.path.clone(), length })
    }

    /// Makes the directory and the directory of all labs, if they don't exist.
    fn create(&self) -> Result<(), StateError> {
        for path in [&base(), &self.path] {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // The directory of all labs may have been removed meanwhile.
                    if error.kind() == io::ErrorKind::NotFound && path == &self.path {
                        return self.create();
                    }
                    return Err(Self::error("create", path)(error));
                }
                _ => {}
            }
            // Before anything is made in it.
            check_base()?;
        }
        Ok(())
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Whether `lock`, which was taken earlier, is still the directory's lock file.
    pub(crate) fn is_locked_by(&self, lock: &File) -> bool {
        let same = |held: fs::Metadata, now: fs::Metadata| (held.dev(), held.ino()) == (now.dev(), now.ino());
        let metadata = lock.metadata().and_then(|held| Ok((held, fs::metadata(self.lock_file())?)));
        metadata.is_ok_and(|(held, now)| same(held, now))
    }

    /// Takes the lock. `None` if another process holds it.
    fn try_lock(&self) -> Result<Option<Flock<File>>, StateError> {
        let path = self.lock_file();
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(Self::error("open", &path))?;
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
        // The lock's former holder may have removed the file meanwhile.
        Ok(self.is_locked_by(&lock).then_some(lock))
    }

    /// Removes everything in the directory but the lock file.
    fn clean(&self) -> io::Result<()> {
        groups::remove(&self.lab);
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.path() == self.lock_file() {
                continue;
            }
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the directory. To be called with the lock held. Once the lock file is gone, another
    /// process that waits for the lab's end may remove the rest, too.
    pub fn remove(&self) -> Result<(), StateError> {
        groups::remove(&self.lab);
        match fs::remove_dir_all(&self.path) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {}
            removed => removed.map_err(Self::error("remove", &self.path))?,
        }
        // Other labs may be there: then the directory of all labs stays.
        let _ = fs::remove_dir(base());
        Ok(())
    }

    /// Waits until no process of the lab lives, and removes what the lab left behind.
    pub(crate) fn wait_gone(&self) -> Result<(), StateError> {
        let deadline = Instant::now() + ENDING;
        while self.path.exists() {
            // Otherwise it was removed meanwhile, or is still held.
            if let Ok(Some(_lock)) = self.try_lock() {
                self.remove()?;
            }
            groups::thaw(&self.lab);
            if Instant::now() > deadline {
                return Err(StateError::Ending(self.lab.clone()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Removes what the ending lab of `keeper` left behind, as soon as none of its processes lives.
    /// Does nothing if another lab of this name has begun.
    pub(crate) fn remove_remains(&self, keeper: ProcessId) -> Result<(), StateError> {
        let deadline = Instant::now() + SWEEPING;
        while self.exists() && Instant::now() < deadline {
            if let Ok(Some(_lock)) = self.try_lock() {
                return self.remove();
            }
            if self.read().is_ok_and(|record| record.keeper != keeper && record.keeper.is_alive()) {
                return Ok(());
            }
            groups::thaw(&self.lab);
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Writes the record, as a whole or not at all.
    pub fn write(&self, record: &Record) -> Result<(), StateError> {
        let path = self.record_file();
        let text = serde_json::to_vec(record)
            .map_err(|cause| StateError::Record { lab: self.lab.clone(), cause })?;
        let fresh = path.with_extension("new");
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)).map_err(Self::error("write", &path))
    }

    /// Changes the record while no other process does. `change` also does what else belongs to the
    /// change. After an error of `change`, the record is as it was.
    pub(crate) fn update<T, E: From<StateError>>(
        &self,
        change: impl FnOnce(&mut Record) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.lock_record()?;
        let mut record = self.read()?;
        let result = change(&mut record)?;
        self.write(&record)?;
        Ok(result)
    }

    fn lock_record(&self) -> Result<Flock<File>, StateError> {
        let path = self.path.join("record.lock");
        let open = || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let mut file = match open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StateError::NotRunning(self.lab.clone(), Vec::new()));
            }
            Err(error) => return Err(Self::error("open", &path)(error)),
        };
        let deadline = Instant::now() + BUSY;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((_, nix::Error::EAGAIN)) if Instant::now() > deadline => {
                    return Err(StateError::Busy(self.lab.clone()));
                }
                Err((returned, nix::Error::EAGAIN | nix::Error::EINTR)) => file = returned,
                Err((_, error)) => return Err(Self::error("lock", &path)(error.into())),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads the lab's record.
    pub fn read(&self) -> Result<Record, StateError> {
        let path = self.record_file();
        let text = fs::read(&path).map_err(Self::error("read", &path))?;
        serde_json::from_slice(&text).map_err(|cause| StateError::Record { lab: self.lab.clone(), cause })
    }
}

/// The directory that all labs of this user are in.
fn base() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/run/isthmus-lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("isthmus-lab"),
        _ => PathBuf::from(format!("/tmp/isthmus-lab-{}", nix::unistd::geteuid())),
    }
}

/// Whether the directory of all labs exists. Fails unless it is this user's alone, because any user
/// could have made it in `/tmp`.
fn check_base() -> Result<bool, StateError> {
    let path = base();
    match fs::symlink_metadata(&path) {
        Ok(found) => {
            let owner = nix::unistd::geteuid().as_raw();
            let found = (found.is_dir(), found.uid(), found.mode());
            problem(found, owner).map_or(Ok(true), |problem| Err(StateError::Unsafe { path, problem }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(LabDirectory::error("look at", &path)(error)),
    }
}

/// What is wrong with a directory for the user `user`. Given are whether it is a directory, its
/// owner and its mode. `None` if nothing is wrong.
fn problem((is_directory, owner, mode): (bool, u32, u32), user: u32) -> Option<String> {
    if !is_directory {
        return Some("it is no directory".to_owned());
    }
    if owner != user {
        return Some(format!("it belongs to user id {owner}, not {user}"));
    }
    let mode = mode & 0o7777;
    (mode & 0o077 != 0).then(|| format!("others may enter it (mode {mode:04o}, not 0700)"))
}

/// All labs whose keeper lives, in the order of their names.
pub fn running() -> Result<Vec<(LabDirectory, Record)>, StateError> {
    if !check_base()? {
        return Ok(Vec::new());
    }
    let base = base();
    let entries = match fs::read_dir(&base) {
        Ok(entries) => entries,
        // The directory was removed just now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LabDirectory::error("read", &base)(error)),
    };
    let mut running: Vec<(LabDirectory, Record)> = entries
        .filter_map(|entry| Some(LabDirectory::of(entry.ok()?.file_name().to_str()?)))
        .filter_map(|directory| directory.read().ok().map(|record| (directory, record)))
        .filter(|(_, record)| record.keeper.is_alive())
        .collect();
    running.sort_by(|a, b| a.0.lab.cmp(&b.0.lab));
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_s_path_has_its_bound() {
        let of = |length: usize| {
            let path = PathBuf::from(format!("/{}", "x".repeat(length - "/".len() - "/emulator.sock".len())));
            LabDirectory { lab: "demo".to_owned(), path }.check_length()
        };
        assert!(of(107).is_ok());
        let error = of(108).unwrap_err().to_string();
        assert!(error.contains("108 bytes") && error.contains("set XDG_RUNTIME_DIR"), "{error}");
    }

    #[test]
    fn only_a_directory_of_ones_own_is_trusted() {
        for (found, trusted) in [
            ((true, 1000, 0o40700), true),
            ((true, 1000, 0o40755), false),
            ((true, 1000, 0o40770), false),
            ((true, 1001, 0o40700), false),
            ((true, 0, 0o40700), false),
            ((false, 1000, 0o120777), false),
        ] {
            assert_eq!(problem(found, 1000).is_none(), trusted, "{found:?}");
        }
    }
}
