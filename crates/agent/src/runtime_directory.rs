//! Where an agent keeps its Unix socket and its jobs' directories, and where commands
//! look for it.
//!
//! A saved environment may name a library in a job's directory long after the job. So
//! only this user may ever be able to make that path.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use isthmus_service::private::{self, PrivateError};
use isthmus_wire::settings;
use nix::sys::statvfs::{FsFlags, statvfs};

/// Name of the agent's Unix socket in its runtime directory.
pub const LOCAL_SOCKET: &str = "agent.sock";

/// Longest path of a Unix socket in bytes (`sun_path` without its final zero byte).
const SOCKET_PATH_MAX: usize = 107;
/// Length of a job's id as text, in bytes.
const JOB_ID_LEN: usize = 32;
/// Longest host name in paths, in bytes; the rest of a longer name is cut off.
const HOST_MAX: usize = 24;

/// Why there is no runtime directory.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirectoryError {
    /// Another user could put something into the directory.
    #[error(
        "cannot keep the agent's socket and its jobs' directories in a safe place: {0}; [agent] runtime_directory \
         names another one"
    )]
    Private(#[from] PrivateError),
    /// The file system of the directory is mounted noexec.
    #[error(
        "jobs cannot have their directories in {}: its file system is mounted noexec; \
         set [agent] runtime_directory to another directory",
        .0.display()
    )]
    NotExecutable(PathBuf),
    /// After its removal, any user may make the directory anew, as in /tmp at a restart.
    #[error(
        "jobs cannot have their directories in {}: other users may make files in {}, and a saved LD_PRELOAD outlives \
         the directory; set [agent] runtime_directory to one elsewhere",
        path.display(),
        open.display()
    )]
    Open {
        /// The directory that would be the agent's.
        path: PathBuf,
        /// The directory above it that has the sticky bit and that others may write to.
        open: PathBuf,
    },
    /// A job's Unix socket would have too long a path.
    #[error(
        "jobs cannot have their sockets in {}: a path of {length} bytes is longer than the {SOCKET_PATH_MAX} \
         that Unix sockets allow; set [agent] runtime_directory to a shorter path",
        path.display()
    )]
    TooLong {
        /// The directory that would be the agent's.
        path: PathBuf,
        /// Length of a socket's path in it, in bytes.
        length: usize,
    },
    /// `LD_PRELOAD` can't name a file in the directory.
    #[error(
        "jobs cannot have their directories in {}: LD_PRELOAD and launchers take letters, digits and /._+@- only; \
         set [agent] runtime_directory to another path",
        .0.display()
    )]
    Characters(PathBuf),
    /// The user has no directory of its own.
    #[error(
        "there is no place for the agent's socket: user id {0} has no home directory, and no \
         $XDG_RUNTIME_DIR that outlives a login (loginctl enable-linger); set [agent] runtime_directory"
    )]
    None(u32),
}

/// All that decides which directory is the agent's.
#[derive(Debug, Clone, Default)]
struct Facts {
    user: u32,
    /// This machine's name: several machines may share a home.
    host: String,
    /// Whether /run is mounted noexec, as some distributions do.
    run_noexec: bool,
    /// `$XDG_RUNTIME_DIR`, and /run/user/UID: commands of a cron job have no such
    /// variable.
    logins: Vec<Login>,
    /// Whether the user's runtime directory stays after the last logout.
    lingers: bool,
    /// `$HOME`, and the home in the user database.
    homes: Vec<PathBuf>,
}

/// A runtime directory that a login made.
#[derive(Debug, Clone)]
struct Login {
    path: PathBuf,
    owner: u32,
    /// Permission bits, with those for setuid, setgid and the sticky bit.
    mode: u32,
    noexec: bool,
}

impl Facts {
    /// The agent's directory. Of those below /run, only one that lingering keeps is never removed.
    /// Those below /tmp may be removed at any time, so none is chosen.
    fn choose(&self) -> Option<PathBuf> {
        if self.user == 0 {
            return self.places().into_iter().nth(usize::from(self.run_noexec));
        }
        let fits = |login: &&Login| {
            let own = login.owner == self.user && login.mode & 0o777 == 0o700;
            own && !login.noexec && self.lingers && login.path.starts_with("/run")
        };
        let login = self.logins.iter().find(fits).map(|login| login.path.join("isthmus"));
        login.or_else(|| self.homes.first().map(|home| self.in_home(home)))
    }

