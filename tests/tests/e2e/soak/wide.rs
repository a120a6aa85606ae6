//! Jobs over three sites under several faults at once, at the head's site and the broker's host
//! as well, some too long for what they hit; and jobs that begin meanwhile or just after.
//!
//! A round has one long job and two short ones. A job ends right, or is ended by what the round
//! says, in time, and names that. Once all is mended the long one goes on at once, nothing is
//! left of any, and trunks go by the ways with which the plans begin. What happens in a round
//! follows from the seed (`schedule`), and what jobs did is judged without I/O (`judge`).

mod causes;
mod course;
mod held;
mod hits;
mod judge;
mod schedule;
mod ways;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, ensure};
use isthmus_e2e::{World, promised, target};

use super::breaking::Breaking;
use super::left::Left;
use super::running::expect_whole;
use super::services::Service;
use super::settings::Settings;
use crate::nothing_left::Before;
use course::Course;
use hits::{GATEWAYS, NODES, RELAYS, killed_agent};
use judge::Promises;
use schedule::{ROUNDS, Round, Rounds, longest};

/// Time within which a job goes on once its ways work: 3 s and two round trips between sites.
const RESUMES: Duration = Duration::from_millis(3010);
/// Time within which a job that something ends is gone, with all that belonged to it.
const ENDS: Duration = Duration::from_secs(10);
/// Longest time of a job once nothing is broken. It guards against hanging only.
const HANGS: Duration = Duration::from_secs(90);
/// Time within which trunks go by their plans after the last fault, besides twice the fault's
/// length: what fails again is tried less often.
const PLANNED: Duration = Duration::from_secs(60);
/// How long services that are started again serve: longer than the rounds of `make test-all` take.
const SERVES: Duration = Duration::from_secs(1800);

/// A soak that is under way.
struct Soak {
    breaking: Breaking,
    seed: u64,
    lasts: Duration,
    jobs: usize,
    left: Left,
    files: Vec<(&'static str, Before)>,
    /// What services held after the first round. `None` before its end.
    held: Option<held::All>,
}

impl Soak {
    fn start(settings: &Settings) -> Result<Self> {
        let lasts = settings.lasts.max(SERVES);
        let world = World::up_alone("soak")?;
        expect_whole(&world, &NODES)?;
        ways::expect_plans(&world, HANGS)?;
        let files = |node| Ok((node, Before::of(&world, node)?));
        let files = NODES.into_iter().map(files).collect::<Result<_>>()?;
        let breaking = Breaking::new(world, lasts);
        let (seed, left) = (settings.seed, Left::new(&NODES));
        Ok(Self { breaking, seed, lasts, jobs: 0, left, files, held: None })
    }

    /// Carries out a round, and judges it.
    fn round(&mut self, number: usize, round: &Round) -> Result<()> {
        let mut course = Course::new(round);
        let judged = self.judged(round, &mut course);
        let Err(error) = judged else {
            eprintln!("soak: round {number}\n{}", course.text(false));
            return Ok(());
        };
        let happened = course.text(false);
        let kept = match self.keep(number, &course, &error) {
            Ok(place) => format!("all that was printed and logged is in {}", place.display()),
            Err(error) => format!("what was printed and logged could not be kept: {error:#}"),
        };
        Err(error.context(format!("round {number}, in seconds since it began:\n{happened}{kept}")))
    }

    fn judged(&mut self, round: &Round, course: &mut Course<'_>) -> Result<()> {
        let promises = Promises { resumes: promised(RESUMES), ends: promised(ENDS), hangs: HANGS };
        expect_whole(&self.breaking.world, &NODES)?;
        course.begin(&mut self.breaking, &mut self.jobs, self.lasts)?;
        course.carry_out(&mut self.breaking, &mut self.jobs)?;
        course.finish(promises)?;
        let wrong = course.wrong(promises);
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        self.expect_nothing_left(course)?;
        let longest = round.hits.iter().map(|timed| timed.lasts).max().unwrap_or_default();
        ways::expect_planned(&self.breaking.world, PLANNED + 2 * longest)
    }

    /// Checks that no job has left anything, and that services hold no more than after the first
    /// round.
    fn expect_nothing_left(&mut self, course: &Course<'_>) -> Result<()> {
        let world = &self.breaking.world;
        self.left.expect_nothing(world)?;
        let happened = course.happened();
        for (node, before) in &mut self.files {
            // What an agent had not yet seen of a job when it was killed, nobody removes.
            if happened.iter().any(|one| killed_agent(&one.hit) == Some(*node)) {
                *before = Before::of(world, node)?;
            } else {
                before.nothing_left(world, &BTreeSet::new(), promised(ENDS))?;
            }
        }
        let agents = NODES.map(|node| (node, "agent"));
        let services: Vec<Service> = [&agents[..], &GATEWAYS, &RELAYS, &[("hub", "broker")]].concat();
        let now = held::All::now(world, &services)?;
        let Some(before) = &self.held else {
            self.held = Some(now);
            return self.left.note(world);
        };
        let beyond = now.beyond(before);
        ensure!(beyond.is_empty(), "{}", beyond.join("\n"));
        Ok(())
    }

    /// Writes what is known about a failed round to files that stay. Returns their directory.
    fn keep(&self, number: usize, course: &Course<'_>, error: &Error) -> Result<PathBuf> {
        let directory = target().join("soak").join(format!("seed-{}-round-{number}", self.seed));
        fs::create_dir_all(&directory)?;
        let world = &self.breaking.world;
        fs::write(directory.join("round"), format!("{error:#}\n{}", course.text(true)))?;
        let logs = world.logs().unwrap_or_else(|error| format!("{error:#}"));
        fs::write(directory.join("services"), logs + "\n" + &self.breaking.services.logs(world))?;
        Ok(directory)
    }
}

/// Runs a soak. It lasts for the time of the settings, or, if that is zero, for so many rounds that
/// all happens which users have met.
fn soak(settings: &Settings) -> Result<()> {
    let mut soak = Soak::start(settings)?;
    let mut rounds = Rounds::new(settings.seed, longest(settings.lasts));
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < settings.lasts || (settings.lasts.is_zero() && number < ROUNDS) {
        soak.round(number, &rounds.next())?;
        number += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "soak: three sites, seed {}, {seconds:.0} s, {number} rounds, {} jobs",
        settings.seed, soak.jobs
    );
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn jobs_over_three_sites_end_right_or_name_what_ended_them() -> Result<()> {
    let settings = Settings::read(Duration::ZERO, Some(3))?;
    let (seed, lasts) = (settings.seed, settings.lasts);
    eprintln!("soak: three sites, seed {seed}, {lasts:?}; SOAK_SEED={seed} repeats its rounds");
    soak(&settings).with_context(|| format!("three sites, SOAK_SEED={seed} SOAK={}s", lasts.as_secs()))
}
