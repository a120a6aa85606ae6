//! The program that takes this one's place.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use isthmus_wire::upgrade::{self, VERSION};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::VARIABLE;

/// The option of a service by which a program says whether it can take over. The option's value has
/// the addresses at which the service has listeners.
pub const CHECK_OPTION: &str = "check-upgrade";

/// How long the program may take to say whether it can take over.
const DEADLINE: Duration = Duration::from_secs(10);
/// Most bytes that are read of the program's output, and of its errors.
const OUTPUT_BYTES: u64 = 4 << 10;

/// Why a program can't take over.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The program is not there, or may not be run.
    #[error("it can't be started: {0}")]
    Start(io::Error),
    /// The program runs for longer than this.
    #[error("it didn't answer within {0:?}")]
    Late(Duration),
    /// The program failed when it was asked.
    #[error("asked whether it can take over, it ended with {status} and said: {said}")]
    Failed {
        /// How the program ended.
        status: ExitStatus,
        /// What the program wrote to stderr, or to stdout, escaped and cut.
        said: String,
    },
    /// The program is of a release that doesn't know of upgrades, or no isthmus.
    #[error("asked whether it can take over, it answered {0:?}")]
    Answer(String),
    /// The program doesn't understand what this program would hand over.
    #[error(
        "it understands hand-overs of version {first} to {last}, and this program writes version {VERSION}"
    )]
    Version {
        /// The first version that the program understands.
        first: u16,
        /// The last version that the program understands.
        last: u16,
    },
}

/// A program to start, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    /// The arguments; the first is the name that the program is called by.
    arguments: Vec<OsString>,
}

impl Program {
    /// A program at this path, with its arguments; the first is the name that the program is called
    /// by.
    pub fn new(path: PathBuf, arguments: Vec<OsString>) -> Self {
        Self { path, arguments }
    }

    /// This process's program, by the path at which it was started: later another file may be
    /// there. To be called at the start.
    ///
    /// # Errors
    /// If the program can't be found.
    pub fn of_this_process() -> io::Result<Self> {
        let running = std::fs::metadata("/proc/self/exe")?;
        let same = |path: &Path| {
            std::fs::metadata(path)
                .is_ok_and(|found| (found.dev(), found.ino()) == (running.dev(), running.ino()))
        };
        let arguments: Vec<_> = std::env::args_os().collect();
        let name = arguments.first().cloned().unwrap_or_default();
        let search = std::env::var_os("PATH").unwrap_or_default();
        let path = match find(&name, &std::env::current_dir()?, &search, same) {
            Some(path) => path,
            None => std::env::current_exe()?,
        };
        Ok(Self { path, arguments })
    }

    /// The path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All arguments, with the name that the program is called by.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Asks the program that is there by now whether it can take over.
    ///
    /// # Errors
    /// Why it can't.
    pub async fn check(&self, listening: &[SocketAddr]) -> Result<(), CheckError> {
        self.check_within(listening, DEADLINE).await
    }

    async fn check_within(&self, listening: &[SocketAddr], limit: Duration) -> Result<(), CheckError> {
        let addresses: Vec<_> = listening.iter().map(ToString::to_string).collect();
        let mut command = Command::new(&self.path);
        if let [name, arguments @ ..] = &self.arguments[..] {
            command.arg0(name).args(arguments);
        }
        command.arg(format!("--{CHECK_OPTION}={}", addresses.join(",")));
        command.env_remove(VARIABLE).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(CheckError::Start)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let ending = async { tokio::join!(read(output), read(errors), child.wait()) };
        let ended = tokio::time::timeout(limit, ending).await.map_err(|_| CheckError::Late(limit))?;
        let (output, errors, status) = ended;
        let status = status.map_err(CheckError::Start)?;
        if !status.success() {
            let said = if errors.is_empty() { output } else { errors };
            return Err(CheckError::Failed { status, said: said.trim_end().escape_debug().to_string() });
        }
        let line = output.trim_end();
        let versions = upgrade::read_answer(line).map_err(|_| CheckError::Answer(line.to_owned()))?;
        if versions.contains(&VERSION) {
            Ok(())
        } else {
            Err(CheckError::Version { first: *versions.start(), last: *versions.end() })
        }
    }
}

