//! `isthmus doctor`: whether the grid works, in plain words.

use clap::Args;
use isthmus_front::ask::Grid;
use isthmus_front::format::count;
use isthmus_front::output::print;
use isthmus_front::state::StateArgs;
use serde::Serialize;

use super::Outcome;
use super::site::{self, View};

/// What to look at.
#[derive(Debug, Args)]
pub(crate) struct OverallArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Verdict {
    /// Whether there is no problem in the grid.
    healthy: bool,
    sites: usize,
    /// How many nodes are up.
    nodes: usize,
    /// All problems, each once, with its remedy.
    problems: Vec<String>,
    /// How many hints there are, by which connections would be better.
    hints: usize,
}

pub(super) async fn run(args: &OverallArgs) -> anyhow::Result<Outcome> {
    let grid = Grid::find(&args.state).await?;
    let (views, ()) = tokio::try_join!(site::all(&grid), grid.no_black_hole())?;
    let verdict = Verdict::new(&views);
    print(&verdict, &verdict.text(), args.json)?;
    Ok(if verdict.healthy { Outcome::Healthy } else { Outcome::Ill })
}

impl Verdict {
    fn new(views: &[View]) -> Self {
        let mut problems: Vec<String> = Vec::new();
        for problem in views.iter().flat_map(View::problems) {
            // Some problems are of the grid, and every site has them.
            if !problems.iter().any(|known| known == problem) {
                problems.push(problem.to_owned());
            }
        }
        Self {
            healthy: problems.is_empty(),
            sites: views.len(),
            nodes: views.iter().map(View::nodes_up).sum(),
            problems,
            hints: views.iter().map(View::hints).sum(),
        }
    }

    fn text(&self) -> String {
        let (sites, nodes) = (count(self.sites as u64, "site"), count(self.nodes as u64, "node"));
        let mut text = match self.problems.len() {
            0 if self.sites == 0 => {
                "No site has joined the grid yet: isthmus grid invite, at the broker.\n".to_owned()
            }
            0 => format!("All is well: {sites}, {nodes} up.\n"),
            1 => format!("One thing is wrong ({sites}, {nodes} up):\n"),
            many => format!("{many} things are wrong ({sites}, {nodes} up):\n"),
        };
        text.extend(self.problems.iter().map(|problem| format!("  {problem}\n")));
        if self.hints > 0 {
            let hints = count(self.hints as u64, "hint");
            text += &format!("{hints} for better connections: isthmus doctor site\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_plain() {
        let verdict = Verdict { healthy: true, sites: 2, nodes: 3, problems: Vec::new(), hints: 1 };
        assert_eq!(
            verdict.text(),
            "All is well: 2 sites, 3 nodes up.\n1 hint for better connections: isthmus doctor site\n"
        );
        let problems = vec!["the gateway of site beta is not attached: start it".to_owned()];
        let ill = Verdict { healthy: false, problems, hints: 0, ..verdict };
        assert_eq!(
            ill.text(),
            "One thing is wrong (2 sites, 3 nodes up):\n  the gateway of site beta is not attached: start it\n"
        );
        assert!(Verdict::new(&[]).text().contains("isthmus grid invite"));
    }
}
