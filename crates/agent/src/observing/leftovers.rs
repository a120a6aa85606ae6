//! What an MPI that was killed leaves on a node: files for shared memory, and the session
//! directories of its daemons. An MPI removes them at its own end. The agent notes which
//! the job's processes have mapped or open, and removes those that are left after the job.

mod hydra;
mod kept;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_service::lock;
use kept::{Identity, NOTED_MAX};
use procfs::process::{FDTarget, MMapPath, Process};
use tracing::{info, warn};

/// How long the processes of a former agent's jobs are waited for.
const FORMER: Duration = Duration::from_secs(30);
/// Pause between two looks for what processes of a former agent's jobs use.
const PAUSE_FORMER: Duration = Duration::from_secs(1);

/// How the names of files in /dev/shm begin that MPIs make: Open MPI 4 and 5, MPICH 5 and 4, UCX.
const SHARED: [&str; 5] = ["vader_segment.", "sm_segment.", "mpich_shm_", "mpich_shar_tmp", "ucx_shm_posix_"];
/// How a session directory's name begins. Open MPI 4 makes one for each host and user, with a part
/// for each launcher or daemon. Open MPI 5 makes one for each launcher or daemon, named by its
/// process id.
const SESSIONS: [&str; 4] = ["ompi.", "prted.", "prterun.", "prte."];
/// How the name of a launcher's or daemon's part of a session directory begins.
const PARTS: [&str; 2] = ["pid.", "jf."];

/// The files and directories of MPIs that a job's processes had mapped or open, to be removed after
/// the job's end.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<BTreeMap<PathBuf, Identity>>);

impl Leftovers {
    /// Notes which files of MPIs these processes of the job use. Also writes the note to a file in
    /// the job's directory.
    pub(crate) fn note(&self, processes: &[Process], directory: &Path) {
        let used = processes.iter().flat_map(used).filter_map(|path| trace(&path));
        // Before the lock: reading what a stuck process has may take for ever.
        let traces: BTreeSet<PathBuf> = used.chain(hydra::pictures(processes)).collect();
        let mut noted = lock(&self.0);
        let known = noted.len();
        for trace in traces {
            if noted.len() < NOTED_MAX
                && !noted.contains_key(&trace)
                && let Some(identity) = own(&trace)
            {
                noted.insert(trace, identity);
            }
        }
        if noted.len() > known
            && let Err(error) = kept::write(directory, &noted)
        {
            warn!(%error, directory = %directory.display(), "cannot note what the MPI has made");
        }
    }

    /// Takes over what an agent that has ended had noted in a job's directory.
    pub(crate) fn take_over(&self, directory: &Path) {
        lock(&self.0).extend(kept::read(directory));
    }

    /// Removes the noted files that are still there and that nobody uses. Keeps the note of those
    /// that are used; returns whether there are any.
    pub(crate) fn remove(&self) -> bool {
        let mut noted = lock(&self.0);
        noted.retain(|path, identity| own(path) == Some(*identity));
        if noted.is_empty() {
            return false;
        }
        let all = procfs::process::all_processes().into_iter().flatten().flatten();
        let in_use: HashSet<PathBuf> =
            all.flat_map(|process| used(&process)).filter_map(|path| trace(&path)).collect();
        noted.retain(|path, _| {
            if in_use.contains(path) {
                return true;
            }
            match remove(path) {
                Ok(()) => info!(path = %path.display(), "removed what an MPI has left"),
                Err(error) => warn!(path = %path.display(), %error, "cannot remove what an MPI has left"),
            }
            false
        });
        !noted.is_empty()
    }
}

/// Removes what jobs of a former agent have left, once their processes have ended.
pub(crate) async fn remove_former(leftovers: Leftovers) {
    let leftovers = Arc::new(leftovers);
    let started = Instant::now();
    while started.elapsed() < FORMER {
        let removing = Arc::clone(&leftovers);
        if !tokio::task::spawn_blocking(move || removing.remove()).await.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(PAUSE_FORMER).await;
    }
}

/// The paths that a process has mapped or open; none if the process has just ended.
fn used(process: &Process) -> Vec<PathBuf> {
    let maps = process.maps().into_iter().flatten();
    let mapped = maps.filter_map(|map| match map.pathname {
        MMapPath::Path(path) => Some(path),
        _ => None,
    });
    let open = process.fd().into_iter().flatten().flatten().filter_map(|open| match open.target {
        FDTarget::Path(path) => Some(path),
        _ => None,
    });
    mapped.chain(open).collect()
}

/// The file or directory to remove after a job that uses this path; `None` if no MPI has made it.
fn trace(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    if name.ends_with(" (deleted)") {
        return None;
    }
    let is_shared =
        path.parent() == Some(Path::new("/dev/shm")) && SHARED.iter().any(|prefix| name.starts_with(prefix));
    if is_shared || hydra::is_picture(path) {
        return Some(path.to_owned());
    }
    let of_session = |name: &OsStr| {
        let name = name.to_str()?;
        SESSIONS.iter().find_map(|prefix| name.strip_prefix(prefix).map(str::to_owned))
    };
    // The last part is skipped: the file itself may have a name like a session's.
    let at = path.iter().rev().skip(1).position(|name| of_session(name).is_some())?;
    let above = |count: usize| path.ancestors().nth(count).map(Path::to_owned);
    let session = above(at + 1)?;
    let of_one = of_session(session.file_name()?)?;
    if !of_one.is_empty() && of_one.bytes().all(|byte| byte.is_ascii_digit()) {
        // Open MPI 5: one for each launcher or daemon, by its process id.
        return Some(session);
    }
    // Open MPI 4: one for each host and user, with a part for each launcher or daemon.
    let part = above(at)?;
    let name = part.file_name()?.to_str()?;
    (part != path && PARTS.iter().any(|prefix| name.starts_with(prefix))).then_some(part)
}