    /// All places at which an agent of this user may be, the likeliest first.
    fn places(&self) -> Vec<PathBuf> {
        if self.user == 0 {
            return vec!["/run/isthmus".into(), "/var/lib/isthmus/run".into()];
        }
        let logins = self.logins.iter().map(|login| login.path.join("isthmus"));
        let mut places: Vec<PathBuf> = Vec::new();
        for place in logins.chain(self.homes.iter().map(|home| self.in_home(home))) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// The directory of this host in a home. Its path is short because paths of Unix sockets are.
    fn in_home(&self, home: &Path) -> PathBuf {
        home.join(".isthmus").join(file_name(&self.host))
    }

    fn gather() -> Self {
        let user = nix::unistd::geteuid();
        let own = nix::unistd::User::from_uid(user).ok().flatten();
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let noexec =
            |path: &Path| statvfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC));
        let login = |path: PathBuf| {
            let found = std::fs::metadata(&path).ok()?;
            let noexec = noexec(&path);
            Some(Login { path, owner: found.uid(), mode: found.mode() & 0o7777, noexec })
        };
        let made_by_systemd = PathBuf::from(format!("/run/user/{user}"));
        let logins = [variable("XDG_RUNTIME_DIR"), Some(made_by_systemd)];
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self {
            user: user.as_raw(),
            host: host.to_string_lossy().into_owned(),
            run_noexec: noexec(Path::new("/run")),
            logins: logins.into_iter().flatten().filter_map(login).collect(),
            lingers: lingers(),
            homes: [variable("HOME"), own.map(|own| own.dir)].into_iter().flatten().collect(),
        }
    }
}

/// A host's name as a file name of at most [`HOST_MAX`] bytes. Two long names get different file
/// names even if they begin alike.
pub fn file_name(host: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=HOST_MAX).contains(&host.len()) && host.bytes().all(plain) && !host.starts_with('.') {
        return host.to_owned();
    }
    // FNV-1a; names of one site's machines needn't be defended against one another.
    let hash = host
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let beginning: String = host.chars().filter(char::is_ascii_alphanumeric).take(HOST_MAX - 9).collect();
    format!("{beginning}-{:08x}", hash >> 32)
}

/// Makes and checks the agent's runtime directory: the configured one, or the default.
///
/// # Errors
/// If none fits; the error names the setting that helps.
pub(crate) fn prepare(configured: Option<&Path>) -> Result<PathBuf, RuntimeDirectoryError> {
    let wanted = match configured {
        Some(path) => path.to_owned(),
        None => {
            let facts = Facts::gather();
            facts.choose().ok_or(RuntimeDirectoryError::None(facts.user))?
        }
    };
    let made = private::make_directory(&wanted)?;
    suits(&made)?;
    lasts(&made)?;
    let mounted = statvfs(&made).map(|found| found.flags());
    if mounted.is_ok_and(|flags| flags.contains(FsFlags::ST_NOEXEC)) {
        return Err(RuntimeDirectoryError::NotExecutable(made));
    }
    Ok(made)
}

/// The directory of a further agent of this user on this machine, beside the default one; `None` for
/// a user without a place for one.
pub fn further(name: &str) -> Option<PathBuf> {
    let first = Facts::gather().choose()?;
    let beside = format!("{}-{name}", first.file_name()?.to_string_lossy());
    Some(first.with_file_name(beside))
}

/// Whether this user's systemd runs without a login (`loginctl enable-linger`).
pub fn lingers() -> bool {
    let own = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    own.is_some_and(|own| Path::new("/var/lib/systemd/linger").join(own.name).exists())
}

/// Checks what can be known of the agent's runtime directory before it is made. There must be one,
/// and sockets and launchers must take its path.
///
/// # Errors
/// As the agent's start has them, with the setting that helps.
pub fn check(configured: Option<&Path>) -> Result<(), RuntimeDirectoryError> {
    let facts = Facts::gather();
    let chosen = configured.map(Path::to_owned).or_else(|| facts.choose());
    suits(&chosen.ok_or(RuntimeDirectoryError::None(facts.user))?)
}

/// Checks that a job's socket below this path has no path that is too long, and that launchers can
/// pass the path on.
fn suits(path: &Path) -> Result<(), RuntimeDirectoryError> {
    let text = path.as_os_str().as_encoded_bytes();
    if !text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._+@-".contains(byte)) {
        return Err(RuntimeDirectoryError::Characters(path.to_owned()));
    }
    let length = text.len() + 1 + JOB_ID_LEN + 1 + settings::SOCKET_NAME.len();
    if length > SOCKET_PATH_MAX {
        return Err(RuntimeDirectoryError::TooLong { path: path.to_owned(), length });
    }
    Ok(())
}

