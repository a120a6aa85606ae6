//! Notes that `isthmus run` and `isthmus alloc` keep of themselves, for `isthmus jobs` and `isthmus
//! cancel` of the same user on the same machine.
//!
//! A note names a process that is to be signalled. So only this user may have made it: its directory
//! is this user's alone, and no link in it is followed. The process is known by its id and its start,
//! by the machine's boot and by its PID namespace, so that no other process is taken for it.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fs::{self, DirEntry, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use isthmus_agent::runtime_directory;
use isthmus_common::process::ProcessId;
use isthmus_service::clock::unix_ms;
use isthmus_service::{mac, private};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// What is added to the name of the agent's runtime directory. It isn't that directory itself: an
/// agent may have another one.
const DIRECTORY: &str = "runs";
/// How the names of notes end.
const NOTE: &str = "json";
/// How the name of a file ends that says that `isthmus cancel` ends the command.
const CANCELLED: &str = "cancelled";
/// How the name of a note ends as long as it isn't complete.
const NEW: &str = "new";
/// Longest note that is read, in bytes.
const LONGEST: u64 = 64 << 10;
/// Most files that are looked at.
const MOST: usize = 4096;
/// Most characters of a program's name, and most sites.
const NAME: usize = 256;
/// Most further ids of a command.
const FURTHER: usize = 4;
/// Files that are of no use here are removed after this time: they may be of use elsewhere.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Which command keeps a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `isthmus run`.
    Run,
    /// `isthmus alloc`.
    Alloc,
}

/// How far a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It chooses nodes, and asks them to take part.
    Starts,
    /// It waits for nodes of batch schedulers.
    Waits,
    /// What it was given to run runs.
    Runs,
}

/// What a command notes of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The job's id, 32 hexadecimal digits. That of `isthmus alloc` is no job's.
    pub id: String,
    /// The id that it had first: each try to start a job has one of its own.
    pub first_id: String,
    /// Ids of jobs that bring files for it.
    #[serde(default)]
    further_ids: Vec<String>,
    /// Which command it is.
    pub kind: Kind,
    /// First word of what it was given to run.
    pub program: String,
    /// How far it is.
    pub phase: Phase,
    /// Since when it is in this phase.
    pub since_unix_ms: u64,
    /// The sites whose batch schedulers are to give nodes for it.
    pub sites: Vec<String>,
    /// Its process.
    pub process: ProcessId,
    /// Where the process's id is valid.
    machine: String,
}

impl Note {
    /// The ids by which users may name it.
    pub fn ids(&self) -> Vec<&str> {
        let own = [&self.id, &self.first_id].into_iter().chain(&self.further_ids);
        own.map(String::as_str).collect()
    }
}

/// The note of this process. It is removed when this value is dropped.
#[derive(Debug)]
pub struct Own {
    note: RefCell<Note>,
    /// Whether a job has the id.
    is_taken: Cell<bool>,
    /// `None` if there is no place for the note: the command runs without.
    path: Option<PathBuf>,
}

impl Own {
    /// Notes that this process is such a command, for this program.
    pub fn begin(kind: Kind, program: &str) -> Self {
        Self::begin_in(runtime_directory::further(DIRECTORY), kind, program)
    }

    fn begin_in(directory: Option<PathBuf>, kind: Kind, program: &str) -> Self {
        let process = ProcessId::of(Pid::this()).ok();
        let directory = process.and(directory).and_then(|directory| private::make_directory(&directory).ok());
        if let Some(directory) = &directory {
            // For what killed commands have left, if nobody asks for it.
            let _ = found(directory);
        }
        let id = mac::new_job().to_string();
        let own = Self {
            path: directory.map(|directory| directory.join(&id).with_extension(NOTE)),
            is_taken: Cell::new(false),
            note: RefCell::new(Note {
                first_id: id.clone(),
                further_ids: Vec::new(),
                id,
                kind,
                program: program.chars().take(NAME).collect(),
                phase: Phase::Starts,
                since_unix_ms: unix_ms(),
                sites: Vec::new(),
                process: process.unwrap_or(ProcessId { pid: 0, started: 0 }),
                machine: machine(),
            }),
        };
        own.change(|_| {});
        own
    }

    /// The id of the next job: each call has another one.
    pub fn next_job(&self) -> String {
        if self.is_taken.replace(true) {
            self.change(|note| note.id = mac::new_job().to_string());
        }
        self.note.borrow().id.clone()
    }

    /// The id of a job that brings files for the command: each call has another one.
    pub fn further_job(&self) -> String {
        let id = mac::new_job().to_string();
        self.change(|note| {
            note.further_ids.truncate(FURTHER - 1);
            note.further_ids.insert(0, id.clone());
        });
        id
    }

