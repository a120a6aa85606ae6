//! Handed-over sockets against plain MPI, between the same two nodes of one
//! site: what interposing on set-up costs afterwards, which should be nothing.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::{Bar, Conditions, Report, Row};

/// A handed-over socket is the kernel's own; the rest is the machine's noise.
const BAR: Bar = Bar::AtMost(1.02);

/// Message sizes in bytes.
const SIZES: [&str; 2] = ["1", "10000000"];

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each measures both once.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Seconds per message size and round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Measures, writes the results, and says whether every bar holds.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    let bench = Bench::up("lan")?;
    let nodes = &bench.nodes()[..2];
    let program = Mpi::Openmpi.program("pingpong")?;
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (size, values) in SIZES.iter().zip(&mut figures) {
            let arguments =
                words(&format!("-n 2 --map-by node {program} --seconds {} {size}", options.seconds));
            for turn in 0..2 {
                // Nobody always goes first.
                let side = (round + turn) % 2;
                let command = match side {
                    0 => bench.ours(Mpi::Openmpi, &[], nodes, &arguments),
                    _ => bench.plain(Mpi::Openmpi, nodes, 8, &arguments),
                };
                let found = json(&bench.output(&nodes[0].name, &command)?)?;
                values[side].push(found["median_half_rtt_us"].as_f64().context("no latency")?);
            }
        }
    }
    let rows = SIZES
        .iter()
        .zip(&figures)
        .map(|(size, [ours, plain])| {
            let what = format!("ping-pong {size} B, half round trip");
            Row::compare(&what, "µs", ours, ("plain Open MPI", plain), Some(BAR))
        })
        .collect();
    let report = Report {
        name: "direct".to_owned(),
        rows,
        conditions: Conditions::here(&[("mpirun.openmpi", "--version")]),
    };
    report.publish(&options.results)?;
    Ok(report.holds())
}