/// The beginning of a program's output. What follows is not waited for.
async fn read(output: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        // What was read before an error counts.
        let _ = output.take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The path at which a program of this name was started, as a shell finds it. `same` says whether
/// the file there is the running program; `None` if no such file is found.
fn find(name: &OsStr, directory: &Path, search: &OsStr, same: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let places = if name.as_encoded_bytes().contains(&b'/') {
        vec![directory.join(name)]
    } else {
        std::env::split_paths(search).map(|place| directory.join(place).join(name)).collect()
    };
    places.into_iter().find(|path| same(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_is_found_by_the_path_at_which_it_was_started() {
        let at = |path: &'static str| move |found: &Path| found == Path::new(path);
        let find = |name: &str, path: &'static str| {
            find(OsStr::new(name), Path::new("/home/ada"), OsStr::new("/usr/bin::/opt/bin"), at(path))
        };
        for (name, path) in [
            ("/opt/isthmus", "/opt/isthmus"),
            ("./isthmus", "/home/ada/./isthmus"),
            ("bin/isthmus", "/home/ada/bin/isthmus"),
            ("isthmus", "/opt/bin/isthmus"),
            ("isthmus", "/home/ada/isthmus"),
        ] {
            assert_eq!(find(name, path), Some(path.into()), "{name}");
        }
        // The process was started under another name.
        assert_eq!(find("isthmus", "/usr/local/bin/isthmus"), None);
        assert_eq!(find("", "/opt/isthmus"), None);
    }

    /// A program that is a script.
    fn script(directory: &Path, text: &str) -> Program {
        let path = directory.join("isthmus");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program::new(path, vec!["isthmus".into(), "relay".into()])
    }

    /// Checks a program that was just written. Another test's child may still have the file open
    /// for a moment, between its fork and its exec.
    async fn checked(program: &Program, listening: &[SocketAddr]) -> Result<(), CheckError> {
        loop {
            match program.check(listening).await {
                Err(CheckError::Start(error)) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    tokio::task::yield_now().await;
                }
                checked => return checked,
            }
        }
    }

    #[tokio::test]
    async fn a_program_that_cannot_take_over_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let listening = ["0.0.0.0:1".parse().unwrap(), "[::]:2".parse().unwrap()];
        let answer = format!("echo {}", upgrade::answer());
        let given = format!(r#"[ "$*" = "relay --{CHECK_OPTION}=0.0.0.0:1,[::]:2" ] && {answer}"#);
        checked(&script(directory.path(), &given), &listening).await.unwrap();
        for (text, want) in [
            ("echo isthmus upgrade 8-9", "it understands hand-overs of version 8 to 9, and this"),
            ("echo hello", "it answered \"hello\""),
            ("echo bad configuration >&2; exit 3", "exit status: 3 and said: bad configuration"),
            ("printf '\\033[31m'; kill -KILL $$", "said: \\u{1b}[31m"),
            // `cat` ends by SIGPIPE.
            ("cat /dev/zero", " and said: \\0\\0"),
        ] {
            let error = checked(&script(directory.path(), text), &listening).await.unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
        let program = script(directory.path(), "");
        std::fs::set_permissions(program.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(checked(&program, &listening).await, Err(CheckError::Start(_))));
        std::fs::remove_file(program.path()).unwrap();
        assert!(matches!(program.check(&listening).await, Err(CheckError::Start(_))));
    }

    #[tokio::test]
    async fn a_program_that_does_not_answer_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let program = script(directory.path(), "exec sleep 100");
        let late = program.check_within(&[], Duration::from_millis(50)).await;
        assert!(matches!(late, Err(CheckError::Late(_))));
    }
}
