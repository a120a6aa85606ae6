//! Carries out a round, and writes down what happened when.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use isthmus_e2e::World;

use super::hits::{Hit, Process};
use super::judge::{Happened, Promises, Seen, ends, late, of_long, of_short};
use super::schedule::{Act, Round, Timed};
use crate::life::daemon;
use crate::soak::breaking::Breaking;
use crate::soak::now;
use crate::soak::running::{Running, Spec};

/// Time within which what is mended works. It guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// How much longer a job is watched that should be over or go on, to tell how late it is.
const OVERTIME: Duration = Duration::from_secs(60);
/// Time between two looks at jobs and services.
const LOOK: Duration = Duration::from_millis(20);
/// The program of short jobs, with its arguments. Each rank sends checked blocks of up to so many
/// bytes to each rank.
const SHORT: (&str, &[&str]) = ("alltoall", &["262144"]);

/// A job that has begun.
struct Begun {
    running: Running,
    began: f64,
    asked: Option<f64>,
}

/// A round that is under way.
pub(super) struct Course<'a> {
    round: &'a Round,
    began: f64,
    /// When each hit began, and when it was over. `None` for what hasn't happened yet.
    times: Vec<(Option<f64>, Option<f64>)>,
    /// The indices of hits that are mended, but whose services don't serve yet.
    mended: Vec<usize>,
    long: Option<Begun>,
    short: Vec<Begun>,
}

impl<'a> Course<'a> {
    pub(super) fn new(round: &'a Round) -> Self {
        let times = vec![(None, None); round.hits.len()];
        Self { round, began: now(), times, mended: Vec::new(), long: None, short: Vec::new() }
    }

    /// Breaks what is to be broken before the long job, and starts that job. `jobs` counts all
    /// jobs.
    pub(super) fn begin(&mut self, breaking: &mut Breaking, jobs: &mut usize, lasts: Duration) -> Result<()> {
        let before = self.round.hits.iter().enumerate().filter(|(_, timed)| timed.is_before);
        for (at, _) in before {
            self.hit(breaking, at)?;
        }
        *jobs += 1;
        let running = Running::visit(&breaking.world, &self.round.spec, (*jobs, *jobs), lasts)?;
        let begun = Begun { running, began: now(), asked: None };
        self.long.insert(begun).running.begun()?;
        Ok(())
    }

    /// Carries out all that is planned, each act at its time or later. Returns when what was mended
    /// works.
    pub(super) fn carry_out(&mut self, breaking: &mut Breaking, jobs: &mut usize) -> Result<()> {
        let begun = Instant::now();
        for (due, act) in self.round.acts() {
            while begun.elapsed() < due {
                self.look(breaking);
                std::thread::sleep(LOOK);
            }
            match act {
                Act::Begin(at) => self.hit(breaking, at)?,
                Act::End(at) => self.mend(breaking, at)?,
                Act::Start(at) => {
                    *jobs += 1;
                    let spec = self.round.starts.get(at).map(|start| &start.spec).context("no such job")?;
                    let running = Running::start(&breaking.world, spec, *jobs, SHORT, SOON + OVERTIME)?;
                    self.short.push(Begun { running, began: now(), asked: None });
                }
            }
        }
        World::eventually("what was mended works", SOON, || {
            self.look(breaking);
            Ok(self.mended.is_empty())
        })
    }

    fn hit(&mut self, breaking: &mut Breaking, at: usize) -> Result<()> {
        let hit = self.round.hits.get(at).map(|timed| &timed.hit).context("no such hit")?;
        let began = now();
        match hit {
            Hit::Grid(what) => breaking.begin(what),
            Hit::Process(process, signal) => strike(&breaking.world, &self.round.spec, *process, signal),
        }
        .with_context(|| format!("{hit:?}"))?;
        self.times[at].0 = Some(began);
        Ok(())
    }

    fn mend(&mut self, breaking: &mut Breaking, at: usize) -> Result<()> {
        if let Some(Hit::Grid(what)) = self.round.hits.get(at).map(|timed| &timed.hit) {
            breaking.end(what).with_context(|| format!("the end of {what:?}"))?;
        }
        self.mended.push(at);
        self.look(breaking);
        Ok(())
    }

    /// Notes which mended hits are over, as their services serve again.
    fn look(&mut self, breaking: &Breaking) {
        let (hits, times) = (&self.round.hits, &mut self.times);
        self.mended.retain(|at| {
            let is_over = match hits.get(*at).map(|timed| &timed.hit) {
                Some(Hit::Grid(what)) => breaking.is_ready(what),
                _ => true,
            };
            if is_over {
                times[*at].1 = Some(now());
            }
            !is_over
        });
    }

