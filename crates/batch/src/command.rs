//! Running a program within a time, and its bounded output.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::BatchError;

/// A time that is enough for any command that gets an answer. Slurm's own try for up to 18 s before
/// they say that the controller doesn't answer.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of a program's output. 100,000 lines of `squeue` are about 8 MB.
const MOST_OUTPUT: u64 = 32 << 20;
/// Most bytes that are kept of what a program writes to stderr; the rest is read and dropped.
const MOST_SAID: u64 = 16 << 10;
/// Most characters of it in an error.
const MOST_SHOWN: usize = 600;

/// The variables of this process that commands get: those of the user, and [`PLACES`]. Jobs inherit
/// them, so none is of this machine only, as `XDG_RUNTIME_DIR` is. What else a scheduler's command
/// would read from its environment could change its output (`SQUEUE_FORMAT`) or the request
/// (`SBATCH_*`).
const PASSED: &[&str] = &["HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM"];
/// Variables by which commands find programs, schedulers and credentials.
pub const PLACES: &[&str] = &[
    "PATH",
    "LD_LIBRARY_PATH",
    "MODULEPATH",
    "KRB5CCNAME",
    "SLURM_CONF",
    "SGE_ROOT",
    "SGE_CELL",
    "SGE_CLUSTER_NAME",
    "SGE_QMASTER_PORT",
    "SGE_EXECD_PORT",
];

/// How the commands of one scheduler are run.
#[derive(Debug, Clone)]
pub struct Runner {
    /// The cluster's name, for messages.
    pub cluster: String,
    /// How long a command may take, such as [`LIMIT`].
    pub limit: Duration,
    /// Variables beside, or in place of, this process's own, such as `PATH` or `SLURM_CONF`.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the commands run; `None` for this process's own directory.
    pub directory: Option<PathBuf>,
}

/// What a program wrote, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command, with the arguments that tell it from others, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output. What isn't UTF-8 is replaced.
    pub out: String,
    /// Its standard error, cut.
    pub said: String,
}

impl Runner {
    /// Runs commands for this cluster.
    pub fn new(cluster: &str, limit: Duration) -> Self {
        Self { cluster: cluster.to_owned(), limit, environment: Vec::new(), directory: None }
    }

    /// Runs a program, and gives it `input`. The locale is C, and the time zone is UTC.
    ///
    /// # Errors
    /// If the program can't be started, takes too long, or writes too much. A program that ends
    /// with a status other than 0 is no error here.
    pub async fn run(&self, program: &str, arguments: &[String], input: &[u8]) -> Result<Output, BatchError> {
        let command = shown(program, arguments);
        let mut child = Command::new(program);
        child.args(arguments).env_clear().envs(self.variables());
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that what a wrapper script has started ends with it.
        child.process_group(0).kill_on_drop(true);
        if let Some(directory) = &self.directory {
            child.current_dir(directory);
        }
        let fail =
            |source| BatchError::Start { command: command.clone(), cluster: self.cluster.clone(), source };
        let mut child = child.spawn().map_err(fail)?;
        let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let give = async move {
            if let Some(mut stdin) = stdin {
                // A program that doesn't read its input says why by its status.
                let _ = stdin.write_all(input).await;
                let _ = stdin.shutdown().await;
            }
        };
        let all =
            async { tokio::join!(give, read(stdout, MOST_OUTPUT), read(stderr, MOST_SAID), child.wait()) };
        let Ok(((), out, said, status)) = tokio::time::timeout(self.limit, all).await else {
            return Err(BatchError::Late { command, cluster: self.cluster.clone(), limit: self.limit });
        };
        group.0 = None;
        let status = status.map_err(fail)?;
        if out.1 {
            return Err(self.unclear(&command, format!("more than {MOST_OUTPUT} bytes")));
        }
        Ok(Output { command, status, out: out.0, said: said.0 })
    }

    /// What a command gets of the environment.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let own =
            PASSED.iter().chain(PLACES).filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
        let fixed = [("LC_ALL", "C"), ("TZ", "UTC0"), ("SLURM_TIME_FORMAT", "standard")];
        let fixed = fixed.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        own.chain(fixed).chain(self.environment.iter().cloned()).collect()
    }

    /// An error of an output that isn't what it should be.
    pub(crate) fn unclear(&self, command: &str, what: String) -> BatchError {
        BatchError::Output { command: command.to_owned(), cluster: self.cluster.clone(), what }
    }

    /// An error of a command that says that the scheduler doesn't answer.
    pub(crate) fn unreachable(&self, output: &Output) -> BatchError {
        BatchError::Unreachable {
            command: output.command.clone(),
            cluster: self.cluster.clone(),
            said: output.reason(),
        }
    }

    /// An error of a command that says that the scheduler doesn't do what was asked.
    pub(crate) fn refused(&self, output: &Output) -> BatchError {
        BatchError::Refused {
            command: output.command.clone(),
            cluster: self.cluster.clone(),
            said: output.reason(),
        }
    }

    /// An error of a command that failed.
    pub(crate) fn failed(&self, output: &Output) -> BatchError {
        BatchError::Failed {
            command: output.command.clone(),
            cluster: self.cluster.clone(),
            status: output.status.to_string(),
            said: output.reason(),
        }
    }
}

