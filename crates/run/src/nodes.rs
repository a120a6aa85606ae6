//! Which of the grid's nodes take part in a job: a pure choice.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use isthmus_front::format::{count, site};
use isthmus_front::output::one_line;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{JobNode, ListReply, Node};
use isthmus_wire::text::first;

use super::candidates::Candidates;

/// Most nodes or sites that a line names.
const NAMED_MAX: usize = 8;

/// What to do about an agent that isn't attached: it may run, with a clock that is wrong.
const UNATTACHED: &str = "`isthmus status` there says why; `isthmus up` starts one that doesn't run";

/// Why a job can't start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// A name on the command line that is neither a node nor a site.
    #[error(
        "{name:?} is neither a node nor a site of this grid; `isthmus status` lists the sites, and \
         `isthmus status SITE` the nodes of one"
    )]
    NoSuch { name: String },
    /// A name on the command line that the asked gateway doesn't know. Only it was asked, as the
    /// broker is away, and it doesn't know the whole grid.
    #[error(
        "{name:?} is not known here: the broker can't be reached, and {gateway} knows only its own site's nodes \
         and those that it heard of before"
    )]
    NotKnown { name: String, gateway: String },
    /// A node on the command line can't take part.
    #[error("{node} cannot take part: {reason}")]
    Unfit { node: String, reason: Reason },
    /// Fewer nodes than wanted can take part.
    #[error("not started: {text}")]
    TooFew {
        text: String,
        /// Whether another try may have another result: one of the nodes may have just been lost.
        may_pass: bool,
    },
    /// The agent's own node isn't in the grid's list.
    #[error("this node's own agent is not among the grid's nodes; is it attached? (`isthmus status`)")]
    NotAttached,
}

impl ChoiceError {
    /// Whether another try may have another result: agents are started again, and attach again.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::NotAttached | Self::NotKnown { .. } => true,
            Self::NoSuch { .. } => false,
            Self::Unfit { reason, .. } => reason.may_pass,
            Self::TooFew { may_pass, .. } => *may_pass,
        }
    }
}

/// Why a node can't take part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reason {
    what: String,
    remedy: &'static str,
    may_pass: bool,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.what, self.remedy)
    }
}

/// The nodes of the job that `isthmus run` would start with these names.
///
/// # Errors The error of `list`, or [`ChoiceError`].
pub async fn chosen<F, E>(wanted: &[String], list: impl Fn(Records) -> F) -> anyhow::Result<Vec<JobNode>>
where
    F: Future<Output = Result<ListReply, E>>,
    E: Into<anyhow::Error>,
{
    let candidates = Candidates::of(wanted, list).await.map_err(Into::into)?;
    Ok(choose(&candidates, wanted, None)?)
}

/// Chooses a job's nodes: those named (nodes or whole sites), or all that are
/// fit. The head comes first, then the others by address. The head is always
/// among them, because the launcher runs there; if it isn't named, it has no
/// slots. With `least`, a node of the same owner that is named may be unfit as long as so
/// many are left; else none may. Of sites, and without names, those that are fit are taken,
/// at least one.
///
/// # Errors
/// [`ChoiceError`].
pub(super) fn choose(
    grid: &Candidates,
    wanted: &[String],
    least: Option<u32>,
) -> Result<Vec<JobNode>, ChoiceError> {
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
        let fit = grid.nodes.iter().filter(|node| is_free(node) && unfit(head, node).is_none());
        fit.for_each(|node| add(&job_node(node), &node.name));
    }
    for word in wanted {
        let is_site = grid.sites.contains(word);
        let name = grid.node_name(word);
        let mut found = is_site;
        let is_meant = |node: &&Node| if is_site { site(&node.name) == word } else { node.name == name };
        for node in grid.nodes.iter().filter(is_meant) {
            found = true;
            match unfit(head, node) {
                None if is_site && !is_free(node) => {}
                None => add(&job_node(node), &node.name),
                // A node of another owner can never take part.
                Some(_) if is_site || (least.is_some() && may_be_own(head, node)) => {}
                Some(reason) => return Err(ChoiceError::Unfit { node: node.name.clone(), reason }),
            }
        }
        if !found {
            let name = word.clone();
            return Err(match &grid.without_broker {
                Some(answer) => ChoiceError::NotKnown { name, gateway: one_line(&answer.gateway) },
                None => ChoiceError::NoSuch { name },
            });
        }
    }
    let least = least.unwrap_or(1);
    if chosen.len() < least as usize {
        let may_pass = lacking(grid, &chosen).iter().any(|(_, reason)| reason.may_pass);
        return Err(ChoiceError::TooFew { text: too_few(grid, &chosen, least), may_pass });
    }
    match chosen.iter().position(|node| node.name == head.name) {
        Some(index) => chosen[..=index].rotate_right(1),
        None => chosen.insert(0, JobNode { slots: 0, ..job_node(head) }),
    }
    Ok(chosen)
}