    /// Waits for the ends of all jobs. The long job is asked to end once it has gone on, unless
    /// something else ends it. A job that hangs is left as it is.
    pub(super) fn finish(&mut self, promises: Promises) -> Result<()> {
        let happened = self.happened();
        let (spec, last) =
            (&self.round.spec, happened.iter().map(|one| one.ended).fold(self.began, f64::max));
        let settles = happened.iter().map(|one| late(&one.hit)).fold(0.0, f64::max);
        let grace = Duration::from_secs_f64(settles) + OVERTIME;
        wait(promises.hangs + grace, || self.short.iter().all(|job| job.running.has_ended()));
        let Some(long) = &mut self.long else { return Ok(()) };
        if ends(&happened, spec) {
            wait(promises.ends + spec.outlive.min(OVERTIME) + grace, || long.running.has_ended());
            return Ok(());
        }
        let goes_on = || long.running.progress().last().is_some_and(|time| *time > last);
        wait(promises.resumes + grace, || goes_on() || long.running.has_ended());
        long.asked = Some(now());
        long.running.tell_to_end()?;
        wait(promises.hangs, || long.running.has_ended());
        Ok(())
    }

    /// The hits that happened, in the order of the round.
    pub(super) fn happened(&self) -> Vec<Happened> {
        let hits = self.round.hits.iter().zip(&self.times);
        let one = |(timed, (began, ended)): (&Timed, &(Option<f64>, Option<f64>))| {
            Some(Happened { hit: timed.hit.clone(), began: (*began)?, ended: ended.unwrap_or(f64::INFINITY) })
        };
        hits.filter_map(one).collect()
    }

    /// What is wrong with what the jobs did.
    pub(super) fn wrong(&self, promises: Promises) -> Vec<String> {
        let happened = self.happened();
        let name = |kind: &str, seen: &Seen, wrong: Vec<String>| {
            let (kind, head) = (kind.to_owned(), seen.spec.head());
            wrong.into_iter().map(move |text| format!("the {kind} job of {head}: {text}")).collect::<Vec<_>>()
        };
        let long = self.long.iter().map(seen).flat_map(|seen| {
            let wrong = of_long(&seen, &happened, promises);
            name("long", &seen, wrong)
        });
        let short = self.short.iter().map(seen).flat_map(|seen| {
            let wrong = of_short(&seen, &happened, promises);
            name("short", &seen, wrong)
        });
        long.chain(short).collect()
    }

    /// All that happened and was planned, in seconds since the round began. With `with_printed`,
    /// also what jobs printed.
    pub(super) fn text(&self, with_printed: bool) -> String {
        let mut text = String::new();
        let since = |time: f64| format!("{:.1}", time - self.began);
        let shown = |time: &Option<f64>| time.map_or_else(|| "–".to_owned(), since);
        for (timed, (began, ended)) in self.round.hits.iter().zip(&self.times) {
            let planned = (timed.begins.as_secs_f64(), timed.lasts.as_secs_f64());
            let _ = writeln!(
                text,
                "  {} s to {} s (planned: {:.1} s after the job had begun, for {:.1} s): {:?}",
                shown(began),
                shown(ended),
                planned.0,
                planned.1,
                timed.hit
            );
        }
        for (kind, job) in
            self.long.iter().map(|job| ("long", job)).chain(self.short.iter().map(|job| ("short", job)))
        {
            let seen = seen(job);
            let end = seen.end.map_or_else(
                || "no end".to_owned(),
                |(at, status)| format!("to {} s with status {status}", since(at)),
            );
            let _ = writeln!(text, "  {} s {end}: {kind} job, {:?}", since(seen.began), seen.spec);
            if with_printed {
                let _ = writeln!(text, "{}", seen.printed);
            }
        }
        text
    }
}

/// What is known of a job now.
fn seen(job: &Begun) -> Seen {
    Seen {
        spec: job.running.spec.clone(),
        began: job.began,
        end: job.running.end(),
        asked: job.asked,
        printed: job.running.printed(),
        progress: job.running.progress(),
    }
}

/// Waits until `holds` returns true, or the time is over.
fn wait(at_most: Duration, holds: impl Fn() -> bool) {
    let until = Instant::now() + at_most;
    while !holds() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

/// Sends a signal to a process of the long job. If several processes match, the long job's own
/// began first.
fn strike(world: &World, spec: &Spec, process: Process, signal: &str) -> Result<()> {
    let head = spec.head();
    let first = |node: &str, program: &str| {
        world.processes(node, program)?.into_iter().next().with_context(|| format!("no {program} on {node}"))
    };
    let (node, pid) = match process {
        Process::Run => (head, world.service(head, "run")?),
        Process::Launcher => (head, first(head, &spec.mpi.launcher())?),
        Process::Launch => (head, world.service(head, "launch")?),
        Process::Daemon(node) => (node, first(node, daemon(spec.mpi))?),
        Process::Supervisor(node) => (node, world.service(node, "supervise")?),
        Process::Rank(node) => (node, first(node, "/visit")?),
    };
    world.kill(node, &format!("-{signal}"), &pid)
}