/// Checks that no other user can make the directory once it is gone.
fn lasts(path: &Path) -> Result<(), RuntimeDirectoryError> {
    let open = |above: &&Path| std::fs::metadata(above).is_ok_and(|found| private::is_open(&found));
    match path.ancestors().find(open) {
        Some(open) => Err(RuntimeDirectoryError::Open { path: path.to_owned(), open: open.to_owned() }),
        None => Ok(()),
    }
}

/// The paths at which a command looks for this node's agent, the likeliest first.
pub fn sockets() -> Vec<PathBuf> {
    Facts::gather().places().into_iter().map(|place| place.join(LOCAL_SOCKET)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let login = Login { path: "/run/user/1000".into(), owner: 1000, mode: 0o700, noexec: false };
        Facts {
            user: 1000,
            host: "login1".to_owned(),
            logins: vec![login],
            lingers: true,
            homes: vec!["/home/ada".into()],
            ..Facts::default()
        }
    }

    #[test]
    fn an_agent_s_place_outlives_a_login_and_is_its_user_s_alone() {
        let login = |change: fn(&mut Login)| {
            let mut facts = facts();
            facts.logins.iter_mut().for_each(change);
            facts
        };
        let home = Some("/home/ada/.isthmus/login1");
        for (what, facts, want) in [
            ("root", Facts { user: 0, ..facts() }, Some("/run/isthmus")),
            (
                "root, /run noexec",
                Facts { user: 0, run_noexec: true, ..facts() },
                Some("/var/lib/isthmus/run"),
            ),
            ("lingering", facts(), Some("/run/user/1000/isthmus")),
            ("without lingering", Facts { lingers: false, ..facts() }, home),
            ("another user's", login(|login| login.owner = 1001), home),
            ("open to others", login(|login| login.mode = 0o755), home),
            ("noexec", login(|login| login.noexec = true), home),
            ("below /tmp", login(|login| login.path = "/tmp/ada".into()), home),
            ("no login", Facts { logins: Vec::new(), ..facts() }, home),
            ("nothing", Facts { logins: Vec::new(), homes: Vec::new(), ..facts() }, None),
        ] {
            assert_eq!(facts.choose(), want.map(PathBuf::from), "{what}");
        }
    }

    #[test]
    fn commands_look_at_each_place_that_an_agent_may_choose() {
        let all = facts();
        assert_eq!(
            all.places(),
            [PathBuf::from("/run/user/1000/isthmus"), "/home/ada/.isthmus/login1".into()]
        );
        for facts in [
            all.clone(),
            Facts { lingers: false, ..all.clone() },
            Facts { logins: Vec::new(), ..all.clone() },
        ] {
            assert!(all.places().contains(&facts.choose().unwrap()));
        }
        let root = Facts { user: 0, run_noexec: true, ..all };
        assert!(root.places().contains(&root.choose().unwrap()));
    }

    #[test]
    fn hosts_that_share_a_home_have_a_directory_each() {
        for host in ["login1", "a.b-c_d.example"] {
            assert_eq!(file_name(host), host);
        }
        let long = |number: u32| format!("compute-{number}.cluster.university.example");
        let names: Vec<_> = (1..=3).map(|number| file_name(&long(number))).collect();
        assert!(names.iter().all(|name| name.len() <= HOST_MAX), "{names:?}");
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        for odd in ["", "..", "../../etc", "a b", "ä"] {
            let name = file_name(odd);
            assert!(!name.contains(['/', ' ']) && !name.starts_with('.') && !name.is_empty(), "{name:?}");
        }
    }

    #[test]
    fn a_directory_that_others_can_make_anew_is_refused() {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let error = prepare(Some(directory.path())).unwrap_err().to_string();
        assert!(error.contains("other users may make files in /tmp,"), "{error}");
    }

    #[test]
    fn paths_that_sockets_or_launchers_can_t_take_are_refused() {
        let long = format!("/home/{}", "x".repeat(80));
        for (path, want) in [
            ("/run/isthmus", None),
            ("/home/ada@example.org/.isthmus/n1", None),
            (long.as_str(), Some("longer than the 107")),
            ("/home/a b", Some("LD_PRELOAD")),
            ("/home/a:b", Some("LD_PRELOAD")),
        ] {
            let error = suits(Path::new(path)).map_err(|error| error.to_string()).err();
            assert_eq!(error.is_some(), want.is_some(), "{path}: {error:?}");
            assert!(
                error.is_none_or(|error| {
                    error.contains(want.unwrap_or_default()) && error.contains("[agent] runtime_directory")
                }),
                "{path}"
            );
        }
    }
}
