//! Which requirements can't be met together.

use std::time::Duration;

use isthmus_profile::Profile;

use crate::conflict::smallest;
use crate::deadline::Deadline;
use crate::meets::Meets;
use crate::offer::Offer;
use crate::problem::{Problem, UNKNOWN_START};
use crate::requirement::{Among, Requirement, asking, listed};
use crate::search::{Want, search};

/// A set of requirements that no placement meets together. Without any one of them the others can
/// be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible {
    /// The requirements, in the profile's order.
    pub conflicts: Vec<Conflict>,
    /// How many sites were offered.
    pub sites: usize,
    /// Whether no set of fewer requirements is impossible. If not, time ran out before that was
    /// known, and perhaps even some of these requirements have no part in it.
    pub smallest: bool,
}

/// One of the requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What can't be met with the others.
    pub requirement: Requirement,
    /// How it could be met with them.
    pub remedy: Remedy,
}

/// What would do instead of a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// The same with a number that asks less; no number between the two would do.
    Weaker(Requirement),
    /// Only to do without it.
    Without,
    /// It isn't known.
    Unknown,
}

/// Whether requirements can be met together.
pub(crate) struct Oracle<'a, 'm> {
    profile: &'a Profile,
    offer: &'a Offer,
    meets: &'m mut Meets<'a>,
    deadline: &'m Deadline,
    /// Something wasn't known in time.
    pub(crate) unsure: bool,
}

impl Oracle<'_, '_> {
    /// Whether these can be met together. If that isn't known in time, they can.
    pub(crate) fn possible<'r>(
        &mut self,
        requirements: impl IntoIterator<Item = &'r Requirement> + Clone,
    ) -> bool {
        self.known(requirements).unwrap_or_else(|| {
            self.unsure = true;
            true
        })
    }

    /// Whether these can be met together; `None` if that isn't known in time.
    fn known<'r>(&mut self, requirements: impl IntoIterator<Item = &'r Requirement> + Clone) -> Option<bool> {
        if self.deadline.is_over() {
            return None;
        }
        let profile = asking(self.profile, requirements);
        let problem = Problem::new(&profile, self.offer, self.meets, UNKNOWN_START);
        let outcome = search(&problem, Want::Any, self.deadline, self.deadline);
        match (outcome.found.is_some(), outcome.sure) {
            (_, false) => None,
            (found, true) => Some(found),
        }
    }
}

/// Finds out why a profile can't be met.
pub(crate) fn explain<'a>(
    profile: &'a Profile,
    offer: &'a Offer,
    meets: &mut Meets<'a>,
    deadline: &Deadline,
) -> Impossible {
    let all = listed(profile);
    let mut oracle = Oracle { profile, offer, meets, deadline, unsure: false };
    let (conflict, smallest) = smallest(&mut oracle, &all);
    let smallest = smallest && !oracle.unsure;
    let conflicts = (0..conflict.len())
        .map(|index| Conflict {
            requirement: conflict[index].clone(),
            remedy: remedy(&mut oracle, &conflict, index),
        })
        .collect();
    Impossible { conflicts, sites: offer.sites.len(), smallest }
}

/// What would do instead of the requirement at `index`, with the others as they are.
fn remedy(oracle: &mut Oracle<'_, '_>, conflict: &[Requirement], index: usize) -> Remedy {
    let Some(requirement) = conflict.get(index) else { return Remedy::Unknown };
    if oracle.deadline.is_over() {
        return Remedy::Unknown;
    }
    let others = conflict.iter().enumerate().filter(|(other, _)| *other != index);
    let others: Vec<&Requirement> = others.map(|(_, requirement)| requirement).collect();
    let weaker = weaker(oracle.offer, requirement);
    // The weakest first: as far as that is possible, and no further.
    let (mut low, mut high) = (0, weaker.count);
    while low < high {
        let middle = low + (high - low) / 2;
        let instead = (weaker.make)(middle);
        let asked: Vec<&Requirement> = others.iter().copied().chain(std::iter::once(&instead)).collect();
        match oracle.known(asked.iter().copied()) {
            Some(true) => low = middle + 1,
            Some(false) => high = middle,
            None => return Remedy::Unknown,
        }
    }
    match low.checked_sub(1) {
        Some(last) => Remedy::Weaker((weaker.make)(last)),
        None => Remedy::Without,
    }
}

/// Requirements weaker than one, the weakest first.
struct Weaker<'a> {
    count: u64,
    make: Box<dyn Fn(u64) -> Requirement + 'a>,
}

fn weaker<'a>(offer: &'a Offer, requirement: &'a Requirement) -> Weaker<'a> {
    match requirement {
        Requirement::Ranks { group, least } => Weaker {
            count: u64::from(least.saturating_sub(1)),
            make: Box::new(|index| Requirement::Ranks {
                group: group.clone(),
                least: u32::try_from(index + 1).unwrap_or(*least),
            }),
        },
        Requirement::Cores { group, each } => Weaker {
            count: u64::from(each.saturating_sub(1)),
            make: Box::new(|index| Requirement::Cores {
                group: group.clone(),
                each: u32::try_from(index + 1).unwrap_or(*each),
            }),
        },
        Requirement::Memory { group, bytes } => Weaker {
            count: bytes.saturating_sub(1),
            make: Box::new(|index| Requirement::Memory { group: group.clone(), bytes: index + 1 }),
        },
        Requirement::Rtt { groups, most } => {
            let mut known: Vec<Duration> =
                links(offer).filter_map(|link| link.rtt).filter(|rtt| rtt > most).collect();
            known.sort_unstable_by(|a, b| b.cmp(a));
            known.dedup();
            measured(known, |most| Requirement::Rtt { groups: groups.clone(), most })
        }
        Requirement::Rate { groups, bytes_per_second } => {
            let rates = links(offer).filter_map(|link| link.bytes_per_second);
            let mut known: Vec<u64> = rates.filter(|rate| rate < bytes_per_second).collect();
            known.sort_unstable();
            known.dedup();
            measured(known, |bytes_per_second| Requirement::Rate { groups: groups.clone(), bytes_per_second })
        }
        Requirement::OneSite { .. } | Requirement::Architecture { .. } | Requirement::Tag { .. } => {
            Weaker { count: 0, make: Box::new(|_| requirement.clone()) }
        }
    }
}

/// Requirements with these numbers, of which only those that were measured can matter.
fn measured<'a, T: Copy + Default + 'a>(known: Vec<T>, make: impl Fn(T) -> Requirement + 'a) -> Weaker<'a> {
    let count = known.len() as u64;
    let at = move |index| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        make(known.get(index).copied().unwrap_or_default())
    };
    Weaker { count, make: Box::new(at) }
}

/// What is known of all networks, within sites and between them.
fn links(offer: &Offer) -> impl Iterator<Item = isthmus_profile::Link> + '_ {
    let sites = offer.sites.len();
    (0..sites).flat_map(move |a| (a..sites).map(move |b| offer.link(a, b)))
}

/// The groups that a requirement is about.
impl Among {
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self, Self::Inside(_))
    }
}