impl Output {
    /// Whether the program ended with status 0.
    pub fn is_ok(&self) -> bool {
        self.status.success()
    }

    /// What the program said, on one line and cut.
    pub fn reason(&self) -> String {
        let said = if self.said.trim().is_empty() { &self.out } else { &self.said };
        one_line(said)
    }
}

/// A text of several lines on one, escaped and cut.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let joined = lines.take(20).collect::<Vec<_>>().join("; ");
    let mut shown: String = joined.chars().take(MOST_SHOWN).flat_map(char::escape_debug).collect();
    if joined.chars().nth(MOST_SHOWN).is_some() {
        shown.push('…');
    }
    shown.replace("\\\"", "\"").replace("\\'", "'")
}

/// A command as a message names it: no more than its beginning.
fn shown(program: &str, arguments: &[String]) -> String {
    let mut text = program.to_owned();
    for argument in arguments.iter().take(3) {
        text.push(' ');
        text.extend(argument.chars().take(60));
    }
    text
}

/// A process group that ends when this is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // There may be none left.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// What a program writes, up to a number of bytes, and whether it was more. All of it is read, so
/// that the program doesn't wait.
async fn read(output: Option<impl AsyncRead + Unpin>, most: u64) -> (String, bool) {
    let Some(mut output) = output else { return (String::new(), false) };
    let mut bytes = Vec::new();
    // What was read before an error counts.
    let _ = (&mut output).take(most).read_to_end(&mut bytes).await;
    let more = tokio::io::copy(&mut output, &mut tokio::io::sink()).await.is_ok_and(|more| more > 0);
    (String::from_utf8_lossy(&bytes).into_owned(), more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner() -> Runner {
        Runner::new("alpha", Duration::from_secs(60))
    }

    async fn sh(runner: &Runner, script: &str, input: &[u8]) -> Result<Output, BatchError> {
        runner.run("sh", &["-c".to_owned(), script.to_owned()], input).await
    }

    #[tokio::test]
    async fn a_program_gets_its_input_and_a_plain_environment() {
        let mut runner = runner();
        runner.environment.push(("SLURM_CONF".into(), "/x/slurm.conf".into()));
        let script =
            r#"cat; echo "$LC_ALL $TZ $SLURM_CONF ${CARGO_MANIFEST_DIR-unset}"; echo told >&2; exit 3"#;
        let output = sh(&runner, script, b"given\n").await.unwrap();
        assert_eq!(output.out, "given\nC UTC0 /x/slurm.conf unset\n");
        assert_eq!((output.status.code(), output.reason().as_str()), (Some(3), "told"));
        // A program that reads nothing is no error.
        assert!(sh(&runner, "exec <&-", &vec![0; 1 << 20]).await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn what_a_late_program_has_started_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let runner = Runner { limit: Duration::from_millis(300), ..runner() };
        // The child holds the fifo open for as long as it lives.
        let script = format!("(exec 3<>{}; sleep 1000) & wait", fifo.display());
        let error = sh(&runner, &script, b"").await.unwrap_err();
        assert!(matches!(error, BatchError::Late { .. }) && error.is_unreachable(), "{error}");
        let writer = tokio::task::spawn_blocking(move || {
            loop {
                // ENXIO: nobody has it open for reading.
                let opened = nix::fcntl::open(
                    &fifo,
                    nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_NONBLOCK,
                    nix::sys::stat::Mode::empty(),
                );
                if opened.is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        tokio::time::timeout(Duration::from_secs(60), writer).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_missing_program_and_endless_output_are_named() {
        let error = runner().run("isthmus-no-such-program", &[], b"").await.unwrap_err();
        assert!(error.to_string().contains("cannot start isthmus-no-such-program for alpha: "), "{error}");
        let output = sh(&runner(), "head -c 100000 /dev/zero >&2; echo out", b"").await.unwrap();
        assert_eq!((output.said.len(), output.out.as_str()), (16 << 10, "out\n"));
        assert_eq!(output.reason().chars().last(), Some('…'));
    }

    #[test]
    fn what_is_said_becomes_one_line() {
        assert_eq!(one_line("  a\n\n b\x1b[31m \"c\"\n"), "a; b\\u{1b}[31m \"c\"");
        assert_eq!(one_line(""), "");
    }
}
