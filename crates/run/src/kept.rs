//! What `isthmus alloc` tells the runs within it of the nodes that it keeps, in variables: pure.

use std::ffi::OsString;

use isthmus_profile::Tag;

/// The variable with the nodes' names, separated by commas.
const NODES: &str = "ISTHMUS_ALLOCATION";
/// The variable with the features that nodes have, as `NODE=FEATURE`, separated by commas.
const TAGS: &str = "ISTHMUS_ALLOCATION_TAGS";

/// Nodes that `isthmus alloc` keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeptNodes {
    pub names: Vec<String>,
    /// The features that were asked for, each with a node that has it.
    pub tags: Vec<(String, String)>,
}

impl KeptNodes {
    /// Nodes that all have these features.
    pub(crate) fn with_tags(names: Vec<String>, tags: &[String]) -> Self {
        let of = |name: &String| tags.iter().map(|tag| (name.clone(), tag.clone())).collect::<Vec<_>>();
        Self { tags: names.iter().flat_map(of).collect(), names }
    }

    /// The variables for the command.
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 2] {
        let tags: Vec<String> = self.tags.iter().map(|(node, tag)| format!("{node}={tag}")).collect();
        [(NODES, self.names.join(",").into()), (TAGS, tags.join(",").into())]
    }

    /// The nodes of the allocation that this process is in; `None` if it is in none.
    pub(crate) fn of_this_process() -> Option<Self> {
        let text = |name| std::env::var(name).unwrap_or_default();
        Self::read(&text(NODES), &text(TAGS))
    }

    fn read(nodes: &str, tags: &str) -> Option<Self> {
        let words = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
        };
        let names = words(nodes);
        let tag = |word: &String| word.split_once('=').map(|(node, tag)| (node.to_owned(), tag.to_owned()));
        let tags = words(tags).iter().filter_map(tag).collect();
        (!names.is_empty()).then_some(Self { names, tags })
    }

    /// The features that a node has, each once, in their order.
    pub(crate) fn tags_of(&self, node: &str) -> Vec<Tag> {
        let own = self.tags.iter().filter(|(name, _)| name == node);
        let mut tags: Vec<Tag> = own.filter_map(|(_, tag)| tag.parse().ok()).collect();
        tags.sort();
        tags.dedup();
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
            assert_eq!(KeptNodes::read(value, "").map(|kept| kept.names), want, "{value:?}");
        }
    }

    #[test]
    fn features_are_those_that_were_asked_for() {
        let pair = |node: &str, tag: &str| (node.to_owned(), tag.to_owned());
        let kept = KeptNodes {
            names: vec!["n1.a".to_owned(), "n2.a".to_owned()],
            tags: vec![pair("n2.a", "ib"), pair("n2.a", "gpu"), pair("n2.a", "ib")],
        };
        let [(_, nodes), (_, tags)] = kept.variables();
        let read = KeptNodes::read(nodes.to_str().unwrap(), tags.to_str().unwrap()).unwrap();
        assert_eq!(read, kept);
        let of = |node| read.tags_of(node).iter().map(|tag| tag.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!((of("n1.a"), of("n2.a")), (vec![], vec!["gpu".to_owned(), "ib".to_owned()]));
    }
}
