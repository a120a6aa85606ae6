//! MPI jobs under what breaks, judged by docs/design.md.
//!
//! Ranks keep opening connections and check every byte (apps/visit.c). Faults follow one
//! another by a seed. The table in docs/design.md says for each whether the job lives; the
//! soak fails if one that should live ends, if one that should end goes on, ends late or
//! without its reason, and if anything of a job is left after its end.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_e2e::{Mpi, World, promised, root};
use serde_json::json;

use super::breaking::Breaking;
use super::chance::Chance;
use super::faults::{Fault, Faults, Kind, LONG_OUTLIVE};
use super::figures::Figures;
use super::left::Left;
use super::running::{NODES, Running, Spec, expect_whole, flows};
use super::settings::Settings;
use super::table::{Outcome, outcomes};
use super::verdict::{Expected, Seen, expected, fault_of};

/// How long the soak lasts by default.
const SHORT: Duration = Duration::from_secs(60);
/// Shortest and longest time without faults before each fault.
const QUIET_SECONDS: (f64, f64) = (0.5, 2.0);
/// How much longer a job that should have ended is watched, for the figures.
const OVERTIME: Duration = Duration::from_secs(30);

/// A soak that is under way.
struct Soak {
    mpi: Mpi,
    lasts: Duration,
    // The running job ends before the world does.
    running: Option<Running>,
    breaking: Breaking,
    /// Chooses what jobs send.
    chance: Chance,
    jobs: usize,
    left: Left,
    figures: Figures,
}

impl Soak {
    /// Brings the grid up, and runs a first job in it.
    fn start(mpi: Mpi, settings: &Settings) -> Result<Self> {
        let world = World::up_alone("two-relays")?;
        let mut soak = Self {
            mpi,
            lasts: settings.lasts,
            running: None,
            breaking: Breaking::new(world, settings.lasts),
            chance: Chance::new(settings.seed),
            jobs: 0,
            left: Left::new(&NODES),
            figures: Figures::default(),
        };
        soak.job(LONG_OUTLIVE)?;
        soak.end_job()?;
        soak.left.note(&soak.breaking.world)?;
        Ok(soak)
    }

    /// Makes sure that a job runs which waits for `outlive`. If another job runs, it is ended
    /// before.
    fn job(&mut self, outlive: Duration) -> Result<()> {
        if self.running.as_ref().is_some_and(|job| job.spec.outlive == outlive) {
            return Ok(());
        }
        self.end_job()?;
        self.jobs += 1;
        let seed = self.chance.below(1_000_000);
        let spec = Spec { mpi: self.mpi, nodes: NODES.to_vec(), ranks: 4, outlive };
        expect_whole(&self.breaking.world, &NODES)?;
        let running = Running::visit(&self.breaking.world, &spec, (self.jobs, seed), self.lasts)?;
        // If it doesn't begin, what it printed is shown.
        self.running.insert(running).begun()
    }

    /// Ends the job if one runs, and checks that it ended in order and left nothing behind.
    fn end_job(&mut self) -> Result<()> {
        let Some(job) = &self.running else { return Ok(()) };
        job.ask_to_end()?;
        let printed = job.printed();
        if let Some(job) = self.running.take() {
            let status = job.status()?;
            ensure!(status == 0 && printed.contains(" No Errors"), "status {status}\n{printed}");
        }
        self.left.expect_nothing(&self.breaking.world)
    }

    /// Mends what has broken, and waits until it works.
    fn mend(&mut self, fault: &Fault) -> Result<()> {
        self.breaking.end(&fault.what)?;
        self.breaking.ready(&fault.what)
    }

    /// Breaks something under a job that has run for some time, and mends it. Returns what the job
    /// did.
    fn fault(&mut self, quiet: Duration, fault: &Fault, outcome: Outcome) -> Result<Seen> {
        self.job(fault.kind.outlive())?;
        std::thread::sleep(quiet);
        let has_ended = self.running.as_ref().is_none_or(Running::has_ended);
        ensure!(!has_ended, "the job has ended before that, of itself");
        let expected = granted(expected(outcome, fault.lasts, fault.kind.outlive()));
        let (began, clock) = (Instant::now(), super::now());
        self.breaking.begin(&fault.what)?;
        let seen = match expected {
            Expected::Lives => {
                std::thread::sleep(fault.lasts.saturating_sub(began.elapsed()));
                self.mend(fault)?;
                self.lives(began, clock)?
            }
            Expected::Ends { within, .. } => {
                let took = self.breaking.world.gone(&NODES, began, within + OVERTIME);
                // The fault is mended in any case, so that what is left can be seen.
                self.mend(fault)?;
                self.ended(took?)?
            }
        };
        if let Some(wrong) = fault_of(expected, &seen, fault.kind.reasons()) {
            let printed = if let Seen::Ended { printed, .. } = &seen { printed.as_str() } else { "" };
            bail!("{wrong}\n{printed}");
        }
        if matches!(seen, Seen::Ended { .. }) {
            self.left.expect_nothing(&self.breaking.world)?;
        }
        Ok(seen)
    }

