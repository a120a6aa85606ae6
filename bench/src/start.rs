//! Time from a launcher's call to the last return from `MPI_Init`, on eight
//! nodes, against the same MPI over ssh on the same nodes; and where ours goes.

mod phases;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::{Bar, Conditions, Report, Row};
use phases::Case;

/// What a start may take of the reference's.
const BAR: Bar = Bar::AtMost(1.2);

/// Round trips between the sites that a start over a wide area may take on top:
/// one node of the other site is asked to take part (the way to its agent is
/// looked up, dialed, secured, and the question answered) before the launcher
/// starts.
const ROUND_TRIPS: f64 = 8.0;

/// Where it is measured, and the round-trip time between sites in seconds.
const GRIDS: [(&str, &str, f64); 2] =
    [("lan", "one site", 0.0), ("two-open", "two sites 10 ms apart", 0.010)];

/// How long a run may take, and how much longer for each rank. Some MPIs don't
/// always come out of their end, whatever starts them: what they told before
/// counts, and they are ended a while later.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(1));

/// Numbers of ranks from which on a run takes long.
const MANY: usize = 64;

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each measures both once. From 64 ranks on, where one takes minutes,
    /// there are a third of them.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The MPIs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mpi::Openmpi, Mpi::Openmpi5, Mpi::Mpich4, Mpi::Mpich])]
    mpis: Vec<Mpi>,
    /// Numbers of ranks. Where there are few cores, 64 and more poll one
    /// another to a crawl, with isthmus and without.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16, 64, 128])]
    ranks: Vec<usize>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Measures, writes the results, and says whether every bar holds.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    for mpi in &options.mpis {
        mpi.program("init")?;
    }
    let mut tools = vec![("ssh".to_owned(), "-V")];
    tools.extend(options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")));
    let tools: Vec<_> = tools.iter().map(|(tool, argument)| (tool.as_str(), *argument)).collect();
    let mut report =
        Report { name: "start".to_owned(), rows: Vec::new(), conditions: Conditions::here(&tools) };
    let mut cases = Vec::new();
    for ranks in &options.ranks {
        let rounds = if *ranks < MANY { options.rounds } else { options.rounds.div_ceil(3) };
        for (grid, place, rtt_seconds) in GRIDS {
            let bench = Bench::up(grid)?;
            for mpi in &options.mpis {
                let what = format!("{}, {ranks} ranks, {place}", mpi.title());
                let case = measure(&bench, *mpi, *ranks, rounds, &what)?;
                if let [ours, plain] = &case.seconds
                    && !ours.is_empty()
                {
                    let allowance = ROUND_TRIPS * rtt_seconds;
                    let ours: Vec<f64> = ours.iter().map(|seconds| seconds - allowance).collect();
                    let less = if allowance > 0.0 {
                        format!(", less {ROUND_TRIPS} round trips")
                    } else {
                        String::new()
                    };
                    report.rows.push(Row::compare(
                        &(what + &less),
                        "s",
                        &ours,
                        ("over ssh", plain),
                        Some(BAR),
                    ));
                }
                cases.push(case);
            }
        }
        // All of it takes the better part of an hour: what is there stays if it is
        // ended.
        report.publish(&options.results)?;
        phases::publish(&cases, &options.results)?;
    }
    Ok(report.holds())
}

fn measure(bench: &Bench, mpi: Mpi, ranks: usize, rounds: usize, what: &str) -> anyhow::Result<Case> {
    let nodes = bench.nodes();
    let program = mpi.program("init")?;
    let account = bench.scratch().join("account.json");
    let deadline = DEADLINE.0 + DEADLINE.1 * u32::try_from(ranks)?;
    let mut case = Case::new(what);
    for round in 0..rounds {
        eprintln!("{what}: round {} of {rounds}", round + 1);
        let mut found = [None, None];
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            let mut arguments = words(&format!("-n {ranks}"));
            arguments.extend(mpi.on_shared_cores());
            arguments.extend([program.clone(), format!("{now:.6}")]);
            let report = account.display().to_string();
            let command = match side {
                0 => bench.ours(mpi, &["--report", &report], nodes, &arguments),
                _ => bench.plain(mpi, nodes, 16, &arguments),
            };
            let output = bench.attempt(&nodes[0].name, &command, deadline)?;
            let said = String::from_utf8_lossy(&output.stdout);
            let seconds = json(&said).ok().and_then(|found| found["last_init_s"].as_f64());
            if !output.status.success() {
                case.hung[side] += 1;
                eprintln!(
                    "  {} did not end by itself ({}): {}",
                    ["isthmus", "ssh"][side],
                    if seconds.is_some() { "after its figure" } else { "no figure" },
                    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default()
                );
            }
            if side == 0 && output.status.success() {
                let text = std::fs::read_to_string(&account).context("no account")?;
                case.add_phases(&serde_json::from_str::<Value>(&text)?["timing"]["phases"]);
            }
            found[side] = seconds;
        }
        // A ratio needs both.
        if let [Some(ours), Some(plain)] = found {
            case.seconds[0].push(ours);
            case.seconds[1].push(plain);
        }
    }
    Ok(case)
}
