//! `isthmus up --slurm`: agents on all nodes of a batch job, for several runs in it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use isthmus_common::process::ProcessId;
use isthmus_front::format::count;
use isthmus_front::output;
use isthmus_run::allocation::note::{self, Note};
use isthmus_run::allocation::of_this_process;
use isthmus_run::allocation::step::{Order, Step};
use isthmus_service::files;
use isthmus_slurm::Allocation;
use isthmus_wire::text::first;
use nix::unistd::Pid;

use super::UpArgs;
use crate::join;

/// Most nodes that a message names.
const NAMED: usize = 8;

/// Starts agents on all nodes of the batch job of this process, unless they run.
///
/// # Errors
/// The message for the user.
pub(super) async fn up(args: &UpArgs, state: &Path) -> anyhow::Result<()> {
    let allocation = of_this_process()?.context(
        "this is no batch job of Slurm (SLURM_JOB_ID isn't set): isthmus up --slurm belongs into a script for sbatch, or \
         a shell of salloc",
    )?;
    if let Some(note) = Note::read(state, &allocation) {
        return tell(&allocation, &note, true);
    }
    let token = args.token.as_deref().map(join::read_token).transpose()?;
    let order = Order {
        cluster: allocation.cluster.clone(),
        state: args.state.is_given().then(|| state.to_owned()),
        token,
        via: args.via.clone(),
        tethered: false,
        pilot: None,
    };
    let directory = note::directory(state, &allocation.cluster);
    files::create_directory(&directory)?;
    let log_path = directory.join(format!("job-{}.log", allocation.job));
    let mut options = OpenOptions::new();
    let log = options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(&log_path);
    let log = log.with_context(|| format!("cannot write {}", log_path.display()))?;
    let hosts: Vec<&str> = allocation.hosts.iter().map(|host| host.name.as_str()).collect();
    let step = Step::start(allocation.job, &hosts, &order, Some(log)).await;
    let step = step.with_context(|| format!("see {}", log_path.display()))?;
    let pid = step.pid().and_then(|pid| i32::try_from(pid).ok()).context("srun has ended")?;
    let srun = ProcessId::of(Pid::from_raw(pid)).context("srun has ended")?;
    let note = Note { srun, nodes: step.nodes };
    note.write(state, &allocation)?;
    tell(&allocation, &note, false)
}

/// Tells the user which agents there are.
fn tell(allocation: &Allocation, note: &Note, already: bool) -> anyhow::Result<()> {
    let nodes = count(note.nodes.len() as u64, "node");
    let names = first(note.nodes.iter().map(|node| &node.name), 0, NAMED);
    let run = if already { "run already" } else { "run" };
    let mut text =
        format!("Batch job {} of Slurm: agents {run} on {nodes} until it ends: {names}\n", allocation.job);
    let own = allocation.here.as_ref().and_then(|here| note.nodes.iter().find(|node| node.host == *here));
    if let Some(own) = own {
        text += &format!(
            "isthmus run finds them. Other commands here: export ISTHMUS_AGENT={}\n",
            own.socket.display()
        );
    }
    output::print(&(), &text, false)
}
