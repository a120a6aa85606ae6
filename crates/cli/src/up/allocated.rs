//! `isthmus allocated`: the agent of one node of a batch job. It runs in a job step, which
//! `isthmus run` or `isthmus up --slurm` has started, or in a pilot, and is the parent of the agent.
//! A pilot's node joins the grid by the pilot's token, and its identity ends with it.
//!
//! A node may have several batch jobs of one user at a time. Each has an agent of its own, with an
//! identity and directories of its own: the first ones that no other batch job uses.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use isthmus_agent::runtime_directory;
use isthmus_batch::pilot::SECRET_VARIABLE;
use isthmus_front::state::{host_directory, state_without_option};
use isthmus_front::{local, output};
use isthmus_identity::Credentials;
use isthmus_identity::token::BearerToken;
use isthmus_pilot::order::{AllocatedNode, Word};
use isthmus_pilot::{Of, Order};
use isthmus_rpc::grpc;
use isthmus_run::allocation::note;
use isthmus_service::files;
use isthmus_wire::{Label, proto};
use nix::fcntl::{Flock, FlockArg};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin, Take};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tonic::Code;

use super::member::{self, Member};
use super::running;
use super::start::{self, Started};
use crate::config::CONFIG_FILE;
use crate::join::{JoinOptions, name_of_user};
use crate::service::Service;
use crate::services::ignore_notices;

/// Longest order, in bytes: a token has 64 KiB at most, and JSON may escape its bytes.
const ORDER: u64 = 1 << 20;
/// How long the agent that has submitted a pilot may be away when a node arrives.
const ARRIVE: Duration = Duration::from_secs(120);
/// How long that agent may be away later. Then the node ends its part of the pilot.
const AWAY: Duration = Duration::from_secs(600);
/// How often a pilot's node tells that agent that it is there.
const STILL_THERE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_secs(2);
/// Most batch jobs of one user on one node at a time.
const AT_ONCE: u32 = 64;

/// Runs the agent until the order's end, and tells what became of it in one line.
///
/// # Errors
/// The message for the user, which the line has as well.
pub(crate) async fn run() -> anyhow::Result<()> {
    let named = std::env::var("SLURMD_NODENAME");
    let result;
    let host;
    if let Some(secret) = std::env::var_os(SECRET_VARIABLE) {
        let own = || nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        host = named.or_else(|_| own()).context("cannot read this node's name")?;
        result = serve(&host, &of_pilot(Path::new(&secret))?, None).await;
    } else {
        host =
            named.context("SLURMD_NODENAME isn't set: Slurm runs this command, in a job step of isthmus")?;
        let mut input = BufReader::new(tokio::io::stdin().take(ORDER));
        let mut line = String::new();
        input.read_line(&mut line).await.context("cannot read the order")?;
        let order: Order = serde_json::from_str(&line).context("standard input has no order of isthmus")?;
        result = serve(&host, &order, Some(&mut input)).await;
    }
    if let Err(error) = &result {
        say(&Word::Failed { host, reason: format!("{error:#}") })?;
    }
    result
}

fn say(word: &Word) -> anyhow::Result<()> {
    output::print(&(), &(serde_json::to_string(word)? + "\n"), false)
}

/// The order in a pilot's secret.
fn of_pilot(secret: &Path) -> anyhow::Result<Order> {
    let there = std::fs::metadata(secret).with_context(|| format!("cannot read {}", secret.display()))?;
    if there.len() > ORDER {
        bail!("{} has more than {ORDER} bytes", secret.display());
    }
    let order: Order = serde_json::from_str(&files::read_secret(secret)?)
        .with_context(|| format!("{} has no order of isthmus", secret.display()))?;
    if order.pilot.is_none() {
        bail!("the order in {} names no pilot", secret.display());
    }
    Ok(order)
}