    /// Notes that the command waits for nodes of the batch schedulers of these sites.
    pub fn waits_for(&self, sites: impl Iterator<Item = String>) {
        self.change(|note| note.sites = sites.take(NAME).collect());
        self.is(Phase::Waits);
    }

    /// Notes how far the command is.
    pub fn is(&self, phase: Phase) {
        self.change(|note| {
            note.phase = phase;
            note.since_unix_ms = unix_ms();
        });
    }

    /// Whether `isthmus cancel` ends the command.
    pub fn is_cancelled(&self) -> bool {
        let is_there = |path: &PathBuf| path.with_extension(CANCELLED).symlink_metadata().is_ok();
        self.path.as_ref().is_some_and(is_there)
    }

    fn change(&self, change: impl FnOnce(&mut Note)) {
        let mut note = self.note.borrow_mut();
        change(&mut note);
        if let Some(path) = &self.path {
            // The command does its work without a note, too.
            let _ = write(path, &note);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            remove(path);
        }
    }
}

/// The note of a command that runs.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it says.
    pub note: Note,
    path: PathBuf,
}

impl Found {
    /// Sends a signal by which the command ends, and has it say why.
    ///
    /// # Errors
    /// The signal can't be sent, or the command has ended.
    pub fn cancel(&self, signal: Signal) -> io::Result<()> {
        // Before the signal, as the command looks for it when the signal comes.
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(self.path.with_extension(CANCELLED)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let sent = self.note.process.signal(signal);
        if sent.is_ok() {
            // A command that was stopped at its terminal ends only once it goes on. If it has ended, this
            // does nothing.
            let _ = self.note.process.signal(Signal::SIGCONT);
        } else if !self.is_alive() {
            remove(&self.path);
        }
        sent
    }

    /// Whether the command still runs.
    pub fn is_alive(&self) -> bool {
        self.note.process.is_alive()
    }

    /// Waits until the command has ended, but at most `patience`. Returns whether it has.
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn wait_ended(&self, patience: Duration) -> io::Result<bool> {
        let has_ended = self.note.process.wait_ended(patience)?;
        if has_ended {
            // A command that was killed hasn't done so.
            remove(&self.path);
        }
        Ok(has_ended)
    }
}

/// The notes of this user's commands that run on this machine, the oldest first. Notes of commands that
/// have ended are removed.
///
/// # Errors
/// If another user could have put something into their directory.
pub fn all() -> anyhow::Result<Vec<Found>> {
    runtime_directory::further(DIRECTORY).map_or_else(|| Ok(Vec::new()), |directory| all_in(&directory))
}

fn all_in(directory: &Path) -> anyhow::Result<Vec<Found>> {
    match directory.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Ok(_) | Err(_) => {}
    }
    let directory =
        private::make_directory(directory).context("the notes of running commands are no good")?;
    found(&directory).with_context(|| format!("cannot read {}", directory.display()))
}

/// The notes in a directory that is known to be this user's alone.
fn found(directory: &Path) -> io::Result<Vec<Found>> {
    let machine = machine();
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)?.take(MOST).flatten() {
        let path = entry.path();
        let is_note = path.extension().is_some_and(|end| end == NOTE);
        match is_note.then(|| read(&path)) {
            Some(Ok(note)) if note.machine == machine && note.process.is_alive() => {
                all.push(Found { note, path });
            }
            Some(Ok(note)) if note.machine == machine => remove(&path),
            // Of another machine with the same home, of an earlier boot, or no note.
            _ if is_old(&entry) => {
                let _ = fs::remove_file(&path);
            }
            _ => {}
        }
    }
    all.sort_by_key(|found| found.note.since_unix_ms);
    Ok(all)
}

/// Reads a note. It must be a file of this user's that others can't read; no link is followed, and no
/// pipe waited for.
fn read(path: &Path) -> io::Result<Note> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let known = file.metadata()?;
    let is_own = known.uid() == nix::unistd::geteuid().as_raw() && known.mode() & 0o077 == 0;
    if !known.is_file() || !is_own || known.len() > LONGEST {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes a note as a whole, or not at all. It isn't synced: after a crash no note is worth anything.
fn write(path: &Path, note: &Note) -> io::Result<()> {
    let new = path.with_extension(NEW);
    let text = serde_json::to_vec(note)?;
    // `O_EXCL` follows no link.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = opened.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // If this fails, the first error is the one that matters.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Removes a note, and what belongs to it.
fn remove(path: &Path) {
    for end in [NOTE, CANCELLED, NEW] {
        // Mostly there is only a note.
        let _ = fs::remove_file(path.with_extension(end));
    }
}

fn is_old(entry: &DirEntry) -> bool {
    let modified = entry.metadata().and_then(|known| known.modified()).ok();
    let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > KEPT)
}

/// Names the boot of this machine, and the PID namespace of this process.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}
