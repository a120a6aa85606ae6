//! A machine's view of the file system: the machine's own, but for the
//! places through which programs on two nodes could meet or mistake another
//! node's things for their own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::groups;

/// Directories that each machine has for itself, with their modes. They are empty at first and gone
/// with the lab.
pub(crate) const PRIVATE_DIRECTORIES: [(&str, u32); 5] = [
    ("/dev/shm", 0o1777),
    ("/tmp", 0o1777),
    ("/run", 0o755),
    ("/var/tmp", 0o1777),
    ("/var/lib/isthmus", 0o755),
];

/// The directory of a machine in which the lab's own files are.
pub(crate) const MACHINE_DIRECTORY: &str = "/run/isthmus-machine";

/// Why a machine's file system can't be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    /// The kernel refused a mount.
    #[error("cannot mount {what} on {target}: {cause}", target = .target.display())]
    Mount {
        /// What was to be mounted.
        what: String,
        /// The directory or file to mount on.
        target: PathBuf,
        /// The kernel's error at mounting.
        cause: nix::Error,
    },
    /// A file system with the kernel's information can't be mounted anew, as parts of it are
    /// hidden.
    #[error(
        "cannot mount {kind} on {target}: {cause}; parts of it are hidden here, as in containers, and then only \
         root may mount it anew: start the container with --security-opt systempaths=unconfined (Podman: \
         --security-opt unmask=ALL), or use root with the right CAP_SYS_ADMIN",
        target = .target.display()
    )]
    Hidden {
        /// Type of the file system.
        kind: &'static str,
        /// The directory to mount on.
        target: PathBuf,
        /// The kernel's error at mounting.
        cause: nix::Error,
    },
    /// A file or directory can't be made.
    #[error("cannot create {path}: {cause}", path = .path.display())]
    Create {
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error at the attempt.
        cause: io::Error,
    },
    /// A directory that machines should share can't be opened.
    #[error("cannot share {path} with the lab's machines: {cause}", path = .path.display())]
    Share {
        /// Path of the directory.
        path: PathBuf,
        /// The system's error at opening the directory.
        cause: io::Error,
    },
}

fn created<T>(path: &Path, result: io::Result<T>) -> Result<T, MountError> {
    result.map_err(|cause| MountError::Create { path: path.to_owned(), cause })
}

fn attach(
    what: &str,
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<(), MountError> {
    mount(source, target, kind, flags, data).map_err(|cause| MountError::Mount {
        what: what.to_owned(),
        target: target.to_owned(),
        cause,
    })
}

fn bind(source: &Path, target: &Path, recursive: bool) -> Result<(), MountError> {
    let flags = if recursive { MsFlags::MS_BIND | MsFlags::MS_REC } else { MsFlags::MS_BIND };
    attach(&source.display().to_string(), Some(source), target, None, flags, None)
}

fn tmpfs(target: &Path, mode: u32) -> Result<(), MountError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    attach("tmpfs", Some(Path::new("tmpfs")), target, Some("tmpfs"), flags, Some(&format!("mode={mode:o}")))
}

/// Mounts a file system with the kernel's information, such as proc.
fn information(kind: &'static str, target: &Path) -> Result<(), MountError> {
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mounted = mount(Some(kind), target, Some(kind), plain, None::<&str>);
    // Where the present sysfs is read-only, a new sysfs must be read-only, too.
    let mounted = match mounted {
        Err(nix::Error::EPERM) if kind == "sysfs" => {
            mount(Some(kind), target, Some(kind), plain | MsFlags::MS_RDONLY, None::<&str>)
        }
        other => other,
    };
    mounted.map_err(|cause| match cause {
        nix::Error::EPERM => MountError::Hidden { kind, target: target.to_owned(), cause },
        _ => MountError::Mount { what: kind.to_owned(), target: target.to_owned(), cause },
    })
}

/// Cuts the calling process's mount namespace off from the real machine's, and makes sure that
/// every private directory exists in it. The real machine's file system isn't touched. Where a
/// directory is missing, a tmpfs replaces its nearest existing parent. All entries of the parent
/// are bound into the tmpfs, which has room for the missing directory.
pub(crate) fn prepare() -> Result<(), MountError> {
    attach("nothing", None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    PRIVATE_DIRECTORIES.iter().try_for_each(|(path, _)| ensure_directory(Path::new(path)))
}

fn ensure_directory(path: &Path) -> Result<(), MountError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    if path.is_dir() {
        return Ok(());
    }
    ensure_directory(parent)?;
    make_roomy(parent)?;
    created(path, fs::create_dir(path))?;
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    // An ordinary user could write to the tmpfs that replaces a directory of root's. All machines
    // have the same tmpfs.
    let flags =
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    attach("tmpfs, read-only,", None, parent, None, flags, None)
}

/// Puts a tmpfs with the same entries in place of `directory`.
fn make_roomy(directory: &Path) -> Result<(), MountError> {
    let before = created(directory, open_path(directory))?;
    let mode = created(directory, fs::metadata(directory))?.permissions().mode() & 0o7777;
    tmpfs(directory, mode)?;
    let before = PathBuf::from(format!("/proc/self/fd/{}", before.as_raw_fd()));
    for entry in created(directory, fs::read_dir(&before))? {
        let entry = created(directory, entry)?;
        let (from, to) = (before.join(entry.file_name()), directory.join(entry.file_name()));
        let kind = created(&to, entry.file_type())?;
        if kind.is_symlink() {
            created(&to, fs::read_link(&from).and_then(|link| symlink(link, &to)))?;
            continue;
        }
        if kind.is_dir() {
            created(&to, fs::create_dir(&to))?;
        } else {
            created(&to, File::create(&to))?;
        }
        bind(&from, &to, true)?;
    }
    Ok(())
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map(OwnedFd::from)
}

