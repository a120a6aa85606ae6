//! `isthmus coll`: which algorithms collectives would take, and why.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use isthmus_front::ask::Grid;
use isthmus_front::format::trimmed;
use isthmus_front::local;
use isthmus_run::{chosen, job_topology};
use isthmus_wire::proto::JobNode;
use isthmus_wire::settings::Host;
use isthmus_wire::topology::Topology;

use crate::own_program;

/// The program that explains, beside `isthmus` or in ../lib/isthmus.
const EXPLAIN: &str = "isthmus-coll-explain";
/// Ranks that are explained.
const RANKS_MAX: u32 = 1_000_000;

/// Collectives of MPI programs over several sites.
#[derive(Debug, Subcommand)]
pub(crate) enum CollCommand {
    Explain(ExplainArgs),
}

/// Show which algorithm each collective would take for each size of message, and why.
///
/// The job is the one that `isthmus run` with the same nodes would start: ranks fill the
/// slots of one node after the other. What is measured between the sites decides.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Nodes (NODE.SITE, or NODE of this site) or whole sites to use; all that are up by
    /// default.
    #[arg(long, value_delimiter = ',', value_parser = trimmed, value_name = "NAME")]
    nodes: Vec<String>,
    /// Number of ranks; as many as there are slots by default.
    #[arg(long, short = 'n', value_name = "NUMBER")]
    ranks: Option<u32>,
    /// The MPI whose own collectives are compared with; by default the fastest that any has.
    #[arg(long, value_name = "MPI", value_parser = ["openmpi", "mpich"])]
    mpi: Option<String>,
    /// Take ranks to share processors with others, as the library finds out when a job starts. They are
    /// taken to in any case with more ranks than slots.
    #[arg(long)]
    oversubscribed: bool,
    /// Say, too, what `isthmus run --reorder` would gain in MPI_Cart_create on such a grid of
    /// ranks: 4x6, with a p behind each dimension that is periodic (4px6).
    #[arg(long, value_name = "DIMS")]
    cart: Option<String>,
    /// Read where ranks are from this file (docs/collectives.md) rather than ask the grid.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "socket"])]
    topology: Option<PathBuf>,
    /// The agent's Unix socket.
    #[arg(long, env = "ISTHMUS_AGENT", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `isthmus coll`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(command: CollCommand) -> anyhow::Result<()> {
    let CollCommand::Explain(args) = command;
    let program = own_program::find(EXPLAIN)?;
    if let Some(file) = &args.topology {
        return explain(&program, file, args.ranks, args.oversubscribed, &args);
    }
    let socket = args.socket.clone().unwrap_or_else(local::socket);
    let grid = Grid::of_agent(local::connect(&socket).await?, socket).or_without_broker();
    let nodes = chosen(&args.nodes, |records| grid.list(records)).await?;
    let topology = job_topology(&nodes, Vec::new(), |records| grid.list(records)).await?;
    let text = file(&Topology::try_from(topology)?, &nodes, args.ranks)?;
    let mut file = tempfile::NamedTempFile::new().context("cannot write the topology")?;
    file.write_all(text.as_bytes()).context("cannot write the topology")?;
    // The file has just these ranks.
    explain(&program, file.path(), None, args.oversubscribed || exceeds_slots(&nodes, args.ranks), &args)
}

fn explain(
    program: &Path,
    topology: &Path,
    ranks: Option<u32>,
    oversubscribed: bool,
    args: &ExplainArgs,
) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.arg("--topology").arg(topology);
    if let Some(ranks) = ranks {
        command.arg("--ranks").arg(ranks.to_string());
    }
    for (option, value) in [("--mpi", &args.mpi), ("--cart", &args.cart)] {
        if let Some(value) = value {
            command.args([option, value]);
        }
    }
    for (option, given) in [("--oversubscribed", oversubscribed), ("--json", args.json)] {
        if given {
            command.arg(option);
        }
    }
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "{} failed: {status}", program.display());
    Ok(())
}

/// Whether some ranks would share a slot, and so most likely a processor: a node has a slot for each
/// unless its administrator says otherwise.
fn exceeds_slots(nodes: &[JobNode], ranks: Option<u32>) -> bool {
    let slots: u32 = nodes.iter().map(|node| node.slots).sum();
    ranks.is_some_and(|ranks| ranks > slots)
}

/// The text of the topology file, with the node of each rank. Ranks fill the slots of one node
/// after the other, and begin again if there are more ranks than slots.
fn file(topology: &Topology, nodes: &[JobNode], ranks: Option<u32>) -> anyhow::Result<String> {
    let host = |node: &JobNode| {
        Host::read(&node.name, node.virtual_address)
            .map_err(|reason| anyhow::anyhow!("node {:?}: {reason}", node.name))
    };
    let hosts = nodes.iter().map(host).collect::<anyhow::Result<Vec<_>>>()?;
    let slots: u32 = nodes.iter().map(|node| node.slots).sum();
    let ranks = ranks.unwrap_or(slots);
    if slots == 0 {
        bail!("none of the nodes has slots");
    }
    ensure!((1..=RANKS_MAX).contains(&ranks), "give 1 to {RANKS_MAX} ranks, not {ranks}");
    let own = &hosts.first().context("there is no node")?.name;
    let mut text = topology.file(&hosts, own);
    // The line of a process's own place is left out.
    text.truncate(text.rfind("self ").unwrap_or(text.len()));
    let places = nodes.iter().flat_map(|node| std::iter::repeat_n(&node.name, node.slots as usize)).cycle();
    for (rank, node) in (0..ranks).zip(places) {
        text.push_str(&format!("rank {rank} {node}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fill_slots() {
        let node = |name: &str, last, slots| JobNode {
            name: name.to_owned(),
            virtual_address: u32::from_be_bytes([240, 64, 1, last]),
            slots,
        };
        let nodes = [node("fe.a", 1, 0), node("n1.a", 2, 2), node("n1.b", 3, 1)];
        let placed = |ranks| {
            let text = file(&Topology::default(), &nodes, ranks)?;
            anyhow::Ok(text.lines().filter(|line| line.starts_with("rank")).collect::<Vec<_>>().join(", "))
        };
        assert_eq!(placed(None).unwrap(), "rank 0 n1.a, rank 1 n1.a, rank 2 n1.b");
        assert_eq!(placed(Some(4)).unwrap(), "rank 0 n1.a, rank 1 n1.a, rank 2 n1.b, rank 3 n1.a");
        assert_eq!([None, Some(3), Some(4)].map(|ranks| exceeds_slots(&nodes, ranks)), [false, false, true]);
        assert!(placed(Some(0)).is_err() && placed(Some(RANKS_MAX + 1)).is_err());
        assert!(file(&Topology::default(), &nodes[..1], None).is_err());
        assert!(!file(&Topology::default(), &nodes, None).unwrap().contains("self"));
    }
}
