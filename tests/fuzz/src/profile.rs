//! Profiles of jobs, which users write.

use isthmus_profile::Profile;
use isthmus_profile::explain::explain;
use isthmus_profile::launch::{Got, Launcher, words};
use isthmus_profile::limits::{BETWEEN_MAX, GROUPS_MAX, RANKS_MAX};

/// Profiles: an accepted file keeps the bounds, is explained, and has a command line with all its
/// ranks for each launcher.
pub fn profile(bytes: &[u8]) {
    let Ok(profile) = Profile::parse(crate::text(bytes), "fuzz") else { return };
    assert!(profile.groups.len() <= GROUPS_MAX && profile.between.len() <= BETWEEN_MAX);
    let explanation = explain(&profile);
    assert!(explanation.least_ranks <= explanation.most_ranks);
    assert!(explanation.most_ranks <= u64::from(RANKS_MAX));
    assert!(!explanation.to_string().is_empty());
    let got = Got::Ranks(profile.groups.iter().map(|group| group.ranks.most).collect());
    for launcher in [Launcher::OpenMpi, Launcher::Mpich] {
        match words(launcher, &profile, &got, &["./app".to_owned()]) {
            Ok(line) => {
                let contexts = line.split(|word| word == ":").filter(|context| !context.is_empty());
                assert_eq!(contexts.count(), profile.groups.len());
            }
            // A word of a command, which Linux wouldn't pass to a program.
            Err(error) => assert!(bytes.len() >= 128 << 10, "{error}"),
        }
    }
}