/// A message about a job that can't start: how many nodes there are, and why the others can't take
/// part.
fn too_few(grid: &Candidates, chosen: &[JobNode], least: u32) -> String {
    let there = match chosen.len() as u64 {
        0 => "no node can take part".to_owned(),
        there => format!("only {} can take part, and --min-nodes wants {least}", count(there, "node")),
    };
    let lower = if least > 1 { ", or give a smaller --min-nodes" } else { "" };
    match &lacking(grid, chosen)[..] {
        [] => format!("{there}: name other nodes with --nodes{lower}"),
        lacking => {
            let each = lacking.iter().map(|(names, reason)| format!("without {names}: {reason}"));
            format!("{there}; {}{lower}", each.collect::<Vec<_>>().join("; "))
        }
    }
}

/// The line about nodes that a job goes without and would have if they were fit; `None` if there
/// are none.
pub(super) fn left_out(grid: &Candidates, chosen: &[JobNode]) -> Option<String> {
    let each = lacking(grid, chosen);
    let each = each.iter().map(|(names, reason)| format!("without {names}: {}", reason.what));
    let all = each.collect::<Vec<_>>().join("; ");
    (!all.is_empty()).then(|| format!("goes {all}"))
}

/// Nodes that can't take part, in words, for each reason. Sites without any node that can are named
/// as well.
fn lacking(grid: &Candidates, chosen: &[JobNode]) -> Vec<(String, Reason)> {
    let Some(head) = grid.nodes.iter().find(|node| node.name == grid.own) else { return Vec::new() };
    let is_chosen = |name: &str| chosen.iter().any(|node| node.name == name);
    let mut by_reason: BTreeMap<Reason, Vec<String>> = BTreeMap::new();
    // Nodes of other owners were never meant, nor those of pilots and login nodes.
    let is_meant = |node: &&Node| may_be_own(head, node) && node.pilot.is_empty() && node.submits.is_empty();
    for node in grid.nodes.iter().filter(is_meant) {
        if let Some(reason) = unfit(head, node) {
            by_reason.entry(reason).or_default().push(node.name.clone());
        }
    }
    let text = |(reason, names): (Reason, Vec<String>)| {
        let sites: BTreeSet<&str> = names.iter().map(|name| site(name)).collect();
        let empty =
            |name: &&str| !grid.nodes.iter().any(|node| site(&node.name) == *name && is_chosen(&node.name));
        let empty: Vec<&str> = sites.into_iter().filter(empty).collect();
        let nodes = first(names.iter(), 0, NAMED_MAX);
        let text = match &empty[..] {
            [] => nodes,
            [site] => format!("site {site}: {nodes}"),
            sites => format!("sites {}: {nodes}", first(sites.iter(), 0, NAMED_MAX)),
        };
        (text, reason)
    };
    by_reason.into_iter().map(text).collect()
}

/// Whether a job may take a node that isn't named. The nodes of a pilot are there for one job, and a
/// login node starts no ranks.
fn is_free(node: &Node) -> bool {
    node.pilot.is_empty() && node.slots > 0
}

/// Whether a node may have the head's owner. The owner of a node that hasn't attached since the
/// broker started is unknown.
fn may_be_own(head: &Node, node: &Node) -> bool {
    node.owner == head.owner || node.owner.is_empty()
}

/// Why a node can't take part in a job of this head; `None` if it can.
fn unfit(head: &Node, node: &Node) -> Option<Reason> {
    let others = "name other nodes with --nodes";
    let reason = |what, remedy| Some(Reason { what, remedy, may_pass: false });
    if !node.up {
        let what = "its agent is not attached".to_owned();
        return Some(Reason { what, remedy: UNATTACHED, may_pass: true });
    }
    if node.owner != head.owner {
        let what = format!("its agent works for {:?}, this node's for {:?}", node.owner, head.owner);
        return reason(what, others);
    }
    if node.architecture != head.architecture {
        return reason(
            format!("it is a {} machine, this one {}", node.architecture, head.architecture),
            others,
        );
    }
    if node.version != head.version {
        let what = format!("it runs isthmus {}, this node {}", node.version, head.version);
        return reason(what, "install the same version on both");
    }
    None
}

fn job_node(node: &Node) -> JobNode {
    JobNode { name: node.name.clone(), virtual_address: node.virtual_address, slots: node.slots }
}
