//! `isthmus allocated`: the agent of one node of a batch job. It runs in a job step, which
//! `isthmus run` or `isthmus up --slurm` has started, and is the parent of the agent.
//!
//! A node may have several batch jobs of one user at a time. Each has an agent of its own, with an
//! identity and directories of its own: the first ones that no other batch job uses.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use isthmus_agent::runtime_directory;
use isthmus_front::output;
use isthmus_front::state::{host_directory, state_without_option};
use isthmus_identity::token::BearerToken;
use isthmus_run::allocation::note;
use isthmus_run::allocation::step::{AllocatedNode, Order, Word};
use isthmus_service::files;
use isthmus_wire::Label;
use nix::fcntl::{Flock, FlockArg};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin, Take};
use tokio::signal::unix::{SignalKind, signal};

use super::member::{self, Member};
use super::running;
use super::start::{self, Started};
use crate::config::CONFIG_FILE;
use crate::join::{JoinOptions, name_of_user};
use crate::service::Service;

/// Longest order, in bytes: a token has 64 KiB at most, and JSON may escape its bytes.
const ORDER: u64 = 1 << 20;
/// Most batch jobs of one user on one node at a time.
const AT_ONCE: u32 = 64;

/// Runs the agent until the order's end, and tells what became of it in one line.
///
/// # Errors
/// The message for the user, which the line has as well.
pub(crate) async fn run() -> anyhow::Result<()> {
    let host = std::env::var("SLURMD_NODENAME")
        .context("SLURMD_NODENAME isn't set: Slurm runs this command, in a job step of isthmus")?;
    let mut input = BufReader::new(tokio::io::stdin().take(ORDER));
    let result = serve(&host, &mut input).await;
    if let Err(error) = &result {
        say(&Word::Failed { host, reason: format!("{error:#}") })?;
    }
    result
}

fn say(word: &Word) -> anyhow::Result<()> {
    output::print(&(), &(serde_json::to_string(word)? + "\n"), false)
}

async fn serve(host: &str, input: &mut BufReader<Take<Stdin>>) -> anyhow::Result<()> {
    let mut line = String::new();
    input.read_line(&mut line).await.context("cannot read the order")?;
    let order: Order = serde_json::from_str(&line).context("standard input has no order of isthmus")?;
    // Before anything starts that would outlive this process.
    let mut terminate = signal(SignalKind::terminate()).context("cannot take signals")?;
    let state = order.state.clone().unwrap_or_else(state_without_option);
    let place = Place::take(&note::directory(&state, &order.cluster), host)?;
    let options = || {
        Ok(JoinOptions {
            name: Some(place.name(host, order.token.as_deref())?),
            via: order.via.clone(),
            force: false,
        })
    };
    let member = Member::of_or_joined(&place.directory, order.token.as_deref(), options).await?;
    let Some(member) = member else {
        bail!(
            "it is no member of the grid yet: give the site's token, --token FILE, and its front-end, --via HOST"
        );
    };
    let member = member::moved(member, &place.directory, order.via.as_deref()).await?;
    // Left by a job step that was killed, and perhaps in that job's control group.
    running::stop_process(&place.directory, Service::Agent)?;
    let socket = place.configure()?;
    let Started::Runs(running) = start::start(Service::Agent, &place.directory, None).await? else {
        bail!("{member} is revoked: remove {} to join anew by a token", place.directory.display());
    };
    let report = start::settled(&place.directory, running.pid, super::ATTACH).await?;
    if let Some(report) = report.filter(|report| !report.attached) {
        running::stop_process(&place.directory, Service::Agent)?;
        bail!("its agent isn't attached {}", report.why_not(std::time::SystemTime::now()));
    }
    let Member::Joined(credentials) = &member else { bail!("{member} is no node") };
    let name = credentials.identity().grid_name().context("an agent without a name")?.to_string();
    say(&Word::Ready(AllocatedNode { host: host.to_owned(), name, socket }))?;
    tokio::select! {
        _ = terminate.recv() => {}
        () = end_of(input), if order.tethered => {}
        () = gone(&place.directory) => bail!("its agent has ended; its log is {}", place.directory.join(start::LOG_FILE).display()),
    }
    running::stop_process(&place.directory, Service::Agent)?;
    Ok(())
}

