//! Commands of a job on this node, started for a launcher on another node.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isthmus_service::exhausted::Exhausted;
use isthmus_wire::launchers::DAEMONS;
use isthmus_wire::proto::{self, exec_down, exec_up};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;
use tracing::info;

use crate::jobs::job::Job;
use crate::jobs::job_directory::preload;
use crate::jobs::node::Node;
use crate::starting::processes::{Control, Running};
use crate::starting::supervise::handle::{self, BY_LIBC, Launch, clean_environment};
use crate::starting::supervise::{Outcome, Supervised};

/// Most chunks of output that wait for the launcher.
const OUTPUT_QUEUE: usize = 16;
/// Size of a chunk of output in bytes.
const CHUNK: usize = 32 * 1024;
/// How long output is forwarded after the command has ended: a daemonised descendant
/// may hold the pipe open for ever.
const DRAIN: Duration = Duration::from_secs(1);
/// Pause before a descendant's end is reported: the command's own end may be its cause, and is
/// reported instead.
const TOGETHER: Duration = Duration::from_millis(500);

/// Runs a command of a job on this node; `up` is the rest of its launcher's stream.
///
/// # Errors If the job is ending, or the supervisor can't be started.
pub(crate) fn run(
    node: &Node,
    job: &Arc<Job>,
    command: &proto::Command,
    up: impl Stream<Item = Result<proto::ExecUp, Status>> + Send + Unpin + 'static,
) -> Result<ReceiverStream<Result<proto::ExecDown, Status>>, Status> {
    if job.processes.is_closed() {
        return Err(Status::failed_precondition("the job is ending"));
    }
    let (down_tx, down_rx) = mpsc::channel(OUTPUT_QUEUE);
    let isthmus = &node.facilities().isthmus;
    let mut environment = clean_environment();
    environment.extend(BY_LIBC.map(|(name, value)| (name.into(), value.into())));
    let variable = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    environment
        .extend(command.environment.iter().map(|entry| (variable(&entry.name), variable(&entry.value))));
    let own_directory = job.directory.path().to_string_lossy();
    let shell_command = here(&command.shell_command, &command.job_directory, &own_directory);
    environment.push(("LD_PRELOAD".into(), preload(job.directory.path())));
    environment.push(("ISTHMUS_AGENT".into(), node.facilities().local_socket.clone().into()));
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
    let wanted = Path::new(&command.working_directory);
    let working_directory = if wanted.is_dir() { wanted } else { Path::new(&home) };
    let launch = Launch {
        isthmus,
        command: vec!["/bin/sh".into(), "-c".into(), shell_command.into()],
        environment,
        working_directory,
        detached: true,
    };
    let mut supervised = Supervised::start(launch).map_err(|error| {
        if let Some(exhausted) = Exhausted::of(&error) {
            job.news.short(&node.name().to_string(), exhausted);
        }
        Status::internal(format!("cannot start {} on {}: {error}", isthmus.display(), node.name()))
    })?;
    let (stdin, stdout, stderr) =
        (supervised.stdin.take(), supervised.stdout.take(), supervised.stderr.take());
    // Sending succeeds: the queue is empty.
    let _ = down_tx.try_send(Ok(proto::ExecDown { kind: Some(exec_down::Kind::Started(true)) }));
    let program = program_of(&command.shell_command);
    let (key, running) = job.processes.add(supervised, program.to_owned());
    info!(job = %job.id, program, "command starts");

    let out = tokio::spawn(forward(stdout, down_tx.clone(), exec_down::Kind::Stdout));
    let err = tokio::spawn(forward(stderr, down_tx.clone(), exec_down::Kind::Stderr));
    let input = tokio::spawn(follow(up, stdin, running.control_tx.clone()));
    let (job, node) = (job.clone(), node.name().to_string());
    let reporting = tokio::spawn(report_killed(job.clone(), node, running.clone()));
    tokio::spawn(async move {
        let mut outcome = running.outcome.clone();
        let status = tokio::select! {
            status = handle::status(&mut outcome) => status,
            () = down_tx.closed() => {
                // The launcher is gone, so its command is ended.
                let _ = running.control_tx.send(Control::End).await;
                handle::status(&mut outcome).await
            }
        };
        let _ = tokio::time::timeout(DRAIN, async { tokio::join!(out, err) }).await;
        input.abort();
        let exit = exec_down::Kind::Exit(proto::Exit { status, reason: String::new() });
        let _ = down_tx.send(Ok(proto::ExecDown { kind: Some(exit) })).await;
        drop(down_tx);
        // Until the command's end is reported, the job's end finds the command here.
        let _ = reporting.await;
        job.processes.remove(key);
    });
    Ok(ReceiverStream::new(down_rx))
}

