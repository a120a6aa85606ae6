//! Time from `mpirun` to the last return from `MPI_Init`, on eight nodes,
//! against plain Open MPI over ssh on the same nodes.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::grid::{Bench, app, json, words};
use crate::report::{Bar, Conditions, Report, Row};

/// What a start may take of the reference's.
const BAR: Bar = Bar::AtMost(1.2);

/// Round trips between the sites that a start over a wide area may take on top:
/// the job's nodes are asked to take part (the way to each agent is looked up,
/// dialed, secured, and the question answered) before the launcher starts.
const ROUND_TRIPS: f64 = 8.0;

/// Where it is measured, and the round-trip time between sites in seconds.
const GRIDS: [(&str, &str, f64); 2] =
    [("lan", "one site", 0.0), ("two-open", "two sites 10 ms apart", 0.010)];

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each measures both once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of ranks. 64 of them poll one another to a crawl where there are
    /// few cores, with isthmus and without.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16, 64])]
    ranks: Vec<usize>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Measures, writes the results, and says whether every bar holds.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    let program = app("init")?;
    let mut rows = Vec::new();
    for (grid, place, rtt_seconds) in GRIDS {
        let bench = Bench::up(grid)?;
        let nodes = bench.nodes();
        let mut figures: Vec<[Vec<f64>; 2]> = vec![Default::default(); options.ranks.len()];
        for round in 0..options.rounds {
            eprintln!("{place}: round {} of {}", round + 1, options.rounds);
            for (ranks, values) in options.ranks.iter().zip(&mut figures) {
                for turn in 0..2 {
                    let side = (round + turn) % 2;
                    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
                    let arguments = words(&format!("-n {ranks} --map-by node {program} {now:.6}"));
                    let command = if side == 0 {
                        bench.ours(nodes, &arguments)
                    } else {
                        bench.plain(nodes, 8, &arguments)
                    };
                    let found = json(&bench.output(&nodes[0].name, &command)?)?;
                    values[side].push(found["last_init_s"].as_f64().context("no time")?);
                }
            }
        }
        for (ranks, [ours, plain]) in options.ranks.iter().zip(&figures) {
            let allowance = ROUND_TRIPS * rtt_seconds;
            let ours: Vec<f64> = ours.iter().map(|seconds| seconds - allowance).collect();
            let what = if allowance > 0.0 {
                format!("{ranks} ranks, {place}, less {ROUND_TRIPS} round trips")
            } else {
                format!("{ranks} ranks, {place}")
            };
            rows.push(Row::compare(&what, "s", &ours, ("Open MPI over ssh", plain), Some(BAR)));
        }
    }
    let tools = [("mpirun.openmpi", "--version"), ("ssh", "-V")];
    let report = Report { name: "start".to_owned(), rows, conditions: Conditions::here(&tools) };
    report.publish(&options.results)?;
    Ok(report.holds())
}
