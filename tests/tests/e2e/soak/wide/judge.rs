//! Whether jobs of a soak over three sites did what is promised, whatever was broken meanwhile.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::causes::{cause, is_named, mentions};
use super::hits::{Hit, Process, killed_agent, site};
use crate::soak::faults::What;
use crate::soak::running::Spec;

/// Seconds until a gateway is connected to the broker again after a fault, as nothing is arranged
/// without. A broker that was started anew has calls wait for 3 s.
const ATTACHED: f64 = 3.0;
/// Seconds within which silence is noticed and connections are made again. A NAT that forgets cuts
/// trunks and the connections to the broker, and nobody is told.
const SILENCE: f64 = 15.0;
/// Seconds that a trunk waits for a sign that a carrier carries, after large packets have vanished.
const PROBED: f64 = 8.0;
/// Seconds for which `isthmus run` surely tries on, whatever a single try takes. A job that begins
/// during a fault that is over by then starts.
const TRIES_ON: f64 = 10.0;

/// What is promised, as a test grants it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promises {
    /// Time within which a job goes on once its ways work.
    pub(super) resumes: Duration,
    /// Time within which a job that something ends is gone.
    pub(super) ends: Duration,
    /// Longest time to a job's end once nothing is broken. It guards against hanging.
    pub(super) hangs: Duration,
}

/// A hit that happened. All times are seconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Happened {
    pub(super) hit: Hit,
    pub(super) began: f64,
    /// When the hit was mended, and services that were started again served.
    pub(super) ended: f64,
}

/// What a job did. All times are seconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) spec: Spec,
    pub(super) began: f64,
    /// When the job ended, and its status. `None` if it hung.
    pub(super) end: Option<(f64, i32)>,
    /// When the job was asked to end. `None` if it wasn't.
    pub(super) asked: Option<f64>,
    pub(super) printed: String,
    pub(super) progress: Vec<f64>,
}

impl Seen {
    fn is_right(&self) -> bool {
        matches!(self.end, Some((_, 0))) && self.printed.contains(" No Errors")
    }
}

/// What becomes of a job under a hit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Effect {
    Lives,
    /// The job ends so many seconds after the hit began.
    Ends(f64),
}

/// A hit's effect on the long job, which runs all the time.
fn effect(happened: &Happened, spec: &Spec) -> Effect {
    let outlive = spec.outlive.as_secs_f64();
    let takes_part = |name: &str| spec.nodes.iter().any(|node| site(node) == name);
    match &happened.hit {
        Hit::Process(..) => Effect::Ends(0.0),
        Hit::Grid(What::Cut(site)) if takes_part(site) && happened.ended - happened.began >= outlive => {
            Effect::Ends(outlive)
        }
        hit if killed_agent(hit).is_some_and(|node| spec.nodes.contains(&node)) => Effect::Ends(0.0),
        Hit::Grid(_) => Effect::Lives,
    }
}

/// Whether any of the hits ends the long job.
pub(super) fn ends(hits: &[Happened], spec: &Spec) -> bool {
    hits.iter().any(|happened| effect(happened, spec) != Effect::Lives)
}

/// Seconds after the end of a hit until all is as before, besides the time that is promised.
pub(super) fn late(hit: &Hit) -> f64 {
    match hit {
        Hit::Process(..) | Hit::Grid(What::Cut(_) | What::Rank(_)) => 0.0,
        Hit::Grid(What::Forgets(_) | What::Moves(_) | What::Restarts(_) | What::Timeouts(..)) => SILENCE,
        Hit::Grid(What::Swallows(..)) => PROBED,
        Hit::Grid(What::Killed(_) | What::Upgraded(_) | What::Host(_) | What::Link(..) | What::Apart(_)) => {
            ATTACHED
        }
    }
}

/// When all is as before, after all hits except the hit with the index `but`.
fn settled(hits: &[Happened], but: Option<usize>) -> f64 {
    let others = hits.iter().enumerate().filter(|(at, _)| Some(*at) != but);
    others.map(|(_, happened)| happened.ended + late(&happened.hit)).fold(0.0, f64::max)
}

/// What is wrong with what the long job did, which ran all the time.
pub(super) fn of_long(seen: &Seen, hits: &[Happened], promises: Promises) -> Vec<String> {
    let ender = hits.iter().enumerate().find_map(|(at, happened)| match effect(happened, &seen.spec) {
        Effect::Ends(after) => Some((at, happened, after)),
        Effect::Lives => None,
    });
    let mut wrong = match ender {
        None => lived(seen),
        Some((at, happened, after)) => {
            let from = happened.began + after;
            let until = from.max(settled(hits, Some(at))) + promises.ends.as_secs_f64();
            ended(seen, happened, (from, until))
        }
    };
    let last = ender.map_or(f64::INFINITY, |(_, happened, _)| happened.began);
    wrong.extend(pauses(seen, hits, last, promises.resumes));
    wrong
}

