//! Which of the grid's nodes take part in a job: a pure choice.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{JobNode, ListReply, Node, NodeFilter, SiteFilter, WithoutBroker};
use isthmus_wire::text::first;

use crate::format::site;
use crate::without_broker::join;

/// Most nodes or sites that a line names.
const NAMED_MAX: usize = 8;

/// Why a job can't start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// A name on the command line that is neither a node nor a site.
    #[error(
        "{name:?} is neither a node nor a site of this grid; `isthmus status` lists the sites, and \
         `isthmus status SITE` the nodes of one"
    )]
    NoSuch { name: String },
    /// A node on the command line can't take part.
    #[error("{node} cannot take part: {reason}")]
    Unfit { node: String, reason: String },
    /// The agent's own node isn't in the grid's list.
    #[error("this node's own agent is not among the grid's nodes; is it attached? (`isthmus status`)")]
    NotAttached,
}

/// The records that a choice needs, as far as the command line names them.
pub(super) struct Candidates {
    /// Grid name of the agent's own node.
    pub own: String,
    /// The agent's own node, those named, and those of the sites named; of all
    /// sites if nothing is named. In the order of their virtual addresses.
    pub nodes: Vec<Node>,
    /// Those of the named sites that exist.
    pub sites: Vec<String>,
    /// Set if the gateway answered by itself.
    pub without_broker: Option<WithoutBroker>,
}

impl Candidates {
    /// Fetches the records: nodes that are named, and those of sites that have the own
    /// node's owner.
    ///
    /// # Errors
    /// That of `list`, which fetches all records of one kind.
    pub(super) async fn of<F, E>(wanted: &[String], list: impl Fn(Records) -> F) -> Result<Self, E>
    where
        F: Future<Output = Result<ListReply, E>>,
    {
        let (names, sites): (Vec<_>, Vec<_>) = wanted.iter().cloned().partition(|name| name.contains('.'));
        let filter = NodeFilter { names, own: true, ..NodeFilter::default() };
        let ListReply { own, mut nodes, mut without_broker, .. } = list(Records::Nodes(filter)).await?;
        let mut known = Vec::new();
        if let Some(head) = nodes.iter().find(|node| node.name == own)
            && (wanted.is_empty() || !sites.is_empty())
        {
            let filter =
                NodeFilter { sites: sites.clone(), owner: head.owner.clone(), ..NodeFilter::default() };
            let found = list(Records::Nodes(filter)).await?;
            join(&mut without_broker, found.without_broker);
            nodes.extend(found.nodes);
        }
        if !sites.is_empty() {
            let found = list(Records::Sites(SiteFilter { names: sites })).await?;
            join(&mut without_broker, found.without_broker);
            known.extend(found.sites.into_iter().map(|site| site.name));
        }
        nodes.sort_by_key(|node| node.virtual_address);
        nodes.dedup_by_key(|node| node.virtual_address);
        Ok(Self { own, nodes, sites: known, without_broker })
    }
}

/// The nodes of the job that `isthmus run` would start with these names.
///
/// # Errors
/// That of `list`, or [`ChoiceError`].
pub(crate) async fn chosen<F, E>(
    wanted: &[String],
    list: impl Fn(Records) -> F,
) -> anyhow::Result<Vec<JobNode>>
where
    F: Future<Output = Result<ListReply, E>>,
    E: Into<anyhow::Error>,
{
    let candidates = Candidates::of(wanted, list).await.map_err(Into::into)?;
    Ok(choose(&candidates, wanted)?)
}

/// Chooses a job's nodes: those named (nodes or whole sites), or all that are
/// fit. The head comes first, then the others by address. The head is always
/// among them, because the launcher runs there; if it isn't named, it has no
/// slots.
///
/// # Errors
/// [`ChoiceError`].
pub(super) fn choose(grid: &Candidates, wanted: &[String]) -> Result<Vec<JobNode>, ChoiceError> {
    let head =
        grid.nodes.iter().find(|node| node.name == grid.own && node.up).ok_or(ChoiceError::NotAttached)?;
    let mut chosen: Vec<JobNode> = Vec::new();
    let mut names: HashSet<&str> = HashSet::new();
    let mut add = |node: &JobNode, name| {
        if names.insert(name) {
            chosen.push(node.clone());
        }
    };
    if wanted.is_empty() {
        let fit = grid.nodes.iter().filter(|node| unfit(head, node).is_none());
        fit.for_each(|node| add(&job_node(node), &node.name));
    }
    for name in wanted {
        let mut found = grid.sites.contains(name);
        for node in grid.nodes.iter().filter(|node| node.name == *name || site(&node.name) == name) {
            found = true;
            match unfit(head, node) {
                None => add(&job_node(node), &node.name),
                // Of a site, only those that are fit.
                Some(_) if site(&node.name) == name => {}
                Some(reason) => return Err(ChoiceError::Unfit { node: node.name.clone(), reason }),
            }
        }
        if !found {
            return Err(ChoiceError::NoSuch { name: name.clone() });
        }
    }
    match chosen.iter().position(|node| node.name == head.name) {
        Some(index) => chosen[..=index].rotate_right(1),
        None => chosen.insert(0, JobNode { slots: 0, ..job_node(head) }),
    }
    Ok(chosen)
}

