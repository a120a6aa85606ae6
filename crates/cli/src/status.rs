//! `isthmus status`: what there is in the grid.

mod view;

use std::io::Write as _;

use anyhow::Context as _;
use clap::Args;

use crate::ask::Grid;
use crate::config::StateArgs;

use view::View;

/// Show sites, nodes, relays and running jobs, and who is joined to whom.
///
/// Asks the broker or gateway with the identity of the state directory; where
/// there is none, this node's agent.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    state: StateArgs,
    /// For programs to read.
    #[arg(long)]
    json: bool,
    /// Also nodes that are down, and how each pair of nodes is joined.
    #[arg(long, short)]
    verbose: bool,
}

/// Runs `isthmus status`.
///
/// # Errors
/// What went wrong, for people.
pub(crate) async fn run(args: StatusArgs) -> anyhow::Result<()> {
    let reply = Grid::find(&args.state).await?.grid().await?;
    let view = View::new(&reply);
    let text = if args.json {
        let mut text = serde_json::to_string_pretty(&view).context("cannot write JSON")?;
        text.push('\n');
        text
    } else {
        view.text(&reply, args.verbose)
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
