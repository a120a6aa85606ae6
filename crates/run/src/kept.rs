//! What `isthmus alloc` tells the runs within it of the nodes that it keeps, in variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use isthmus_profile::Tag;
use isthmus_service::clock::unix_seconds;
use tokio::time::sleep;

use crate::notice::ends_in;

/// The variable with the nodes' names, separated by commas.
const NODES: &str = "ISTHMUS_ALLOCATION";
/// The variable with the features that nodes have, as `FEATURE=INDEX/INDEX`, separated by commas. A node's
/// index is that of its name.
const TAGS: &str = "ISTHMUS_ALLOCATION_TAGS";
/// The variable with the time at which the first batch job's time is over, in seconds since 1970; empty if
/// none has a limit.
const END: &str = "ISTHMUS_ALLOCATION_END";

/// Nodes that `isthmus alloc` keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeptNodes {
    pub names: Vec<String>,
    /// The features that were asked for, each with the indexes of the nodes that have it.
    pub tags: BTreeMap<String, Vec<usize>>,
    /// When the time of the first batch job is over, in seconds since 1970; `None` if none has a limit.
    pub end_unix_seconds: Option<u64>,
}

impl KeptNodes {
    /// Nodes that all have these features.
    pub(crate) fn with_tags(names: Vec<String>, tags: &[String]) -> Self {
        let all = tags.iter().map(|tag| (tag.clone(), (0..names.len()).collect()));
        Self { tags: all.collect(), names, end_unix_seconds: None }
    }

    /// The variables for the command.
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 3] {
        let tag = |(tag, nodes): (&String, &Vec<usize>)| {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            format!("{tag}={}", nodes.join("/"))
        };
        let tags: Vec<String> = self.tags.iter().map(tag).collect();
        let end = self.end_unix_seconds.map(|end| end.to_string()).unwrap_or_default();
        [(NODES, self.names.join(",").into()), (TAGS, tags.join(",").into()), (END, end.into())]
    }

    /// The nodes of the allocation that this process is in; `None` if it is in none.
    pub(crate) fn of_this_process() -> Option<Self> {
        Self::read([NODES, TAGS, END].map(|name| std::env::var(name).unwrap_or_default()))
    }

    fn read([nodes, tags, end]: [String; 3]) -> Option<Self> {
        let words = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
        };
        let names = words(&nodes);
        let tag = |word: &String| {
            let (tag, nodes) = word.split_once('=')?;
            Some((tag.to_owned(), nodes.split('/').filter_map(|index| index.parse().ok()).collect()))
        };
        let tags = words(&tags).iter().filter_map(tag).collect();
        (!names.is_empty()).then(|| Self { names, tags, end_unix_seconds: end.parse().ok() })
    }

    /// Waits until the time of the first batch job is over in less than `before`, and returns that in words.
    /// Waits for ever if none has a limit.
    pub(crate) fn nears_end(&self, before: Duration) -> impl Future<Output = String> + Send + use<> {
        let end = self.end_unix_seconds;
        async move {
            let Some(end) = end else { return std::future::pending().await };
            let left = || Duration::from_secs(end.saturating_sub(unix_seconds(SystemTime::now())));
            sleep(left().saturating_sub(before)).await;
            ends_in("the allocation", left())
        }
    }

    /// The features that a node has, each once, in their order.
    pub(crate) fn tags_of(&self, node: &str) -> Vec<Tag> {
        let index = self.names.iter().position(|name| name == node);
        let has = |nodes: &Vec<usize>| index.is_some_and(|index| nodes.contains(&index));
        let mut tags: Vec<Tag> = self
            .tags
            .iter()
            .filter(|(_, nodes)| has(nodes))
            .filter_map(|(tag, _)| tag.parse().ok())
            .collect();
        tags.sort();
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_allocation() {
        for (value, want) in [
            ("", None),
            (",", None),
            ("n1-p1.a,n2-p1.a", Some(vec!["n1-p1.a".to_owned(), "n2-p1.a".to_owned()])),
        ] {
            let read = KeptNodes::read([value, "", ""].map(str::to_owned));
            assert_eq!(read.map(|kept| kept.names), want, "{value:?}");
        }
    }

    #[test]
    fn runs_read_what_the_allocation_tells() {
        let kept = KeptNodes {
            names: vec!["n1.a".to_owned(), "n2.a".to_owned()],
            tags: BTreeMap::from([("ib".to_owned(), vec![1]), ("gpu".to_owned(), vec![0, 1])]),
            end_unix_seconds: Some(1_700_000_000),
        };
        let values = kept.variables().map(|(_, value)| value.into_string().unwrap());
        assert_eq!(values[1], "gpu=0/1,ib=1");
        assert_eq!(KeptNodes::read(values), Some(kept.clone()));
        let of = |node| kept.tags_of(node).iter().map(|tag| tag.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (of("n1.a"), of("n2.a"), of("n3.a")),
            (vec!["gpu".to_owned()], vec!["gpu".to_owned(), "ib".to_owned()], vec![])
        );
    }
}
