//! What the command line says of pilots: `SITE=NODES` or `SITE`, and words for one site or all.

use std::str::FromStr;

/// Most nodes of one site.
const MOST_NODES: u32 = 10_000;

/// Nodes that a site's batch scheduler is to give: `SITE=NODES`, or `SITE=NODES:CORES` with so many
/// cores each; or `SITE` if a profile says how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteNodes {
    pub(crate) site: String,
    /// How many; `None` for as many as a profile needs.
    pub(crate) nodes: Option<u32>,
    /// Cores of each node; 0 for the scheduler's default.
    pub(crate) cores: u32,
}

impl FromStr for SiteNodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} isn't SITE=NODES or SITE=NODES:CORES, such as alpha=4");
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
        let Some((site, nodes)) = text.split_once('=') else {
            let site = text.trim().to_owned();
            return if site.is_empty() { Err(form()) } else { Ok(Self { site, nodes: None, cores: 0 }) };
        };
        let (nodes, cores) = match nodes.split_once(':') {
            Some((nodes, cores)) => (nodes, number(cores).ok_or_else(form)?),
            None => (nodes, 0),
        };
        let nodes = number(nodes).ok_or_else(form)?;
        if site.trim().is_empty() {
            return Err(form());
        }
        if nodes > MOST_NODES {
            return Err(format!("{nodes} nodes, and {MOST_NODES} is the most of one site"));
        }
        Ok(Self { site: site.trim().to_owned(), nodes: Some(nodes), cores })
    }
}

/// A word for a scheduler, such as a queue's name: of one site with `SITE=WORD`, else of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfSite {
    /// The site; `None` for every one.
    pub(crate) site: Option<String>,
    pub(crate) value: String,
}

impl FromStr for OfSite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (site, value) = match text.split_once('=') {
            Some((site, value)) => (Some(site.trim().to_owned()), value.trim()),
            None => (None, text.trim()),
        };
        if value.is_empty() || site.as_deref() == Some("") {
            return Err(format!("{text:?} isn't WORD or SITE=WORD"));
        }
        Ok(Self { site, value: value.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_site() {
        let read = |text: &str| text.parse::<SiteNodes>().map(|read| (read.site, read.nodes, read.cores));
        assert_eq!(read("alpha=4"), Ok(("alpha".to_owned(), Some(4), 0)));
        assert_eq!(read(" alpha = 4:16"), Ok(("alpha".to_owned(), Some(4), 16)));
        assert_eq!(read(" alpha "), Ok(("alpha".to_owned(), None, 0)));
        for text in ["", "=4", "alpha=", "alpha=0", "alpha=-1", "alpha=4:0", "alpha=4:", "alpha=10001"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_of_one_site_or_all() {
        let read = |text: &str| text.parse::<OfSite>().map(|read| (read.site, read.value));
        assert_eq!(read("short"), Ok((None, "short".to_owned())));
        assert_eq!(read("alpha=short"), Ok((Some("alpha".to_owned()), "short".to_owned())));
        assert!(read("").is_err() && read("=short").is_err() && read("alpha=").is_err());
    }
}