    /// What a job did that should live, once it makes progress again or has ended.
    fn lives(&mut self, began: Instant, clock: f64) -> Result<Seen> {
        let job = self.running.as_ref().context("no job runs")?;
        match flows(job, clock)? {
            Some(pause) => Ok(Seen::Lived { pause }),
            None => self.ended(began.elapsed()),
        }
    }

    /// What a job did that has ended after `took`.
    fn ended(&mut self, took: Duration) -> Result<Seen> {
        let job = self.running.take().context("no job runs")?;
        let printed = job.printed();
        Ok(Seen::Ended { took, status: job.status()?, printed })
    }

    /// All that services and the job have written, to be shown if something is wrong.
    fn logs(&self) -> String {
        let world = &self.breaking.world;
        let printed = self.running.as_ref().map(Running::printed).unwrap_or_default();
        let logs = world.logs().unwrap_or_else(|error| format!("{error:#}"));
        format!("{logs}\n{}\n==> the job <==\n{printed}", self.breaking.services.logs(world))
    }
}

/// What a test expects of what is promised: it grants more time, see [`promised`].
fn granted(expected: Expected) -> Expected {
    match expected {
        Expected::Lives => Expected::Lives,
        Expected::Ends { after, within } => {
            Expected::Ends { after, within: after + promised(within.saturating_sub(after)) }
        }
    }
}

/// Runs a soak with jobs of this MPI.
fn soak(mpi: Mpi, settings: &Settings) -> Result<()> {
    let rows = outcomes(&fs::read_to_string(root().join("docs/design.md"))?)?;
    let promise = |kind: Kind| {
        let row = kind.row();
        rows.get(row).copied().with_context(|| format!("docs/design.md has no row {row:?} in its table"))
    };
    Kind::ALL.into_iter().try_for_each(|kind| promise(kind).map(drop))?;
    let (mut soak, mut faults) = (Soak::start(mpi, settings)?, Faults::new(settings.seed));
    let begun = Instant::now();
    while begun.elapsed() < settings.lasts {
        let (quiet, fault) = faults.next(QUIET_SECONDS);
        let about = format!("{:.0} s: {:?}", begun.elapsed().as_secs_f64(), fault.what);
        let about = format!("{about} for {:.1} s at most", fault.lasts.as_secs_f64());
        let seen = soak.fault(quiet, &fault, promise(fault.kind)?);
        let seen = seen.with_context(|| format!("{about}\n{}", soak.logs()))?;
        match &seen {
            Seen::Lived { pause } => eprintln!("soak: {about}, paused {:.2} s", pause.as_secs_f64()),
            Seen::Ended { took, .. } => {
                eprintln!("soak: {about}, ended after {:.2} s", took.as_secs_f64());
            }
        }
        soak.figures.add(fault.kind.row(), &seen);
    }
    let ended = soak.end_job();
    ended.with_context(|| soak.logs())?;
    report(&soak, settings, begun.elapsed())
}

/// Prints the figures, and appends a line of JSON to the file that the settings name.
fn report(soak: &Soak, settings: &Settings, took: Duration) -> Result<()> {
    let (mpi, seconds) = (soak.mpi, took.as_secs_f64());
    eprintln!("soak: {mpi:?}, seed {}, {seconds:.0} s, {} jobs", settings.seed, soak.jobs);
    eprint!("{}", soak.figures.text());
    let Some(path) = &settings.json else { return Ok(()) };
    let line = json!({
        "mpi": format!("{mpi:?}"),
        "seed": settings.seed,
        "seconds": seconds,
        "jobs": soak.jobs,
        "faults": soak.figures.json(),
    });
    let append = || writeln!(fs::OpenOptions::new().create(true).append(true).open(path)?, "{line}");
    append().with_context(|| path.display().to_string())
}

/// Runs a soak with jobs of this MPI. `seed` applies where the environment gives none, so that
/// `make test-all` does the same each time.
fn survives_or_ends(mpi: Mpi, seed: u64) -> Result<()> {
    let settings = Settings::read(SHORT, Some(seed))?;
    let (seed, lasts) = (settings.seed, settings.lasts);
    eprintln!("soak: {mpi:?}, seed {seed}, {lasts:?}; SOAK_SEED={seed} repeats its faults");
    soak(mpi, &settings).with_context(|| format!("{mpi:?}, SOAK_SEED={seed}"))
}

#[test]
#[ignore = "test-all"]
fn openmpi_jobs_live_or_end_as_promised() -> Result<()> {
    survives_or_ends(Mpi::OpenMpi, 1)
}

#[test]
#[ignore = "test-all"]
fn mpich_jobs_live_or_end_as_promised() -> Result<()> {
    survives_or_ends(Mpi::Mpich, 2)
}