/// The names and the address that a machine has for itself.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    /// The machine's name in the lab, for the prompt of a shell.
    pub lab_name: &'a str,
    /// The machine's host name, which `hostname` prints.
    pub host_name: &'a str,
    /// The address that the host name stands for.
    pub address: std::net::Ipv4Addr,
}

/// Gives the calling process the file system of a machine. It must be the first process of its
/// mount, PID and network namespaces. With `own_groups` it sees the control groups below its own.
pub(crate) fn enter(names: &Names<'_>, own_groups: bool, share: &[PathBuf]) -> Result<(), MountError> {
    let shared = share
        .iter()
        .filter(|path| is_private(path))
        .map(|path| match open_path(path) {
            Ok(descriptor) => Ok((path, descriptor)),
            Err(cause) => Err(MountError::Share { path: path.clone(), cause }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let cgroups = open_path(Path::new(groups::MOUNTED)).ok();
    for (path, mode) in PRIVATE_DIRECTORIES {
        tmpfs(Path::new(path), mode)?;
    }
    // Programs expect this directory below /run.
    let lock = Path::new("/run/lock");
    created(lock, fs::create_dir(lock))?;
    created(lock, fs::set_permissions(lock, fs::Permissions::from_mode(0o1777)))?;
    if let Some(directory) = runtime_directory() {
        created(&directory, fs::create_dir_all(&directory))?;
        created(&directory, fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)))?;
    }
    for (path, descriptor) in &shared {
        created(path, fs::create_dir_all(path))?;
        bind(&PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd())), path, true)?;
    }
    // A new sysfs shows the machine's own interfaces.
    information("sysfs", Path::new("/sys"))?;
    let mounted = Path::new(groups::MOUNTED);
    if own_groups {
        tmpfs(mounted, 0o755)?;
        let (name, target) = (groups::HIERARCHY, mounted.join(groups::HIERARCHY));
        created(&target, fs::create_dir(&target))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        attach("control groups", Some(Path::new("cgroup")), &target, Some("cgroup"), flags, Some(name))?;
    } else if let Some(cgroups) = &cgroups
        && mounted.is_dir()
    {
        // The real machine's.
        bind(&PathBuf::from(format!("/proc/self/fd/{}", cgroups.as_raw_fd())), mounted, true)?;
    }
    information("proc", Path::new("/proc"))?;
    names_files(names)
}

/// A machine's own `$XDG_RUNTIME_DIR`, as a login would make it. `None` for root, who has none.
pub(crate) fn runtime_directory() -> Option<PathBuf> {
    let user = nix::unistd::geteuid();
    (!user.is_root()).then(|| PathBuf::from(format!("/run/user/{user}")))
}

/// Whether a private directory of the machines hides this path of the real machine.
pub(crate) fn is_private(path: &Path) -> bool {
    private_above(path).is_some()
}

/// The private directory of the machines that this path is in. `None` if it is in none.
pub(crate) fn private_above(path: &Path) -> Option<&'static str> {
    PRIVATE_DIRECTORIES.iter().map(|(private, _)| *private).find(|private| path.starts_with(private))
}

/// Gives a machine files that hold only its own names and address.
fn names_files(names: &Names<'_>) -> Result<(), MountError> {
    let directory = Path::new(MACHINE_DIRECTORY);
    created(directory, fs::create_dir(directory))?;
    let Names { lab_name, host_name, address } = names;
    let short = host_name.split('.').next().unwrap_or(host_name);
    let aliases = if short == *host_name { String::new() } else { format!(" {short}") };
    let hosts = format!("127.0.0.1 localhost\n::1 localhost ip6-localhost\n{address} {host_name}{aliases}\n");
    let prompt = format!("[ -f ~/.bashrc ] && . ~/.bashrc\nPS1='[{lab_name}] \\w\\$ '\n");
    write(&directory.join("bashrc"), &prompt)?;
    for (name, text) in
        [("hostname", format!("{host_name}\n")), ("hosts", hosts), ("resolv.conf", String::new())]
    {
        let file = directory.join(name);
        write(&file, &text)?;
        replace(&file, &Path::new("/etc").join(name))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), MountError> {
    created(path, fs::write(path, text))
}

/// Shows `file` at `target` if the machine has something there. If `target` is a link into a
/// private directory, the link's end becomes a copy of `file`.
fn replace(file: &Path, target: &Path) -> Result<(), MountError> {
    match fs::canonicalize(target) {
        Ok(target) => bind(file, &target, false),
        Err(_) => {
            let Ok(link) = fs::read_link(target) else { return Ok(()) };
            let end = target.parent().unwrap_or(Path::new("/")).join(link);
            if let Some(parent) = end.parent() {
                created(parent, fs::create_dir_all(parent))?;
            }
            created(&end, fs::copy(file, &end)).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_machine_hides_needs_sharing() {
        for (path, private) in [
            ("/tmp/build", true),
            ("/tmp", true),
            ("/tmpfile", false),
            ("/run/x", true),
            ("/usr/bin", false),
            ("/var/lib/isthmus/ca", true),
            ("/var/lib/other", false),
        ] {
            assert_eq!(is_private(Path::new(path)), private, "{path}");
        }
    }
}
