//! `isthmus doctor pair`: tries and measures the ways between two nodes.

use std::time::{Duration, Instant};

use clap::Args;
use isthmus_front::ask::{Failure, Grid};
use isthmus_front::output::print;
use isthmus_front::state::StateArgs;
use isthmus_rpc::enums::dial_name;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{self, ExplainRequest, MeasureRequest, NodeFilter};
use serde::Serialize;
use tokio::sync::oneshot;

use super::Outcome;
use super::findings::Finding;
use crate::path::Path;

/// How long one measurement may take: every step of a plan, and the transfers.
const DEADLINE: Duration = Duration::from_secs(70);
/// How long the first direction is measured alone, if it takes so long.
const ALONE: Duration = Duration::from_secs(3);
/// Pause between two requests for a measurement's result.
const PAUSE: Duration = Duration::from_millis(300);

/// Open a test connection between two sites or nodes in both directions, and
/// show which steps were tried, the round trip and the bandwidth.
///
/// The transfer takes at most 8 MB or 1 s each way. Over a long round trip it doesn't
/// reach the full rate.
#[derive(Debug, Args)]
pub(crate) struct PairArgs {
    /// A site, or a node as NODE.SITE; of a site, its first node.
    a: String,
    /// Another site or node.
    b: String,
    /// Open no connection; show the plan and the last measurement.
    #[arg(long)]
    dry_run: bool,
    /// Show the reason of each step of the plan, and what is left out.
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output of `isthmus doctor pair --json`.
#[derive(Debug, Serialize)]
struct View {
    healthy: bool,
    directions: Vec<Direction>,
}

#[derive(Debug, Serialize)]
struct Direction {
    from: String,
    to: String,
    planned: Vec<Step>,
    left_out: Vec<Step>,
    /// Steps that failed before the one that worked, with their errors.
    failed: Vec<String>,
    /// The last measurement; absent if there is none.
    measured: Option<Path>,
    findings: Vec<Finding>,
    /// Why the caller may not have this direction measured; `None` if it may.
    #[serde(skip)]
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct Step {
    dial: String,
    reason: String,
}

pub(super) async fn run(args: PairArgs) -> anyhow::Result<Outcome> {
    let grid = Grid::find(&args.state).await?;
    let (directions, ()) = tokio::try_join!(directions(&grid, &args), grid.no_black_hole())?;
    let mut directions = match directions {
        Ok(directions) => directions,
        Err(unknown) => return Ok(Outcome::Unknown(unknown)),
    };
    note_refusals(&mut directions);
    let healthy = !directions.iter().flat_map(|direction| &direction.findings).any(|finding| finding.problem);
    let view = View { healthy, directions: directions.into() };
    let text: Vec<_> = view.directions.iter().map(|direction| direction.text(args.verbose)).collect();
    print(&view, &text.join(if args.verbose { "\n" } else { "" }), args.json)?;
    Ok(if healthy { Outcome::Healthy } else { Outcome::Ill })
}

/// Tries both directions, one after the other, for each takes bandwidth. But the second direction
/// doesn't wait longer than [`ALONE`] for the first. The inner error tells that there is no such
/// pair.
async fn directions(grid: &Grid, args: &PairArgs) -> anyhow::Result<Result<[Direction; 2], String>> {
    let (a, b) = match (node(grid, &args.a).await?, node(grid, &args.b).await?) {
        (Ok(a), Ok(b)) if a == b => return Ok(Err(format!("both are {a}"))),
        (Ok(a), Ok(b)) => (a, b),
        (Err(unknown), _) | (_, Err(unknown)) => return Ok(Err(unknown)),
    };
    let (done_tx, done_rx) = oneshot::channel::<()>();
    let there = async {
        // Dropped when the first direction is done.
        let _done_tx = done_tx;
        direction(grid, args.dry_run, &a, &b).await
    };
    let back = async {
        // The first direction is done or takes long: it is the second one's turn.
        let _ = tokio::time::timeout(ALONE, done_rx).await;
        direction(grid, args.dry_run, &b, &a).await
    };
    let (there, back) = tokio::try_join!(there, back)?;
    Ok(Ok([there, back]))
}

/// The grid name of the node that a text of the command line names, itself or by its site. The
/// inner error tells that there is no such node.
async fn node(grid: &Grid, text: &str) -> anyhow::Result<Result<String, String>> {
    let found = grid.list(Records::Nodes(filter(text))).await?.nodes;
    // The first node of its site.
    let found = found.into_iter().min_by_key(|node| node.virtual_address).map(|node| node.name);
    Ok(found.ok_or_else(|| {
        format!(
            "no site or node {text:?} with an agent is in the grid; `isthmus status` lists the sites, and \
             `isthmus status SITE` the nodes of one"
        )
    }))
}

/// The filter for a node, or for the nodes of a site that are up.
fn filter(text: &str) -> NodeFilter {
    let text = text.to_owned();
    match text.contains('.') {
        true => NodeFilter { names: vec![text], ..NodeFilter::default() },
        false => NodeFilter { sites: vec![text], up: true, ..NodeFilter::default() },
    }
}

async fn direction(grid: &Grid, dry_run: bool, from: &str, to: &str) -> anyhow::Result<Direction> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let explain = ExplainRequest { from: from.clone(), to: to.clone(), ..ExplainRequest::default() };
    let explained = grid.explain(explain).await?;
    let request =
        MeasureRequest { from: from.clone(), to: to.clone(), start: !dry_run, ..Default::default() };
    let (measured, refused) = match measured(grid, request).await {
        Ok(measured) => (measured, None),
        Err(error) => match error.downcast::<Failure>() {
            // This direction starts at another owner's node.
            Ok(failure) if failure.refused => (None, Some(failure.to_string())),
            Ok(failure) => return Err(failure.into()),
            Err(error) => return Err(error),
        },
    };
    let plan = explained.plan.unwrap_or_default();
    let findings = findings(&plan, measured.as_ref(), dry_run || refused.is_some());
    let step = |dial, reason: &String| Step { dial: dial_name(dial), reason: reason.clone() };
    Ok(Direction {
        from,
        to,
        planned: plan.steps.iter().map(|found| step(found.dial(), &found.reason)).collect(),
        left_out: plan.left_out.iter().map(|found| step(found.dial(), &found.reason)).collect(),
        failed: measured.as_ref().map(|report| report.failed.clone()).unwrap_or_default(),
        measured: measured.as_ref().map(Path::new),
        findings,
        refused,
    })
}

/// Makes findings of refusals. A refusal is a hint if the other direction was measured, and a
/// problem if both were refused.
fn note_refusals(directions: &mut [Direction]) {
    let problem = directions.iter().all(|direction| direction.refused.is_some());
    for direction in directions {
        direction.findings.extend(direction.refused.take().map(|text| Finding { problem, text }));
    }
}

/// Has a way measured, if the request starts that, and waits for the result. Returns the last
/// measurement, if there is one.
async fn measured(grid: &Grid, request: MeasureRequest) -> anyhow::Result<Option<proto::PathReport>> {
    let started = Instant::now();
    let mut reply = grid.measure(request.clone()).await?;
    while reply.running && started.elapsed() < DEADLINE {
        tokio::time::sleep(PAUSE).await;
        let ask = MeasureRequest { start: false, ..request.clone() };
        reply = grid.measure(ask).await?;
    }
    if reply.running {
        anyhow::bail!(
            "the agent of {} did not report its measurement within {DEADLINE:?}; see its log",
            request.from
        );
    }
    Ok(reply.last)
}

/// Problems of a way, and hints, by its plan and its last measurement.
fn findings(plan: &proto::Plan, measured: Option<&proto::PathReport>, dry_run: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |problem, text: String| findings.push(Finding { problem, text });
    if plan.steps.is_empty() {
        let reasons: Vec<_> =
            plan.left_out.iter().map(|left| format!("{}: {}", dial_name(left.dial()), left.reason)).collect();
        add(true, format!("there is no way: {}", reasons.join("; ")));
    }
    match measured {
        Some(report) if !report.failure.is_empty() => add(true, report.failure.clone()),
        Some(report) => {
            for failed in &report.failed {
                add(true, format!("a step that is planned does not work: {failed}"));
            }
            if report.dial() == proto::Dial::Relay {
                add(
                    false,
                    "everything between the two goes over a relay; `isthmus doctor site` names remedies"
                        .to_owned(),
                );
            }
        }
        None if !dry_run => add(true, "nothing was measured".to_owned()),
        None => {}
    }
    findings
}

impl Direction {
    /// The text for people; with `verbose`, it has the reasons of the plan's steps.
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("{} to {}\n", self.from, self.to);
        if verbose {
            for (number, step) in self.planned.iter().enumerate() {
                text.push_str(&format!("  {}. {}: {}\n", number + 1, step.dial, step.reason));
            }
            for step in &self.left_out {
                text.push_str(&format!("  –  {} left out: {}\n", step.dial, step.reason));
            }
        } else if !self.planned.is_empty() {
            let dials: Vec<_> = self.planned.iter().map(|step| step.dial.as_str()).collect();
            text.push_str(&format!("  planned: {}\n", dials.join(", then ")));
        }
        for failed in &self.failed {
            text.push_str(&format!("  tried, failed: {failed}\n"));
        }
        if let Some(path) = &self.measured {
            text.push_str(&format!("  {}\n", path.text()));
        }
        for finding in &self.findings {
            let word = if finding.problem { "WRONG:" } else { "note:" };
            text.push_str(&format!("  {word} {}\n", finding.text));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_and_a_failed_step_are_problems() {
        let plan = |steps: usize| proto::Plan {
            steps: vec![proto::PlanStep::default(); steps],
            ..proto::Plan::default()
        };
        let report = |failure: &str, failed: &[&str], dial: proto::Dial| proto::PathReport {
            failure: failure.to_owned(),
            failed: failed.iter().map(|step| (*step).to_owned()).collect(),
            dial: dial.into(),
            ..proto::PathReport::default()
        };
        use proto::Dial::{Direct, Relay};
        for (name, steps, measured, dry_run, problems, notes) in [
            ("all is well", 2, Some(report("", &[], Direct)), false, 0, 0),
            ("over a relay", 1, Some(report("", &[], Relay)), false, 0, 1),
            ("a step failed", 2, Some(report("", &["direct: no answer"], Relay)), false, 1, 1),
            ("nothing worked", 1, Some(report("relay: gone", &[], Direct)), false, 1, 0),
            ("no way", 0, Some(report("the plan has no step", &[], Direct)), false, 2, 0),
            ("not measured", 1, None, false, 1, 0),
            ("nor wanted", 1, None, true, 0, 0),
        ] {
            let found = findings(&plan(steps), measured.as_ref(), dry_run);
            let ill = found.iter().filter(|finding| finding.problem).count();
            assert_eq!((ill, found.len() - ill), (problems, notes), "{name}: {found:?}");
        }
    }

    fn direction(refused: bool) -> Direction {
        Direction {
            from: String::new(),
            to: String::new(),
            planned: Vec::new(),
            left_out: Vec::new(),
            failed: Vec::new(),
            measured: None,
            findings: Vec::new(),
            refused: refused.then(|| "not yours".to_owned()),
        }
    }

    #[test]
    fn the_reasons_of_a_plan_are_told_on_request() {
        let step = |dial: &str, reason: &str| Step { dial: dial.to_owned(), reason: reason.to_owned() };
        let planned = vec![step("punch", "both keep ports"), step("relay", "always")];
        let all = Direction { planned, left_out: vec![step("direct", "closed")], ..direction(false) };
        assert_eq!(all.text(false), " to \n  planned: punch, then relay\n");
        let told = all.text(true);
        assert!(
            told.contains("1. punch: both keep ports") && told.contains("direct left out: closed"),
            "{told}"
        );
    }

    #[test]
    fn a_refusal_of_both_directions_is_a_problem() {
        for (refused, want) in
            [([false, false], vec![]), ([true, false], vec![false]), ([true, true], vec![true, true])]
        {
            let mut directions = refused.map(direction);
            note_refusals(&mut directions);
            let found = directions.iter().flat_map(|direction| &direction.findings);
            assert_eq!(found.map(|finding| finding.problem).collect::<Vec<_>>(), want, "{refused:?}");
        }
    }

    #[test]
    fn a_node_is_listed_by_name_and_of_a_site_those_that_are_up() {
        let node = filter("n1.alpha");
        assert_eq!((node.names, node.sites, node.up), (vec!["n1.alpha".to_owned()], vec![], false));
        let site = filter("alpha");
        assert_eq!((site.names, site.sites, site.up), (vec![], vec!["alpha".to_owned()], true));
    }
}
