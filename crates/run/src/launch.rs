//! `isthmus launch`: an MPI's launcher calls it in place of ssh. It runs a command
//! on another node of the job, through the agents.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use isthmus_front::local;
use isthmus_front::output::message;
use isthmus_wire::proto::Command;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::signal::unix::{SignalKind, signal};

use crate::remote::{self, Hand, Remote, Stream};

/// Exit status of ssh where the connection failed (ssh(1)).
pub(crate) const CONNECTION_FAILED: u8 = 255;
/// Options of ssh that take a value.
const WITH_VALUE: &[&str] =
    &["-l", "-p", "-o", "-i", "-F", "-c", "-m", "-b", "-e", "-J", "-L", "-R", "-D", "-w", "-W", "-S"];

/// The launch script of a job calls it.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// The agent's Unix socket.
    #[arg(long)]
    socket: PathBuf,
    /// The job's id.
    #[arg(long)]
    job: String,
    /// As ssh takes them: [options] HOST COMMAND...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// Runs `isthmus launch`, and returns the exit status of this process.
pub fn main(args: LaunchArgs) -> ExitCode {
    block_on(async {
        let call = parse(&args.words).context("expected HOST COMMAND...")?;
        let command = Command {
            environment: remote::variables(&args.job, &[]),
            job: args.job,
            node: call.host,
            shell_command: call.command,
            working_directory: working_directory(),
            job_directory: String::new(),
        };
        // A launcher passes them on itself, and a daemon would end by them.
        run(args.socket, command, call.no_input, false).await
    })
}

/// Runs a remote command to its end, and returns its exit status.
pub(crate) fn block_on(command: impl Future<Output = anyhow::Result<i32>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.context("cannot start").and_then(|runtime| {
        let result = runtime.block_on(command);
        // A read from standard input may wait for ever.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(CONNECTION_FAILED)),
        Err(error) => {
            message(&format!("{error:#}"));
            ExitCode::from(CONNECTION_FAILED)
        }
    }
}

/// The directory in which a command on another node starts, if the node has it.
pub(crate) fn working_directory() -> String {
    std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned()
}

/// Signals that only tell something. A batch system may send them to all processes of a job step
/// (sbatch(1), `--signal`).
const NOTICES: [SignalKind; 2] = [SignalKind::user_defined1(), SignalKind::user_defined2()];

/// What a launcher asks of ssh.
#[derive(Debug, PartialEq, Eq)]
struct SshCall {
    host: String,
    command: String,
    /// Whether `-n` was given: the command gets no standard input.
    no_input: bool,
}

/// Reads arguments as ssh(1) has them; `None` without a command. Of the options only `-n` has an
/// effect.
fn parse(words: &[String]) -> Option<SshCall> {
    let mut no_input = false;
    let mut index = 0;
    while let Some(word) = words.get(index) {
        if !word.starts_with('-') {
            break;
        }
        no_input |= word == "-n";
        index += if WITH_VALUE.contains(&word.as_str()) { 2 } else { 1 };
    }
    let host = words.get(index)?;
    let command = words.get(index + 1..)?.join(" ");
    (!command.is_empty()).then(|| SshCall { host: host.clone(), command, no_input })
}

/// Runs a command on another node with this process's input, output and
/// signals. With `passes_notices` it gets [`NOTICES`], too; otherwise nobody does.
///
/// # Errors If the command can't be run, or the connection ends before it.
pub(crate) async fn run(
    socket: PathBuf,
    command: Command,
    no_input: bool,
    passes_notices: bool,
) -> anyhow::Result<i32> {
    let mut agent = local::connect(&socket).await?;
    let remote = Remote::new(command);
    tokio::spawn(input(no_input, remote.hand()));
    for kind in
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].into_iter().chain(NOTICES)
    {
        let hand = remote.hand();
        // The handler stays without its receiver.
        let mut signals = signal(kind)?;
        if NOTICES.contains(&kind) && !passes_notices {
            continue;
        }
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                hand.signal(kind.as_raw_value()).await;
            }
        });
    }
    let sink = |stream, bytes: &[u8]| match stream {
        Stream::Output => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
        Stream::Error => std::io::stderr().lock().write_all(bytes),
    };
    Ok(remote.run(&mut agent, sink).await?.unwrap_or(CONNECTION_FAILED.into()))
}

async fn input(none: bool, hand: Hand) {
    let mut chunk = vec![0; 16 * 1024];
    let mut stdin: Box<dyn AsyncRead + Send + Unpin> =
        if none { Box::new(tokio::io::empty()) } else { Box::new(tokio::io::stdin()) };
    while let Ok(count @ 1..) = stdin.read(&mut chunk).await {
        if !hand.input(&chunk[..count]).await {
            return;
        }
    }
    hand.end_input().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_ssh_reads_them() {
        let call = |host: &str, command: &str, no_input| {
            Some(SshCall { host: host.to_owned(), command: command.to_owned(), no_input })
        };
        for (line, want) in [
            ("n1.beta orted --flag", call("n1.beta", "orted --flag", false)),
            ("-x n1.beta proxy", call("n1.beta", "proxy", false)),
            ("-n -l ada -o A=b n1.beta true", call("n1.beta", "true", true)),
            ("n1.beta", None),
            ("-x", None),
            ("", None),
        ] {
            let words: Vec<_> = line.split_whitespace().map(ToOwned::to_owned).collect();
            assert_eq!(parse(&words), want, "{line:?}");
        }
    }
}