/// The identity of a file or directory of this user that no other user can replace; `None` for any
/// other.
fn own(path: &Path) -> Option<Identity> {
    let user = nix::unistd::geteuid().as_raw();
    let found = fs::symlink_metadata(path).ok()?;
    let above = fs::symlink_metadata(path.parent()?).ok()?;
    let is_made = found.is_file() || found.is_dir();
    let is_safe = is_kept(&above, user) && found.uid() == user;
    (is_made && is_safe).then(|| Identity { device: found.dev(), inode: found.ino() })
}

/// Whether a file in this directory can be replaced by nobody but its owner, `user` and root.
fn is_kept(directory: &Metadata, user: u32) -> bool {
    let is_trusted = directory.is_dir() && [0, user].contains(&directory.uid());
    is_trusted && (directory.mode() & 0o022 == 0 || directory.mode() & 0o1000 != 0)
}

fn remove(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    fs::remove_dir_all(path)?;
    // The session directory of a host and user stays if another launcher has a part in it.
    if let Some(above) = path.parent()
        && above.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SESSIONS[0]))
    {
        let _ = fs::remove_dir(above);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_mpi_made_is_known_by_its_path() {
        for (path, want) in [
            ("/dev/shm/vader_segment.n1.0.6cfb0001.1", Some("/dev/shm/vader_segment.n1.0.6cfb0001.1")),
            ("/dev/shm/mpich_shm_7dff82dd_0", Some("/dev/shm/mpich_shm_7dff82dd_0")),
            ("/dev/shm/mpich_shar_tmpNa2tMU", Some("/dev/shm/mpich_shar_tmpNa2tMU")),
            ("/dev/shm/ucx_shm_posix_268053a (deleted)", None),
            ("/dev/shm/results", None),
            ("/home/ada/vader_segment.n1", None),
            ("/tmp/hydra_hwloc_xmlfile_j0A3FE", Some("/tmp/hydra_hwloc_xmlfile_j0A3FE")),
            ("/tmp/ompi.n1.0/pid.5/pmix_dstor_ds21_5/smseg-18", Some("/tmp/ompi.n1.0/pid.5")),
            ("/scratch/ada/ompi.n1.1000/pid.5/contact.txt", Some("/scratch/ada/ompi.n1.1000/pid.5")),
            ("/tmp/ompi.n1.0/jf.49143/1/2", Some("/tmp/ompi.n1.0/jf.49143")),
            ("/tmp/ompi.n1.0/contact.txt", None),
            ("/tmp/ompi.n1.0/pid.5", None),
            ("/tmp/ompi.78/hwloc.sm", Some("/tmp/ompi.78")),
            ("/tmp/ompi.78/1/pmix-gds-shmem2.n1.jobdata.78", Some("/tmp/ompi.78")),
            ("/tmp/prted.69/hwloc.sm", Some("/tmp/prted.69")),
            ("/tmp/prterun.85/1/0", Some("/tmp/prterun.85")),
            ("/tmp/prted.conf/hwloc.sm", None),
            ("/tmp/ompi./hwloc.sm", None),
            ("/tmp/ompi.conf", None),
            ("/usr/lib/libmpi.so.40", None),
            ("[heap]", None),
        ] {
            assert_eq!(trace(Path::new(path)), want.map(PathBuf::from), "{path}");
        }
    }

    /// The test uses directories as MPIs make them, of which this process has a file open. It is
    /// one test: a file that another test has open would be this process's as well.
    #[test]
    fn what_is_noted_is_removed_once_nobody_uses_it() {
        let base = tempfile::tempdir().unwrap();
        let session = base.path().join("ompi.n1.0");
        let (part, other) = (session.join("pid.5"), session.join("pid.6"));
        fs::create_dir_all(&part).unwrap();
        fs::create_dir(&other).unwrap();
        let file = fs::File::create(part.join("contact.txt")).unwrap();
        let leftovers = Leftovers::default();
        let me = [Process::myself().unwrap()];
        leftovers.note(&me, base.path());
        assert!(leftovers.remove() && part.exists(), "it is in use");
        let successor = Leftovers::default();
        successor.take_over(base.path());
        drop(file);
        assert!(!successor.remove());
        assert!(!part.exists() && other.exists());
        // Another directory of the same name stays.
        let (session, moved) = (base.path().join("ompi.7"), base.path().join("former"));
        fs::create_dir(&session).unwrap();
        let file = fs::File::create(session.join("hwloc.sm")).unwrap();
        leftovers.note(&me, base.path());
        drop(file);
        fs::rename(&session, &moved).unwrap();
        fs::create_dir(&session).unwrap();
        leftovers.remove();
        assert!(session.exists() && moved.exists());
        // Links aren't followed.
        let link = base.path().join("ompi.8");
        std::os::unix::fs::symlink(&moved, &link).unwrap();
        assert_eq!(own(&link), None);
    }
}
