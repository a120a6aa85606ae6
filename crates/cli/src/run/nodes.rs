//! Which of the grid's nodes take part in a job: a pure choice.

use isthmus_wire::proto::{GridReply, JobNode, Node};

/// Why no job can take place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// A name on the command line that is neither.
    #[error("{name:?} is neither a node nor a site of this grid; there are: {known}")]
    NoSuch { name: String, known: String },
    /// A node that was asked for can't take part.
    #[error("{node} cannot take part: {reason}")]
    Unfit { node: String, reason: String },
    /// The agent's own node isn't in the grid's list.
    #[error("this node's own agent is not among the grid's nodes; is it attached? (`isthmus status`)")]
    NotAttached,
}

/// Chooses a job's nodes: those named (nodes or whole sites), or all that are
/// fit; the head first, then in the grid's order. The head is always among
/// them, because the launcher runs there; unless it was asked for it has no
/// slots.
///
/// # Errors
/// [`ChoiceError`].
pub(super) fn choose(grid: &GridReply, wanted: &[String]) -> Result<Vec<JobNode>, ChoiceError> {
    let head =
        grid.nodes.iter().find(|node| node.name == grid.own && node.up).ok_or(ChoiceError::NotAttached)?;
    let mut chosen: Vec<JobNode> = Vec::new();
    let mut add = |node: &Node| {
        if !chosen.iter().any(|other| other.name == node.name) {
            chosen.push(job_node(node));
        }
    };
    if wanted.is_empty() {
        grid.nodes.iter().filter(|node| unfit(head, node).is_none()).for_each(&mut add);
    }
    for name in wanted {
        let mut found = false;
        for node in grid.nodes.iter().filter(|node| node.name == *name || site(node) == name) {
            found = true;
            match unfit(head, node) {
                None => add(node),
                // Of a whole site those that can.
                Some(_) if site(node) == name => {}
                Some(reason) => return Err(ChoiceError::Unfit { node: node.name.clone(), reason }),
            }
        }
        if !found {
            return Err(ChoiceError::NoSuch { name: name.clone(), known: known(grid) });
        }
    }
    match chosen.iter().position(|node| node.name == head.name) {
        Some(index) => chosen[..=index].rotate_right(1),
        None => chosen.insert(0, JobNode { slots: 0, ..job_node(head) }),
    }
    Ok(chosen)
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

fn site(node: &Node) -> &str {
    node.name.split_once('.').map_or("", |(_, site)| site)
}

fn known(grid: &GridReply) -> String {
    grid.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> GridReply {
        let node = |name: &str, owner: &str, up: bool| Node {
            name: name.to_owned(),
            owner: owner.to_owned(),
            slots: 2,
            up,
            ..Node::default()
        };
        GridReply {
            own: "n1.beta".to_owned(),
            nodes: vec![
                node("n1.alpha", "ada", true),
                node("n2.alpha", "ada", false),
                node("n1.beta", "ada", true),
                node("n1.gamma", "bob", true),
            ],
            ..GridReply::default()
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
                    "\"delta\" is neither a node nor a site of this grid; there are: n1.alpha, n2.alpha, n1.beta, n1.gamma",
                ),
            ),
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
    fn a_head_that_is_not_attached() {
        let grid = GridReply { own: "n9.beta".to_owned(), ..grid() };
        assert_eq!(choose(&grid, &[]), Err(ChoiceError::NotAttached));
    }
}