/// Waits for the end of standard input.
async fn end_of(input: &mut BufReader<Take<Stdin>>) {
    let mut rest = [0; 256];
    while input.read(&mut rest).await.is_ok_and(|length| length > 0) {}
}

/// Waits until the agent runs no more.
async fn gone(directory: &Path) {
    while running::pid(directory, Service::Agent).is_ok_and(|pid| pid.is_some()) {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

/// The directories of one agent, which no other process uses as long as this value lives.
struct Place {
    directory: PathBuf,
    number: u32,
    _lock: Flock<File>,
}

impl Place {
    /// Takes the first place of a node that is free.
    fn take(parent: &Path, host: &str) -> anyhow::Result<Self> {
        for number in 1..=AT_ONCE {
            let directory = parent.join(format!("{}-{number}", host_directory(host)));
            files::create_directory(&directory)?;
            let path = directory.join("place.lock");
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&path).with_context(|| format!("cannot write {}", path.display()))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Self { directory, number, _lock: lock }),
                Err((_, nix::Error::EAGAIN)) => {}
                Err((_, error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
        bail!("{AT_ONCE} batch jobs of this user have agents here already")
    }

    /// The name of the node in the grid, `HOST-OWNER-NUMBER`.
    fn name(&self, host: &str, token: Option<&str>) -> anyhow::Result<Label> {
        let token = token.map(BearerToken::read).transpose()?;
        let owner = token.and_then(|token| token.public.invitation.owner);
        let name = host_directory(host).parse::<Label>().ok().zip(owner);
        let name = name.and_then(|(host, owner)| name_of_user(&host, &owner));
        let name =
            name.with_context(|| format!("{host} gives no name of a node, or the token names no owner"))?;
        numbered(&name, self.number).with_context(|| format!("{name} is too long for a node's name"))
    }

    /// Writes the agent's configuration. Returns its socket.
    fn configure(&self) -> anyhow::Result<PathBuf> {
        let runtime = runtime_directory::further(&format!("job{}", self.number));
        let runtime = runtime.context("this user has no home directory on this node")?;
        runtime_directory::check(Some(&runtime))?;
        let text = format!("[agent]\nruntime_directory = {:?}\n", runtime.display().to_string());
        files::write(&self.directory.join(CONFIG_FILE), text.as_bytes(), 0o600)?;
        Ok(runtime.join(runtime_directory::LOCAL_SOCKET))
    }
}

/// A name with a number at its end, at most 63 bytes long (RFC 1035); `None` if none can be made.
fn numbered(name: &Label, number: u32) -> Option<Label> {
    format!("{}-{number}", name.as_str()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_job_of_a_node_has_a_place_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let parent = directory.path().join("slurm");
        let first = Place::take(&parent, "n2.alpha.example").unwrap();
        let second = Place::take(&parent, "n2.alpha.example").unwrap();
        let other = Place::take(&parent, "n3").unwrap();
        assert_eq!((first.number, second.number, other.number), (1, 2, 1));
        assert!(first.directory.ends_with("n2-1") && second.directory.ends_with("n2-2"));
        drop(first);
        assert_eq!(Place::take(&parent, "n2.alpha.example").unwrap().number, 1);
    }

    #[test]
    fn a_name_has_the_number_of_its_place() {
        let label = |text: &str| text.parse::<Label>().unwrap();
        assert_eq!(numbered(&label("n2-ada"), 1).unwrap().as_str(), "n2-ada-1");
        assert!(numbered(&label(&"x".repeat(63)), 1).is_none());
    }
}
