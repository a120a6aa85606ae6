//! A job's directory on a node: files for the shim and the MPI's launcher.
//!
//! It is in the agent's runtime directory, where no other user can put anything, also
//! after the job. Its name is the job's id. Its path may differ from node to node.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use isthmus_service::lock;
use isthmus_wire::JobId;
use isthmus_wire::settings::{CONNECTS, CONNECTS_NAME, FILE_NAME, Host, SOCKET_NAME, Settings};
use isthmus_wire::topology;

use crate::observing::leftovers::Leftovers;

/// File name of the preloaded library within a job's directory.
pub const SHIM: &str = "libisthmus_shim.so";
/// File name of the MPI library within a job's directory, and beside the preloaded library.
pub const MPI_LIBRARY: &str = isthmus_wire::topology::LIBRARY;
/// File name of the remote-launch script within a job's directory.
pub const LAUNCHER: &str = "launch";
/// File name of the list of nodes within a job's directory, as Open MPI reads
/// it.
pub const HOSTS: &str = "hosts";
/// File name of the list of nodes within a job's directory, as Hydra reads it.
pub const HYDRA_HOSTS: &str = "hosts.hydra";
/// File name of the shim's settings within a job's directory as long as they aren't complete.
const NEW_SETTINGS: &str = "shim.conf.new";

/// The value of `LD_PRELOAD` for the processes of a job with this directory.
pub fn preload(directory: &Path) -> OsString {
    let mut preload = OsString::from(directory.join(SHIM));
    let library = directory.join(MPI_LIBRARY);
    if library.is_file() {
        preload.push(":");
        preload.push(library);
    }
    preload
}

/// A job's directory. Dropping this removes it, unless that is done.
#[derive(Debug)]
pub(crate) struct JobDirectory {
    path: PathBuf,
    settings: Mutex<Settings>,
    is_removed: AtomicBool,
}

impl JobDirectory {
    /// Makes the directory with all its files but the socket, beside the agent's own socket. With a
    /// `topology` it links the MPI library, which lies beside the shim.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn create(
        job: JobId,
        (settings, topology): (Settings, Option<&str>),
        shim: &Path,
        isthmus: &Path,
        local_socket: &Path,
    ) -> io::Result<Self> {
        let directory = local_socket.with_file_name(job.to_string());
        DirBuilder::new().mode(0o700).create(&directory)?;
        let text = settings.encode();
        let this =
            Self { path: directory, settings: Mutex::new(settings), is_removed: AtomicBool::new(false) };
        symlink(shim, this.path.join(SHIM))?;
        // The shim refuses settings that others may write; umask may allow it.
        let new = |name, mode| {
            OpenOptions::new().write(true).create_new(true).mode(mode).open(this.path.join(name))
        };
        new(FILE_NAME, 0o600)?.write_all(text.as_bytes())?;
        if let Some(topology) = topology {
            new(topology::FILE_NAME, 0o600)?.write_all(topology.as_bytes())?;
            DirBuilder::new().mode(0o700).create(this.path.join(topology::REPORTS))?;
            symlink(shim.with_file_name(MPI_LIBRARY), this.path.join(MPI_LIBRARY))?;
        }
        // Filled with zeroes, so that a process that has mapped the file finds room in the file
        // system.
        new(CONNECTS_NAME, 0o600)?.write_all(&[0; CONNECTS * size_of::<u64>()])?;
        let mut launcher = new(LAUNCHER, 0o700)?;
        // The launcher itself runs without the shim.
        write!(
            launcher,
            "#!/bin/sh\nunset LD_PRELOAD\nexport ISTHMUS_SHIM=off\nexec {} launch --socket {} --job {job} -- \"$@\"\n",
            quoted(isthmus),
            quoted(local_socket)
        )?;
        Ok(this)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the nodes in the shim's settings. Processes read these when they start.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn set_hosts(&self, hosts: Vec<Host>) -> io::Result<()> {
        let mut settings = lock(&self.settings);
        settings.hosts = hosts;
        let (new, path) = (self.path.join(NEW_SETTINGS), self.path.join(FILE_NAME));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(settings.encode().as_bytes())?;
        // A process that starts just now finds the former file or the new one.
        fs::rename(new, path)
    }

    /// Removes the directory, unless that is done.
    pub(crate) fn remove(&self) {
        if self.is_removed.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, directory = %self.path.display(), "cannot remove a job's directory");
        }
    }

    /// Keeps the directory, with the note of what is to be removed, for the next agent to remove.
    pub(crate) fn leave(&self) {
        self.is_removed.store(true, Ordering::SeqCst);
    }

    /// The path of the job's Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET_NAME)
    }
}

impl Drop for JobDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes directories that a killed agent has left: those of jobs whose socket no
/// process serves. Returns what else these jobs may have left.
pub(crate) fn sweep(runtime_directory: &Path) -> Leftovers {
    let leftovers = Leftovers::default();
    let entries = fs::read_dir(runtime_directory).into_iter().flatten().flatten();
    for entry in entries {
        let is_job = entry.file_name().to_str().is_some_and(|name| name.parse::<JobId>().is_ok());
        // The type is the entry's own, not that of a link's target.
        if !is_job || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let socket = std::os::unix::net::UnixStream::connect(entry.path().join(SOCKET_NAME));
        if socket.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            leftovers.take_over(&entry.path());
            let removed = fs::remove_dir_all(entry.path());
            tracing::info!(directory = %entry.path().display(), ?removed, "removed the job directory of an agent that has ended");
        }
    }
    leftovers
}

/// A path quoted as one word of a shell command.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn shell_quoting() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn only_directories_without_a_server_are_removed() {
        let runtime = tempfile::tempdir().unwrap();
        let made = |served: bool| {
            let directory = runtime.path().join(isthmus_service::mac::new_job().to_string());
            fs::create_dir(&directory).unwrap();
            let listener = std::os::unix::net::UnixListener::bind(directory.join(SOCKET_NAME)).unwrap();
            (directory, served.then_some(listener))
        };
        let ((left, _), (used, _listener)) = (made(false), made(true));
        sweep(runtime.path());
        assert_eq!((left.exists(), used.exists()), (false, true));
    }

    #[test]
    fn the_directory_is_removed_when_dropped() {
        let job = isthmus_service::mac::new_job();
        let settings = Settings {
            virtual_address: isthmus_wire::VirtualAddress::new([240, 64, 1, 1].into()).unwrap(),
            name: "n1.alpha".parse().unwrap(),
            interface: "eth0".to_owned(),
            black_hole_port: 1,
            connect_limits: isthmus_wire::settings::ConnectLimits::default(),
            hosts: Vec::new(),
        };
        let runtime = tempfile::tempdir().unwrap();
        let (nowhere, socket) = (Path::new("/nonexistent"), runtime.path().join("agent.sock"));
        let create =
            |topology| JobDirectory::create(job, (settings.clone(), topology), nowhere, nowhere, &socket);
        let directory = create(Some("text")).unwrap();
        assert_eq!(fs::read(directory.path().join(topology::FILE_NAME)).unwrap(), b"text");
        assert!(directory.path().join(topology::REPORTS).is_dir());
        assert_eq!(preload(directory.path()), directory.path().join(SHIM), "the library isn't there");
        assert_eq!(directory.path(), runtime.path().join(job.to_string()));
        assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(create(None).is_err());
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());

        // A directory that has the name later isn't this job's.
        let directory = create(None).unwrap();
        directory.remove();
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        drop(directory);
        assert!(path.exists());
    }
}