/// What is wrong with a job that must live: it ends in order, when it is asked to.
fn lived(seen: &Seen) -> Vec<String> {
    let Some((at, status)) = seen.end else { return vec!["it hangs".to_owned()] };
    let mut wrong = Vec::new();
    if seen.asked.is_none_or(|asked| at < asked) {
        wrong.push(format!("it ended with status {status}, and nothing that ends a job has happened"));
    } else if !seen.is_right() {
        wrong.push(format!("it was asked to end, and did with status {status}"));
    }
    wrong
}

/// What is wrong with a job that must end: the hit `by` ends it, is named by it, and ends it in
/// this time.
fn ended(seen: &Seen, by: &Happened, (from, until): (f64, f64)) -> Vec<String> {
    let Some((at, status)) = seen.end else { return vec![format!("it hangs; {:?} should end it", by.hit)] };
    let mut wrong = Vec::new();
    if at < from {
        wrong.push(format!("it ended {:.1} s before {:?} ends it", from - at, by.hit));
    }
    if at > until {
        wrong.push(format!("it ended {:.1} s too late after {:?}", at - until, by.hit));
    }
    let is_told = by.hit == Hit::Process(Process::Run, "TERM");
    if matches!(status, 0 | 124) || (is_told && status != 128 + 15) {
        wrong.push(format!("it ended with status {status} by {:?}", by.hit));
    }
    match cause(&seen.printed) {
        Some(cause) if is_named(&by.hit, &seen.spec, cause) => {}
        Some(cause) => wrong.push(format!("it names {cause:?}, and not {:?}", by.hit)),
        None => wrong.push(format!("it names no cause, and not {:?}", by.hit)),
    }
    wrong
}

/// The pauses of a job that are too long, up to the moment in which something ends it. Judged are
/// the pauses after all hits, and after each hit behind which nothing is broken for as long as a
/// pause may take.
fn pauses(seen: &Seen, hits: &[Happened], last: f64, resumes: Duration) -> Vec<String> {
    let resumes = resumes.as_secs_f64();
    // What was over before the job began says nothing of it.
    let window = |healed: &Happened| {
        let from = healed.ended.max(seen.began);
        (from, from + late(&healed.hit) + resumes)
    };
    let is_alone = |healed: &&Happened| {
        let (from, until) = window(healed);
        let is_broken = |other: &Happened| other.began < until && other.ended + late(&other.hit) > from;
        !hits.iter().any(|other| other != *healed && is_broken(other))
    };
    let mut windows: Vec<_> = hits.iter().filter(is_alone).map(window).collect();
    let ended = hits.iter().map(|happened| happened.ended).fold(seen.began, f64::max);
    windows.push((ended, settled(hits, None).max(seen.began) + resumes));
    // The window of the fault that is over last may equal the window after all faults.
    windows.dedup();
    let next = |from: f64| seen.progress.iter().copied().find(|time| *time > from).unwrap_or(f64::INFINITY);
    let is_long = |(from, until): &(f64, f64)| *until <= last && next(*from) > *until;
    let text = |(from, until): (f64, f64)| {
        let pause = next(from) - from;
        format!("it went on {pause:.1} s after things were mended, and {:.1} s are promised", until - from)
    };
    windows.into_iter().filter(is_long).map(text).collect()
}

/// What is wrong with a short job that began while something was broken, or just after. It ends
/// right, unless what it met lasted too long, or ended it. Then it names that.
pub(super) fn of_short(seen: &Seen, hits: &[Happened], promises: Promises) -> Vec<String> {
    let Some((at, status)) = seen.end else { return vec!["it hangs".to_owned()] };
    let until = seen.began.max(settled(hits, None)) + promises.hangs.as_secs_f64();
    let mut wrong = Vec::new();
    if at > until {
        wrong.push(format!("it took {:.1} s too long to its end", at - until));
    }
    if seen.is_right() {
        return wrong;
    }
    let has_met = |happened: &&Happened| {
        let ends = killed_agent(&happened.hit).is_some_and(|node| seen.spec.nodes.contains(&node))
            && (seen.began..=at).contains(&happened.began);
        let stays = happened.began < at && happened.ended - happened.began.max(seen.began) > TRIES_ON;
        ends || (stays && matches!(happened.hit, Hit::Grid(_)))
    };
    let met: Vec<_> = hits.iter().filter(has_met).collect();
    let named = met.iter().any(|happened| mentions(&happened.hit, &seen.spec, &seen.printed));
    match (met.is_empty(), named) {
        (true, _) => wrong.push(format!("it ended with status {status}, and met nothing that explains it")),
        (false, false) => {
            let met: Vec<_> = met.iter().map(|happened| &happened.hit).collect();
            wrong.push(format!("it ended with status {status}, and names none of {met:?}"));
        }
        (false, true) if matches!(status, 0 | 124) => wrong.push(format!("it ended with status {status}")),
        (false, true) => {}
    }
    wrong
}
