//! `isthmus status`: sites, nodes, relays and jobs of the grid.

#[cfg(test)]
mod tests;
mod text;
mod view;
mod watch;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use isthmus_front::ask::Grid;
use isthmus_front::output::{self, print};
use isthmus_front::output_file::OutputFile;
use isthmus_front::state::StateArgs;
use isthmus_front::without_broker;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{JobFilter, ListReply, NodeFilter, PathFilter, RelayFilter, SiteFilter};

pub(crate) use text::table;
use view::View;

/// Show the grid's sites with their sums, relays and running jobs; with a site,
/// also its nodes.
///
/// Asks the broker or gateway with the identity of the state directory; if there
/// is none, this node's agent.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Only this site, with its nodes.
    site: Option<String>,
    /// Also all nodes; by default, only those of a small grid.
    #[arg(long)]
    nodes: bool,
    #[command(flatten)]
    state: StateArgs,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
    /// Also nodes that are down, how each pair of nodes is joined, and which sites relays join.
    #[arg(long, short)]
    verbose: bool,
    /// Draw the sites, and what was measured between them, to this file (SVG).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "watch"])]
    svg: Option<PathBuf>,
    /// Show it anew every 2 s until ctrl-C.
    #[arg(long, short, conflicts_with = "json")]
    watch: bool,
}

/// The most nodes of a grid that are listed by default.
const FEW_NODES: u64 = 64;

/// Runs `isthmus status`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: StatusArgs) -> anyhow::Result<()> {
    if args.watch {
        return watch::watch(async || {
            let records = records(&args).await?;
            Ok(View::new(&records).text(&records, args.verbose))
        })
        .await;
    }
    let svg = args.svg.as_deref().map(OutputFile::create).transpose()?;
    let records = records(&args).await?;
    let view = View::new(&records);
    if let Some(file) = svg {
        return file.write(&view.picture());
    }
    print(&view, &view.text(&records, args.verbose), args.json)
}

/// The text and the JSON that `isthmus status` prints of an answer.
pub fn status_texts(records: &ListReply) -> [String; 2] {
    let view = View::new(records);
    [false, true].map(|json| output::printed(&view, &view.text(records, true), json).unwrap_or_default())
}

/// The records to show; without nodes if they are many and not asked for.
async fn records(args: &StatusArgs) -> anyhow::Result<ListReply> {
    let grid = Grid::find(&args.state).await?.or_without_broker();
    let site = args.site.clone().unwrap_or_default();
    let sites: Vec<String> = args.site.iter().cloned().collect();
    let mut all = grid.list(Records::Sites(SiteFilter { names: sites.clone() })).await?;
    if let (Some(wanted), []) = (&args.site, all.sites.as_slice()) {
        bail!("{}", grid.no_site(wanted).await?);
    }
    let count: u64 = all.sites.iter().map(|site| u64::from(site.nodes_up + site.nodes_down)).sum();
    if args.site.is_some() || args.nodes || args.json || count <= FEW_NODES {
        let found = grid.list(Records::Nodes(NodeFilter { sites, ..NodeFilter::default() })).await?;
        without_broker::join(&mut all.without_broker, found.without_broker);
        all.nodes = found.nodes;
    }
    all.relays = grid.list(Records::Relays(RelayFilter::default())).await?.relays;
    all.jobs = grid.list(Records::Jobs(JobFilter { site: site.clone(), ..JobFilter::default() })).await?.jobs;
    all.paths = grid.list(Records::Paths(PathFilter { site, between_sites: true })).await?.paths;
    Ok(all)
}
