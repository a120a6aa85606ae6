//! The gateways that the agent may attach to. It hears of further ones by those that it knows.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use isthmus_service::{files, lock};
use isthmus_wire::bounds::{GATEWAYS_PER_SITE, TEXT};
use tracing::{info, warn};

use crate::uplink::gateways::{Gateways, in_order, is_address};

/// The gateways that are configured, and the file of those that the agent has heard of.
pub(crate) type Configuration<'a> = (Option<&'a Gateways>, Option<&'a Path>);

/// The addresses of the site's gateways, before any is preferred. `joined` is the one at which the
/// agent joined.
///
/// # Errors
/// If a configured address is invalid.
pub(crate) fn addresses((configured, heard): Configuration<'_>, joined: &str) -> Result<Vec<String>, String> {
    configured.map_or_else(|| Ok(first_of(joined, read(heard))), Gateways::addresses)
}

/// The addresses of the gateways, in the order of the agent's preference. All clones share one
/// list.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The addresses, of which each keeps its place while there is room: attachments name a gateway
    /// by its place.
    list: Arc<Mutex<Vec<Arc<str>>>>,
    /// Whether the list comes from the configuration, and so never changes.
    is_configured: bool,
    /// The file in which gateways that were heard of outlive the agent.
    file: Option<PathBuf>,
}

impl Known {
    /// The gateways of the [`Configuration`]. Without these, the gateway at which the agent of this
    /// `node` `joined`, then those that it has heard of.
    ///
    /// # Errors
    /// If a configured address is invalid.
    pub(crate) fn new(
        (configured, heard): Configuration<'_>,
        joined: &str,
        node: &str,
    ) -> Result<Self, String> {
        let list = match configured {
            Some(gateways) => in_order(gateways.addresses()?, node),
            None => first_of(joined, in_order(read(heard), node)),
        };
        let list = list.iter().map(|gateway| Arc::from(gateway.as_str())).collect();
        Ok(Self {
            list: Arc::new(Mutex::new(list)),
            is_configured: configured.is_some(),
            file: heard.map(Path::to_owned),
        })
    }

    pub(crate) fn all(&self) -> Vec<String> {
        lock(&self.list).iter().map(ToString::to_string).collect()
    }

    pub(super) fn get(&self, index: usize) -> Option<Arc<str>> {
        lock(&self.list).get(index).cloned()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.list).len()
    }

    /// Adds gateways of which a gateway has told, and keeps them for the next start. Does nothing
    /// if the list is configured.
    pub(super) fn heard(&self, told: &[String]) {
        if self.is_configured {
            return;
        }
        let told = sound(told.iter().map(String::as_str));
        let fresh = {
            let mut list = lock(&self.list);
            told.iter().filter_map(|gateway| add(&mut list, gateway, &told)).collect::<Vec<_>>()
        };
        if fresh.is_empty() {
            return;
        }
        info!(gateways = fresh.join(" "), "heard of further gateways of this site");
        let Some(file) = &self.file else { return };
        if let Err(error) = files::write(file, (told.join("\n") + "\n").as_bytes(), 0o600) {
            warn!(%error, "after a restart the agent has to hear of its site's gateways anew");
        }
    }
}

/// Adds a gateway, unless it is known or there is no room. In a full list it takes the place of a
/// gateway that isn't `told` of any more. Otherwise a gateway that was captured once could leave no
/// room for the others for good.
fn add(list: &mut Vec<Arc<str>>, gateway: &str, told: &[String]) -> Option<Arc<str>> {
    if list.iter().any(|known| **known == *gateway) {
        return None;
    }
    let fresh: Arc<str> = Arc::from(gateway);
    if list.len() < GATEWAYS_PER_SITE {
        list.push(fresh.clone());
    } else {
        let is_former = |known: &&mut Arc<str>| !told.iter().any(|one| **one == ***known);
        *list.iter_mut().skip(1).find(is_former)? = fresh.clone();
    }
    Some(fresh)
}