/// Reports an end of the command, or of a process that it left, by a signal that neither the
/// launcher nor this agent sent. Returns once no process is left.
async fn report_killed(job: Arc<Job>, node: String, mut running: Running) {
    let mut known = None;
    loop {
        let changed = |outcome: &Outcome| outcome.killed != known || outcome.gone.is_some();
        let is_over = running.outcome.wait_for(changed).await.is_err();
        let _ = tokio::time::timeout(TOGETHER, handle::status(&mut running.outcome)).await;
        let outcome = *running.outcome.borrow();
        if let Some(killed) = running.killed(job.processes.is_closed()) {
            job.news.killed(&node, killed);
        }
        if is_over || outcome.gone.is_some() {
            return;
        }
        known = outcome.killed;
    }
}

/// A launcher's command that names the job's directory on this node (`own`) in place of that on the
/// launcher's node (`theirs`). A launcher's daemons get the path of the launch script in their
/// arguments, and start further daemons by it.
fn here(shell_command: &str, theirs: &str, own: &str) -> String {
    if theirs.is_empty() || theirs == own {
        return shell_command.to_owned();
    }
    shell_command.replace(&format!("{theirs}/"), &format!("{own}/"))
}

/// The program's name in a shell command: a launcher's daemon, else the first word that sets no
/// variable. A variable's value may be a secret.
pub(crate) fn program_of(shell_command: &str) -> &str {
    let mut names = shell_command
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .filter_map(|word| word.rsplit('/').next());
    let first = shell_command.split_whitespace().find(|word| !word.contains('=')).unwrap_or_default();
    names.find(|name| DAEMONS.contains(name)).unwrap_or(first)
}

async fn forward(
    from: Option<impl AsyncRead + Unpin>,
    down_tx: mpsc::Sender<Result<proto::ExecDown, Status>>,
    kind: fn(Vec<u8>) -> exec_down::Kind,
) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        let message = proto::ExecDown { kind: Some(kind(chunk[..count].to_vec())) };
        if down_tx.send(Ok(message)).await.is_err() {
            return;
        }
    }
}

/// Passes input and signals on until the launcher's stream ends. If the stream breaks,
/// the command is ended.
async fn follow(
    mut up: impl Stream<Item = Result<proto::ExecUp, Status>> + Unpin,
    stdin: Option<tokio::process::ChildStdin>,
    control_tx: mpsc::Sender<Control>,
) {
    let mut stdin = stdin;
    while let Some(message) = up.next().await {
        match message.map(|message| message.kind) {
            Ok(Some(exec_up::Kind::Stdin(bytes))) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Ok(Some(exec_up::Kind::StdinEnd(_))) => stdin = None,
            Ok(Some(exec_up::Kind::Signal(signal))) => {
                let _ = control_tx.send(Control::Signal(signal)).await;
            }
            Ok(Some(exec_up::Kind::Command(_)) | None) => {}
            Err(_) => {
                let _ = control_tx.send(Control::End).await;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_s_directory_is_that_of_this_node() {
        for (line, theirs, want) in [
            ("orted -mca plm_rsh_agent /r/1/launch", "/r/1", "orted -mca plm_rsh_agent /home/a/1/launch"),
            ("proxy --launcher-exec \"/r/1/launch\"", "/r/1", "proxy --launcher-exec \"/home/a/1/launch\""),
            ("orted /r/12/launch", "/r/1", "orted /r/12/launch"),
            ("orted /launch", "", "orted /launch"),
            ("orted /home/a/1/launch", "/home/a/1", "orted /home/a/1/launch"),
        ] {
            assert_eq!(here(line, theirs, "/home/a/1"), want, "{line}");
        }
    }

    #[test]
    fn the_program_is_found_behind_variables() {
        for (line, want) in [
            ("orted -mca ess env", "orted"),
            ("PRTE_PREFIX=/p;export PRTE_PREFIX; /p/bin/prted --x 1", "prted"),
            ("\"/p/bin/hydra_pmi_proxy\" --control-port n1.a:1", "hydra_pmi_proxy"),
            ("sleep 5", "sleep"),
            ("KEY=secret ./app", "./app"),
            ("", ""),
        ] {
            assert_eq!(program_of(line), want, "{line}");
        }
    }
}
