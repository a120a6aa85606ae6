//! What a profile and an offer must keep to.

use std::collections::BTreeSet;

use isthmus_profile::Profile;

use crate::offer::{MOST_CLASSES, MOST_SITES, Offer};
use crate::refusal::Refusal;

/// At most so many groups may a profile have.
pub const MOST_GROUPS: usize = 64;

/// Whether the search can begin.
pub(crate) fn check(profile: &Profile, offer: &Offer) -> Result<(), Refusal> {
    let bounded = |what, count: usize, most: usize| {
        if count > most { Err(Refusal::TooMany { what, count, most }) } else { Ok(()) }
    };
    bounded("groups", profile.groups.len(), MOST_GROUPS)?;
    bounded("pairs of groups", profile.between.len(), MOST_GROUPS * (MOST_GROUPS - 1) / 2)?;
    bounded("sites", offer.sites.len(), MOST_SITES)?;
    for site in &offer.sites {
        bounded("classes of nodes at a site", site.classes.len(), MOST_CLASSES)?;
    }
    let mut names = BTreeSet::new();
    for group in &profile.groups {
        if !names.insert(&group.name) {
            return Err(Refusal::SameName { group: group.name.clone() });
        }
        let (least, most) = (group.ranks.least, group.ranks.most);
        if least < 1 || most < least {
            return Err(Refusal::Ranks { group: group.name.clone(), least, most });
        }
    }
    for between in &profile.between {
        let [a, b] = &between.groups;
        if let Some(name) = [a, b].into_iter().find(|name| !names.contains(name)) {
            return Err(Refusal::NoGroup { name: name.clone() });
        }
        if a == b {
            return Err(Refusal::Itself { group: a.clone() });
        }
    }
    Ok(())
}