/// The gateways that the agent had heard of before; none if the file can't be read.
fn read(file: Option<&Path>) -> Vec<String> {
    let Some(opened) = file.and_then(|file| std::fs::File::open(file).ok()) else { return Vec::new() };
    let limit = u64::try_from(GATEWAYS_PER_SITE * (TEXT + 1)).unwrap_or(u64::MAX);
    let mut text = String::new();
    match opened.take(limit).read_to_string(&mut text) {
        Ok(_) => sound(text.lines()),
        Err(_) => Vec::new(),
    }
}

/// The gateway at which the agent joined, then the others.
fn first_of(joined: &str, heard: Vec<String>) -> Vec<String> {
    let others = heard.into_iter().filter(|gateway| gateway != joined);
    std::iter::once(joined.to_owned()).chain(others).collect()
}

/// The first of these that may be addresses, as many as a site may have gateways.
fn sound<'a>(addresses: impl Iterator<Item = &'a str>) -> Vec<String> {
    let addresses = addresses.filter(|address| address.len() <= TEXT && is_address(address));
    addresses.take(GATEWAYS_PER_SITE).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn gateways_that_were_heard_of_outlive_the_agent_and_come_last() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateways");
        let configuration = (None, Some(file.as_path()));
        let known = Known::new(configuration, "a:1", "n1").unwrap();
        assert_eq!(known.all(), ["a:1"]);
        known.heard(&told(&["b:1", "a:1", "no address", "c:0"]));
        known.heard(&told(&["a:1", "b:1"]));
        assert_eq!(known.clone().all(), ["a:1", "b:1"]);
        // The gateway at which the agent had joined comes after the new one.
        let again = Known::new(configuration, "b:1", "n1").unwrap();
        assert_eq!(again.all(), ["b:1", "a:1"]);
        assert_eq!(addresses(configuration, "b:1").unwrap(), ["b:1", "a:1"]);
        // An address keeps its place, even when the site has other gateways now.
        again.heard(&told(&["c:1", "b:1"]));
        assert_eq!(again.all(), ["b:1", "a:1", "c:1"]);
        assert_eq!(addresses(configuration, "b:1").unwrap(), ["b:1", "c:1"]);
    }

    #[test]
    fn a_gateway_tells_of_no_more_than_a_site_has() {
        let known = Known::new((None, None), "a:1", "n1").unwrap();
        for turn in 0..3 {
            let many: Vec<_> = (0..99).map(|number| format!("g{turn}-{number}:1")).collect();
            known.heard(&many);
            assert_eq!(known.count(), GATEWAYS_PER_SITE);
        }
        assert_eq!(known.get(GATEWAYS_PER_SITE), None);
    }

    #[test]
    fn a_gateway_that_tells_nonsense_leaves_room_for_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateways");
        let configuration = (None, Some(file.as_path()));
        let nonsense: Vec<_> = (0..GATEWAYS_PER_SITE).map(|number| format!("x{number}:1")).collect();
        Known::new(configuration, "a:1", "n1").unwrap().heard(&nonsense);
        // Also after a restart, with those that are on disk.
        let known = Known::new(configuration, "a:1", "n1").unwrap();
        known.heard(&told(&["a:1", "b:1"]));
        assert!(known.all().starts_with(&told(&["a:1"])) && known.all().contains(&"b:1".to_owned()));
        assert_eq!(Known::new(configuration, "a:1", "n1").unwrap().all(), ["a:1", "b:1"]);
    }

    #[test]
    fn the_configuration_s_gateways_stay() {
        let gateways = Gateways::Several(told(&["a:1", "b:1"]));
        let known = Known::new((Some(&gateways), None), "c:1", "n1").unwrap();
        known.heard(&told(&["a:1", "d:1"]));
        assert_eq!(known.all(), ["b:1", "a:1"]);
    }
}
