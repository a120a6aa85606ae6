//! Ray2mesh (apps/ray2mesh), simulated on the platforms of Coti, Herault, Cappello, *MPI Applications on
//! Grids: A Topology Aware Approach* (Euro-Par 2009): figure 3.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::grid::{json, target, words};
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::simulate::{Order, Platform, Program, Selection, grid5000, simulated};

/// Sites, nodes of each, and ranks of each node. The paper has up to 180 ranks on three sites.
const PLATFORMS: [(usize, usize, usize); 6] =
    [(3, 4, 1), (3, 8, 1), (3, 8, 2), (3, 16, 2), (3, 30, 2), (4, 63, 2)];
/// Rays that a worker gets at once. Of each line the best one counts.
const CHUNKS: [u32; 3] = [2, 5, 15];
/// With more ranks than this it is the first of them alone: a simulation of 504 takes a quarter of an hour.
const MOST_WITH_ALL: usize = 200;
/// Earthquakes and stations: the rays are all pairs.
const EVENTS: u32 = 30;
const STATIONS: u32 = 150;
/// What a ray takes, in microseconds.
const COST_US: u32 = 40_000;
/// The Earth's radius in km, and speeds in km/s. What a ray takes doesn't depend on them.
const MODEL: &str = "homogeneous\ndepth P S\n0 10 5\n2891 10 5\n6371 10 5\n";

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
}

/// The lines of the paper's figure 3(a).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// The master gives rays to all ranks, and collectives are the MPI's own.
    Vanilla,
    /// The same with the library's collectives.
    Collectives,
    /// The same with a boss at each site, which traces no rays.
    Bosses,
    /// The same with as many more ranks as there are bosses.
    BossesBeside,
}

impl Line {
    /// Those that are compared with vanilla.
    pub(crate) const OTHERS: [Self; 3] = [Self::Collectives, Self::Bosses, Self::BossesBeside];

    fn options(self) -> &'static str {
        match self {
            Self::Vanilla | Self::Collectives => "--spread vanilla",
            Self::Bosses | Self::BossesBeside => "--spread hierarchical",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vanilla => "vanilla",
            Self::Collectives => "vanilla, grid collectives",
            Self::Bosses => "hierarchical",
            Self::BossesBeside => "hierarchical, bosses beside",
        })
    }
}

/// Name of a row of the results.
pub(crate) fn what(platform: &str, line: Line) -> String {
    format!("{platform}, {line}")
}

/// The platforms' names, with how many ranks each has.
pub(crate) fn platforms() -> Vec<(String, usize)> {
    let of = |(sites, nodes, slots)| grid5000(sites, nodes, slots, Order::BySite);
    PLATFORMS.map(of).into_iter().map(|platform| (platform.name.clone(), platform.ranks())).collect()
}

/// Name of the reference.
pub(crate) const AGAINST: &str = "vanilla";

/// Measures, writes the results, and returns whether every row was measured.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mut run = Run::begin("ray2mesh", &options.rounds, &[("smpirun".into(), "-version")])?;
    run.remark(format!(
        "{EVENTS} earthquakes, {STATIONS} stations, {} ms a ray, the best of {CHUNKS:?} rays at once",
        COST_US / 1000
    ));
    let cases = PLATFORMS.map(|(sites, nodes, slots)| {
        let platform = grid5000(sites, nodes, slots, Order::BySite);
        let row = |line| Comparison::new(what(&platform.name, line), "s", AGAINST);
        let rows = Line::OTHERS.map(row).into();
        Case::new(platform, rows).enough(1)
    });
    run.part(1, cases.into(), Simulated::begin)?;
    run.finish()
}

struct Simulated {
    scratch: tempfile::TempDir,
    program: PathBuf,
}

impl Simulated {
    fn begin() -> anyhow::Result<Self> {
        let program = target().join("ray2mesh/smpi/ray2mesh");
        ensure!(
            program.is_file(),
            "{} is not there: run `make -C apps/ray2mesh smpi OUT=target/ray2mesh`",
            program.display()
        );
        let scratch = tempfile::tempdir()?;
        write_survey(scratch.path())?;
        Ok(Self { scratch, program })
    }

    /// The least seconds of a line.
    fn seconds(&self, platform: &Platform, line: Line) -> anyhow::Result<f64> {
        let beside = usize::from(line == Line::BossesBeside);
        let platform = Platform { beside, ..platform.clone() };
        let mut least = f64::INFINITY;
        let chunks = if platform.ranks() > MOST_WITH_ALL { &CHUNKS[..1] } else { &CHUNKS };
        for chunk in chunks {
            let options = line.options();
            let directory = self.scratch.path().display();
            let program = Program {
                path: self.program.clone(),
                words: words(&format!(
                    "--json --cost {COST_US} --chunk {chunk} {options} {directory}/model.tvel \
                     {directory}/events.zmap {directory}/stations.txt"
                )),
                collectives: (line == Line::Vanilla).then_some("native"),
            };
            let found = json(&simulated(&platform, Selection::Openmpi, &program, self.scratch.path())?)?;
            let seconds = found["total_s"].as_f64().context("no time")?;
            least = least.min(seconds);
        }
        Ok(least)
    }
}

/// Places all over the Earth.
fn write_survey(directory: &Path) -> anyhow::Result<()> {
    let place = |number: u32, of: u32| {
        let share = (f64::from(number) + 0.5) / f64::from(of);
        let longitude = (f64::from(number) * 137.508) % 360.0 - 180.0;
        (longitude, (2.0 * share - 1.0).asin().to_degrees())
    };
    let (mut events, mut stations) = (String::new(), String::new());
    for number in 0..EVENTS {
        let (longitude, latitude) = place(number, EVENTS);
        writeln!(events, "{longitude:.3} {latitude:.3} 2020 1 1 6 {} 0 0 0", number * 10)?;
    }
    for number in 0..STATIONS {
        let (longitude, latitude) = place(number, STATIONS);
        writeln!(stations, "XX|S{number}|{latitude:.3}|{longitude:.3}")?;
    }
    fs::write(directory.join("model.tvel"), MODEL)?;
    fs::write(directory.join("events.zmap"), events)?;
    fs::write(directory.join("stations.txt"), stations)?;
    Ok(())
}

impl Experiment for Simulated {
    type Case = Platform;

    fn measure(&mut self, platform: &Platform, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let vanilla = self.seconds(platform, Line::Vanilla)?;
        Line::OTHERS.into_iter().map(|line| Ok([self.seconds(platform, line)?, vanilla])).collect()
    }

    fn needs_quiet(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ranks_are_there() {
        let ranks: Vec<_> = platforms().into_iter().map(|(_, ranks)| ranks).collect();
        assert_eq!(ranks, [12, 24, 48, 96, 180, 504]);
    }
}
