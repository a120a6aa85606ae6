//! The lab's links, verified like a measuring instrument: what was asked for
//! against what programs at both ends see.
//!
//! Nothing here is taken from the emulator's own counters but its processor
//! time, its lateness, and whether it was faithful: a measurement made while
//! it wasn't is void and made again.

mod drawing;
mod figure;
mod measure;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::command::LabCommand;
use isthmus_lab::emulator::DeviceKind;
use isthmus_lab::emulator::statistics::Report;
use isthmus_lab::lab::Options as LabOptions;
use isthmus_lab::{Grid, Lab, Machine};

use figure::{Figure, Results};

/// How often a measurement is tried until the emulator was faithful.
const TRIES: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only what has this in its name.
    #[arg(long)]
    only: Option<String>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
    /// This program is also the one that its labs run in.
    #[command(subcommand)]
    part: Option<LabCommand>,
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// No lab comes up, or its traffic fails.
pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    match options.part {
        Some(part) => isthmus_lab::command::run(part),
        None => benchmark(&options).map(crate::held),
    }
}

fn benchmark(options: &Options) -> anyhow::Result<bool> {
    let mut results = Results::new();
    for (name, measure) in measure::ALL {
        if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        eprintln!("{name}");
        if let Err(error) = measure(&mut results) {
            results.add(Figure::missing(name, format!("{error:#}")));
        }
        results.write(&options.results)?;
    }
    ensure!(!results.is_empty(), "nothing has that in its name");
    results.complete = options.only.is_none();
    results.write(&options.results)?;
    results.print();
    Ok(results.hold())
}

/// A lab in which a figure is measured.
struct Bed {
    lab: Lab,
}

/// The result of a measurement, with the emulator's reports about it.
struct Outcome<T> {
    value: T,
    /// Whether the emulator was faithful during the measurement.
    faithful: bool,
    /// How many earlier tries were void.
    void: usize,
    /// The emulator's report at the start. `after` is that at the end.
    before: Report,
    after: Report,
}

impl Bed {
    /// Brings up two hosts: `near` with the link `link`, and `far` with a plain one.
    fn pair(link: &str) -> anyhow::Result<Self> {
        Self::pair_over(None, link)
    }

    /// Brings up two hosts: `near` with the link `link`, and `far` with a plain one. The link ends
    /// at `devices`.
    fn pair_over(devices: Option<DeviceKind>, link: &str) -> anyhow::Result<Self> {
        let text = format!("[[host]]\nname = 'near'\nlink = {{ {link} }}\n[[host]]\nname = 'far'\n");
        Self::up(devices, &text)
    }

    fn up(devices: Option<DeviceKind>, text: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let grid = Grid::parse(text, "the benchmark's grid", &format!("bench-lab-{}", std::process::id()))?;
        let options = LabOptions { program, services: false, devices };
        Ok(Self { lab: Lab::up_with(&grid, &options)? })
    }

    fn machine(&self, name: &str) -> anyhow::Result<Machine<'_>> {
        Ok(self.lab.machine(name)?)
    }

    fn report(&self) -> anyhow::Result<Report> {
        self.lab.emulation()?.context("no link is emulated")
    }

    /// Measures again and again, until the emulator was faithful or [`TRIES`] are used up.
    fn measure<T>(&self, mut what: impl FnMut(&Self) -> anyhow::Result<T>) -> anyhow::Result<Outcome<T>> {
        let mut void = 0;
        loop {
            let before = self.report()?;
            let value = what(self)?;
            // Lapses are looked for once a second.
            std::thread::sleep(isthmus_lab::emulator::fidelity::WINDOW);
            let after = self.report()?;
            let faithful = after.is_faithful_since(&before);
            if faithful || void + 1 == TRIES {
                return Ok(Outcome { value, faithful, void, before, after });
            }
            let lapses = after.lapses - before.lapses;
            if let Some(last) = after.recent_lapses.last() {
                eprintln!("  void, once more: {lapses} lapses, the last: {last}");
            }
            void += 1;
        }
    }
}

impl<T> Outcome<T> {
    /// Processor time of the emulator during the measurement, in seconds per Gbit that the links
    /// carried.
    fn processor_seconds_per_gigabit(&self) -> f64 {
        (self.after.processor_seconds - self.before.processor_seconds) / (self.bits() / 1e9)
    }

    /// Bits that crossed all links during the measurement, in both directions.
    fn bits(&self) -> f64 {
        let bytes = |report: &Report| -> u64 {
            report.links.iter().map(|link| link.up.bytes + link.down.bytes).sum()
        };
        (bytes(&self.after) - bytes(&self.before)) as f64 * 8.0
    }

    /// An outcome with another value from the same measurement.
    fn with<U>(&self, value: U) -> Outcome<U> {
        let (before, after) = (self.before.clone(), self.after.clone());
        Outcome { value, faithful: self.faithful, void: self.void, before, after }
    }
}