/// Why the job goes without nodes that it would have if they were fit; a line for each reason.
pub(super) fn left_out(grid: &Candidates, chosen: &[JobNode]) -> Vec<String> {
    let Some(head) = grid.nodes.iter().find(|node| node.name == grid.own) else { return Vec::new() };
    let is_chosen = |name: &str| chosen.iter().any(|node| node.name == name);
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // Those of others were never meant.
    for node in grid.nodes.iter().filter(|node| node.owner == head.owner) {
        if let Some(reason) = unfit(head, node) {
            by_reason.entry(reason).or_default().push(node.name.clone());
        }
    }
    let line = |(reason, names): (String, Vec<String>)| {
        let sites: BTreeSet<&str> = names.iter().map(|name| site(name)).collect();
        let empty =
            |name: &&str| !grid.nodes.iter().any(|node| site(&node.name) == *name && is_chosen(&node.name));
        let empty: Vec<&str> = sites.into_iter().filter(empty).collect();
        let nodes = first(names.iter(), 0, NAMED_MAX);
        match &empty[..] {
            [] => format!("goes without {nodes}: {reason}"),
            [site] => format!("goes without site {site}: {nodes}: {reason}"),
            sites => format!("goes without sites {}: {nodes}: {reason}", first(sites.iter(), 0, NAMED_MAX)),
        }
    };
    by_reason.into_iter().map(line).collect()
}

/// Why a node can't take part in a job of this head, if it can't.
fn unfit(head: &Node, node: &Node) -> Option<String> {
    if !node.up {
        return Some("its agent is not attached".to_owned());
    }
    if node.owner != head.owner {
        return Some(format!("its agent works for {:?}, this node's for {:?}", node.owner, head.owner));
    }
    if node.architecture != head.architecture {
        return Some(format!("it is a {} machine, this one {}", node.architecture, head.architecture));
    }
    if node.version != head.version {
        return Some(format!("it runs isthmus {}, this node {}", node.version, head.version));
    }
    None
}

fn job_node(node: &Node) -> JobNode {
    JobNode { name: node.name.clone(), virtual_address: node.virtual_address, slots: node.slots }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Candidates {
        let node = |name: &str, owner: &str, up: bool| Node {
            name: name.to_owned(),
            owner: owner.to_owned(),
            slots: 2,
            up,
            ..Node::default()
        };
        Candidates {
            own: "n1.beta".to_owned(),
            nodes: vec![
                node("n1.alpha", "ada", true),
                node("n2.alpha", "ada", false),
                node("n1.beta", "ada", true),
                node("n1.gamma", "bob", true),
            ],
            sites: vec!["alpha".to_owned(), "empty".to_owned()],
            without_broker: None,
        }
    }

    #[test]
    fn choices() {
        for (name, wanted, want) in [
            ("all that are fit, the head first", &[][..], Ok("n1.beta/2 n1.alpha/2")),
            ("a site", &["alpha"], Ok("n1.beta/0 n1.alpha/2")),
            ("named twice", &["n1.alpha", "alpha", "n1.beta"], Ok("n1.beta/2 n1.alpha/2")),
            ("down", &["n2.alpha"], Err("n2.alpha cannot take part: its agent is not attached")),
            (
                "another owner's",
                &["n1.gamma"],
                Err("n1.gamma cannot take part: its agent works for \"bob\", this node's for \"ada\""),
            ),
            (
                "unknown",
                &["delta"],
                Err(
                    "\"delta\" is neither a node nor a site of this grid; `isthmus status` lists the sites, and \
                     `isthmus status SITE` the nodes of one",
                ),
            ),
            ("a site without nodes of one's own", &["empty", "n1.alpha"], Ok("n1.beta/0 n1.alpha/2")),
        ] {
            let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
            let got = choose(&grid(), &wanted).map(|nodes| {
                nodes.iter().map(|node| format!("{}/{}", node.name, node.slots)).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(
                got.map_err(|error| error.to_string()),
                want.map(str::to_owned).map_err(str::to_owned),
                "{name}"
            );
        }
    }

    #[test]
    fn who_is_left_out_is_named() {
        let mut grid = grid();
        let chosen = choose(&grid, &[]).unwrap();
        let want = "goes without n2.alpha: its agent is not attached";
        assert_eq!(left_out(&grid, &chosen), [want]);
        // A site of which nothing is left.
        for node in ["n1.delta", "n2.delta"] {
            grid.nodes.push(Node { name: node.to_owned(), owner: "ada".to_owned(), ..Node::default() });
        }
        let want = "goes without site delta: n2.alpha, n1.delta, n2.delta: its agent is not attached";
        assert_eq!(left_out(&grid, &chosen), [want]);
        grid.nodes.retain(|node| node.up);
        assert!(left_out(&grid, &chosen).is_empty());
    }

    #[test]
    fn a_head_that_is_not_attached() {
        let grid = Candidates { own: "n9.beta".to_owned(), ..grid() };
        assert_eq!(choose(&grid, &[]), Err(ChoiceError::NotAttached));
    }
}
