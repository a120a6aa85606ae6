//! A job's directory on a node: files for the shim and the MPI's launcher.
//!
//! Its path is /tmp/isthmus-JOBID on every node, because launchers pass the head's
//! path on. The id is random, so no other user can have made the path before.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use isthmus_wire::JobId;
use isthmus_wire::settings::{CONNECTS, CONNECTS_NAME, FILE_NAME, SOCKET_NAME, Settings};

/// File name of the preloaded library within a job's directory.
pub const SHIM: &str = "libisthmus_shim.so";
/// File name of the remote-launch script within a job's directory.
pub const LAUNCHER: &str = "launch";
/// File name of the list of nodes within a job's directory, as Open MPI reads
/// it.
pub const HOSTS: &str = "hosts";
/// The same list as Hydra reads it.
pub const HYDRA_HOSTS: &str = "hosts.hydra";

/// The directory; removed when dropped.
#[derive(Debug)]
pub(crate) struct JobDirectory(PathBuf);

/// The path of a job's directory on every node.
pub(crate) fn path(job: JobId) -> PathBuf {
    PathBuf::from(format!("/tmp/isthmus-{job}"))
}

impl JobDirectory {
    /// Makes the directory with all its files but the socket.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn create(
        job: JobId,
        settings: &Settings,
        shim: &Path,
        isthmus: &Path,
        local_socket: &Path,
    ) -> io::Result<Self> {
        let directory = path(job);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let this = Self(directory);
        symlink(shim, this.0.join(SHIM))?;
        fs::write(this.0.join(FILE_NAME), settings.encode())?;
        // Written, so that a process that has mapped it finds room in the file system.
        fs::write(this.0.join(CONNECTS_NAME), [0; CONNECTS * size_of::<u64>()])?;
        let mut launcher = fs::File::create(this.0.join(LAUNCHER))?;
        // The launcher itself runs without the shim.
        write!(
            launcher,
            "#!/bin/sh\nunset LD_PRELOAD\nexport ISTHMUS_SHIM=off\nexec {} launch --socket {} --job {job} -- \"$@\"\n",
            quoted(isthmus),
            quoted(local_socket)
        )?;
        launcher.set_permissions(Permissions::from_mode(0o700))?;
        Ok(this)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the job's Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join(SOCKET_NAME)
    }
}

impl Drop for JobDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, directory = %self.0.display(), "cannot remove a job's directory");
        }
    }
}

/// Removes directories that a killed agent has left: those of this user's jobs whose
/// socket no process serves.
pub(crate) fn sweep() {
    let own = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir("/tmp").into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("isthmus-"));
        let owned = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if !owned || id.and_then(|id| id.parse::<JobId>().ok()).is_none() {
            continue;
        }
        let socket = std::os::unix::net::UnixStream::connect(entry.path().join(SOCKET_NAME));
        if socket.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let removed = fs::remove_dir_all(entry.path());
            tracing::info!(directory = %entry.path().display(), ?removed, "removed the job directory of an agent that has ended");
        }
    }
}

/// A path as one word of a shell command.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_quoting() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn only_directories_without_a_server_are_removed() {
        let made = |served: bool| {
            let directory = path(isthmus_net::mac::new_job());
            fs::create_dir(&directory).unwrap();
            let listener = std::os::unix::net::UnixListener::bind(directory.join(SOCKET_NAME)).unwrap();
            (directory, served.then_some(listener))
        };
        let ((left, _), (used, _listener)) = (made(false), made(true));
        sweep();
        let found = (left.exists(), used.exists());
        let _ = fs::remove_dir_all(&used);
        assert_eq!(found, (false, true));
    }

    #[test]
    fn the_directory_is_removed_when_dropped() {
        let job = isthmus_net::mac::new_job();
        let settings = Settings {
            virtual_address: isthmus_wire::VirtualAddress::new([240, 64, 1, 1].into()).unwrap(),
            name: "n1.alpha".parse().unwrap(),
            interface: "eth0".to_owned(),
            black_hole_port: 1,
            hosts: Vec::new(),
        };
        let nowhere = Path::new("/nonexistent");
        let directory = JobDirectory::create(job, &settings, nowhere, nowhere, nowhere).unwrap();
        assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(JobDirectory::create(job, &settings, nowhere, nowhere, nowhere).is_err());
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }
}