/// Runs the agent. It ends by SIGTERM, or if it is tethered, with the input.
async fn serve(host: &str, order: &Order, input: Option<&mut BufReader<Take<Stdin>>>) -> anyhow::Result<()> {
    // Before anything starts that would outlive this process.
    let mut terminate = signal(SignalKind::terminate()).context("cannot take signals")?;
    ignore_notices()?;
    let state = order.state.clone().unwrap_or_else(state_without_option);
    let parent = note::directory(&state, &order.cluster);
    let parent = if order.pilot.is_some() { parent.join("pilots") } else { parent };
    let place = Place::take(&parent, host)?;
    if order.pilot.is_some() {
        // Of an earlier pilot, whose end this node didn't live to see.
        place.forget()?;
    }
    let options =
        || Ok(JoinOptions { name: Some(place.name(host, order)?), via: order.via.clone(), force: false });
    let member = Member::of_or_joined(&place.directory, order.token.as_deref(), options).await?;
    let Some(member) = member else {
        bail!(
            "it is no member of the grid yet: give the site's token, --token FILE, and its front-end, --via HOST"
        );
    };
    let member = member::moved(member, &place.directory, order.via.as_deref()).await?;
    // Left by a job step that was killed, and perhaps in that job's control group.
    running::stop_process(&place.directory, Service::Agent)?;
    let socket = place.configure(order.pilot.as_ref())?;
    let Started::Runs(running) = start::start_child(Service::Agent, &place.directory).await? else {
        bail!("{member} is revoked: remove {} to join anew by a token", place.directory.display());
    };
    let report = start::settled(&place.directory, running.pid, super::ATTACH).await?;
    if let Some(report) = report.filter(|report| !report.attached) {
        running::stop_process(&place.directory, Service::Agent)?;
        bail!("its agent isn't attached {}", report.why_not(std::time::SystemTime::now()));
    }
    let Member::Joined(credentials) = &member else { bail!("{member} is no node") };
    let name = credentials.identity().grid_name().context("an agent without a name")?.to_string();
    let node = AllocatedNode { host: host.to_owned(), name, socket };
    let ended = tokio::select! {
        ended = stay(&node, order, input) => ended,
        _ = terminate.recv() => Ok(()),
        () = gone(&place.directory) => {
            let log = place.directory.join(start::LOG_FILE);
            Err(anyhow::anyhow!("its agent has ended; its log is {}", log.display()))
        }
    };
    running::stop_process(&place.directory, Service::Agent)?;
    if order.pilot.is_some() {
        place.forget()?;
    }
    ended
}

/// Tells that the agent is there, and waits for the end of the input if the agent is tethered.
async fn stay(
    node: &AllocatedNode,
    order: &Order,
    input: Option<&mut BufReader<Take<Stdin>>>,
) -> anyhow::Result<()> {
    if let Some(pilot) = &order.pilot {
        arrive(node, pilot, ARRIVE).await?;
        say(&Word::Ready(node.clone()))?;
        // A pilot that its submitter doesn't know any more, or whose submitter is gone, ends by itself.
        loop {
            sleep(STILL_THERE).await;
            arrive(node, pilot, AWAY).await?;
        }
    }
    say(&Word::Ready(node.clone()))?;
    match input {
        Some(input) if order.tethered => {
            let mut rest = [0; 256];
            while input.read(&mut rest).await.is_ok_and(|length| length > 0) {}
            Ok(())
        }
        _ => std::future::pending().await,
    }
}

