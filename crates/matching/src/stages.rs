//! The stages of matching: the least traffic, then the most ranks, then the earliest start.

use std::time::Duration;

use isthmus_profile::Profile;

use crate::deadline::Deadline;
use crate::impossible::explain;
use crate::meets::Meets;
use crate::offer::Offer;
use crate::placed::{Placed, placed};
use crate::placement::{PlacedGroup, Placement, Score};
use crate::problem::{Problem, UNKNOWN_START};
use crate::refusal::Refusal;
use crate::search::{Found, Outcome, Want, search};
use crate::valid::check;

/// Parts of the time that is left, in hundredths, that a stage may take at most, and of the last one
/// each step. What one doesn't need is for the next ones.
const TRAFFIC_PART: u32 = 50;
const RANKS_PART: u32 = 50;
const START_PART: u32 = 25;

/// Where each group of the profile goes, as the [crate's page](crate) has it.
///
/// `limit` is how long it may take, and up to a quarter more at its end. If that is too short for the
/// best, the best that was found is returned, with `best` unset; or [`Refusal::OutOfTime`].
pub fn place(profile: &Profile, offer: &Offer, limit: Duration) -> Result<Placement, Refusal> {
    check(profile, offer)?;
    let deadline = Deadline::after(limit);
    let mut meets = Meets::new(offer);
    let problem = Problem::new(profile, offer, &mut meets, UNKNOWN_START);
    let traffic = search(&problem, Want::LeastTraffic, &deadline.part(TRAFFIC_PART), &deadline);
    let Some(found) = traffic.found else {
        return Err(if traffic.sure {
            Refusal::Impossible(explain(profile, offer, &mut meets, &deadline))
        } else {
            Refusal::OutOfTime { limit }
        });
    };
    let want = Want::MostRanks { traffic: found.traffic };
    let soon = deadline.part(RANKS_PART);
    let most = search(&problem, want, &soon, &soon);
    let mut stage = Stage { profile, offer, meets: &mut meets, deadline: &deadline, limit };
    let mut sure = traffic.sure && most.sure;
    let mut choices = vec![(UNKNOWN_START, found)];
    if let Some(best) = most.found {
        choices.push((UNKNOWN_START, best.clone()));
        sure &= stage.earlier(&best, &mut choices);
    }
    stage.placement(choices, sure).ok_or(Refusal::OutOfTime { limit })
}

/// The last stage.
struct Stage<'a, 'm> {
    profile: &'a Profile,
    offer: &'a Offer,
    meets: &'m mut Meets<'a>,
    deadline: &'m Deadline,
    limit: Duration,
}

impl Stage<'_, '_> {
    /// Halves the times at which nodes can be had until the earliest is found by which there is
    /// room with as little traffic for as many ranks. Adds what it finds, the earliest last; and
    /// returns whether nothing earlier exists.
    fn earlier(&mut self, best: &Found, choices: &mut Vec<(Duration, Found)>) -> bool {
        let classes = self.offer.sites.iter().flat_map(|site| &site.classes);
        let mut times: Vec<Duration> = classes.map(|class| class.start.unwrap_or(UNKNOWN_START)).collect();
        times.sort_unstable();
        times.dedup();
        let want = Want::Enough { traffic: best.traffic, ranks: best.ranks };
        let mut sure = true;
        // By `times[high]` there is room. By `times[low - 1]` there isn't, as far as is known.
        let (mut low, mut high) = (0, times.len().saturating_sub(1));
        while low < high {
            let middle = low + (high - low) / 2;
            let problem = Problem::new(self.profile, self.offer, self.meets, times[middle]);
            let soon = self.deadline.part(START_PART);
            let Outcome { found, sure: known } = search(&problem, want, &soon, &soon);
            match found {
                Some(found) => {
                    choices.push((times[middle], found));
                    high = middle;
                }
                None => {
                    sure &= known;
                    low = middle + 1;
                }
            }
        }
        sure
    }

    /// The last of these choices for which nodes are found; it is the best if that is `sure` and no
    /// choice was dropped.
    fn placement(&mut self, choices: Vec<(Duration, Found)>, sure: bool) -> Option<Placement> {
        let mut best = sure;
        // What is known to be there isn't given up for the little that is left to do.
        let left = self.deadline.left().unwrap_or(self.limit);
        let deadline = Deadline::after(left.max(self.limit / 4));
        for (by, found) in choices.iter().rev() {
            let problem = Problem::new(self.profile, self.offer, self.meets, *by);
            match placed(&problem, found, &deadline) {
                Some(placed) => return Some(self.told(placed, best)),
                None => best = false,
            }
        }
        None
    }

    fn told(&self, placed: Placed, best: bool) -> Placement {
        let Placed { shares, ranks, traffic, start } = placed;
        let groups = self.profile.groups.iter().enumerate().map(|(index, group)| PlacedGroup {
            group: group.name.clone(),
            shares: shares.iter().filter(|(of, _)| *of == index).map(|(_, share)| *share).collect(),
        });
        let start = (start < UNKNOWN_START).then_some(start);
        Placement { groups: groups.collect(), score: Score { traffic, ranks, start }, best }
    }
}