/// Tells the agent that has submitted the pilot that this node is there. That agent may be away for so
/// long.
async fn arrive(node: &AllocatedNode, pilot: &Of, away: Duration) -> anyhow::Result<()> {
    let mut agent = local::connect(&node.socket).await?;
    let request = proto::ArriveRequest {
        node: pilot.submitter.clone(),
        virtual_address: pilot.address.into(),
        pilot: pilot.id.0.to_vec(),
        host: node.host.clone(),
    };
    let until = Instant::now() + away;
    loop {
        let told = agent.arrive(request.clone()).await;
        match told {
            Ok(_) => return Ok(()),
            // The submitter's agent may be starting again.
            Err(status) if status.code() == Code::Unavailable && Instant::now() < until => {}
            Err(status) => bail!("{} doesn't take it: {}", pilot.submitter, grpc::reason(&status)),
        }
        sleep(AGAIN).await;
    }
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

    /// Removes the identity that an agent has had here.
    fn forget(&self) -> anyhow::Result<()> {
        let removed = Credentials::remove(&self.directory);
        removed.with_context(|| format!("cannot remove the identity in {}", self.directory.display()))
    }

    /// The name of the node in the grid, `HOST-OWNER-NUMBER`; with `-p` before the number in a pilot.
    fn name(&self, host: &str, order: &Order) -> anyhow::Result<Label> {
        let token = order.token.as_deref().map(BearerToken::read).transpose()?;
        let owner = token.and_then(|token| token.public.invitation.owner);
        let name = host_directory(host).parse::<Label>().ok().zip(owner);
        let name = name.and_then(|(host, owner)| name_of_user(&host, &owner));
        let name =
            name.with_context(|| format!("{host} gives no name of a node, or the token names no owner"))?;
        let kind = if order.pilot.is_some() { "p" } else { "" };
        numbered(&name, kind, self.number).with_context(|| format!("{name} is too long for a node's name"))
    }

    /// Writes the agent's configuration. Returns its socket.
    fn configure(&self, pilot: Option<&Of>) -> anyhow::Result<PathBuf> {
        let kind = if pilot.is_some() { "pilot" } else { "job" };
        let runtime = runtime_directory::further(&format!("{kind}{}", self.number));
        let runtime = runtime.context("this user has no home directory on this node")?;
        runtime_directory::check(Some(&runtime))?;
        let mut text = format!("[agent]\nruntime_directory = {:?}\n", runtime.display().to_string());
        if let Some(pilot) = pilot {
            text += &format!("pilot = \"{}\"\n", pilot.id);
            if let Some(slots) = slots(|name| std::env::var(name).ok()) {
                text += &format!("slots = {slots}\n");
            }
        }
        files::write(&self.directory.join(CONFIG_FILE), text.as_bytes(), 0o600)?;
        Ok(runtime.join(runtime_directory::LOCAL_SOCKET))
    }
}

/// How many ranks a pilot's node starts, as Slurm or Grid Engine has given it cores; `None` if none says.
fn slots(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let number = |name| variable(name)?.parse::<u32>().ok().filter(|number| *number > 0);
    let of_slurm = number("SLURM_CPUS_PER_TASK").or_else(|| number("SLURM_CPUS_ON_NODE"));
    // On the job's first host they are those of all its hosts, on another one its own (qsub(1)). Each host
    // of a pilot has as many.
    let of_grid_engine = || number("NSLOTS")?.checked_div(number("NHOSTS")?);
    of_slurm.or_else(of_grid_engine).filter(|slots| *slots > 0)
}

/// A name with a kind and a number at its end, at most 63 bytes long (RFC 1035); `None` if none can be
/// made.
fn numbered(name: &Label, kind: &str, number: u32) -> Option<Label> {
    format!("{}-{kind}{number}", name.as_str()).parse().ok()
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
    fn a_node_starts_as_many_ranks_as_it_was_given_cores() {
        for (given, want) in [
            ("", None),
            ("SLURM_CPUS_PER_TASK=4 SLURM_CPUS_ON_NODE=8", Some(4)),
            ("SLURM_CPUS_ON_NODE=8", Some(8)),
            ("NSLOTS=4 NHOSTS=2", Some(2)),
            ("NSLOTS=2 NHOSTS=1", Some(2)),
            ("NSLOTS=1 NHOSTS=2", None),
            ("NSLOTS=4", None),
            ("SLURM_CPUS_ON_NODE=many", None),
        ] {
            let variable = |name: &str| {
                let mut all = given.split_whitespace().filter_map(|one| one.split_once('='));
                all.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
            };
            assert_eq!(slots(variable), want, "{given}");
        }
    }

    #[test]
    fn a_name_has_the_number_of_its_place() {
        let label = |text: &str| text.parse::<Label>().unwrap();
        assert_eq!(numbered(&label("n2-ada"), "", 1).unwrap().as_str(), "n2-ada-1");
        assert_eq!(numbered(&label("n2-ada"), "p", 2).unwrap().as_str(), "n2-ada-p2");
        assert!(numbered(&label(&"x".repeat(63)), "", 1).is_none());
    }
}
