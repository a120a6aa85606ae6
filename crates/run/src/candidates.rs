//! The grid's records from which `isthmus run` chooses a job's nodes.

use std::collections::HashSet;

use isthmus_front::format::site;
use isthmus_front::without_broker::join;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{ListReply, Node, NodeFilter, SiteFilter, WithoutBroker};

/// The records that a choice needs, as far as the command line names them.
pub(super) struct Candidates {
    /// Grid name of the agent's own node.
    pub own: String,
    /// The nodes to choose from: the agent's own, those named, and those of the sites named; of all
    /// sites if nothing is named. They are in the order of their virtual addresses.
    pub nodes: Vec<Node>,
    /// The names of the named sites that exist.
    pub sites: Vec<String>,
    /// What a gateway told of itself if it answered in the broker's place; `None` if the broker
    /// answered.
    pub without_broker: Option<WithoutBroker>,
}

impl Candidates {
    /// Fetches the records: nodes that are named, and those of sites that have the own
    /// node's owner.
    ///
    /// # Errors The error of `list`, which fetches all records of one kind.
    pub(super) async fn of<F, E>(wanted: &[String], list: impl Fn(Records) -> F) -> Result<Self, E>
    where
        F: Future<Output = Result<ListReply, E>>,
    {
        let (names, bare): (Vec<_>, Vec<_>) = wanted.iter().cloned().partition(|name| name.contains('.'));
        let (head, found) = with_own(names, &list).await?;
        let ListReply { own, mut nodes, mut without_broker, .. } = found;
        let mut sites = Vec::new();
        if !bare.is_empty() {
            let found = list(Records::Sites(SiteFilter { names: bare.clone() })).await?;
            join(&mut without_broker, found.without_broker);
            sites.extend(found.sites.into_iter().map(|site| site.name));
        }
        // A name of no site may be that of a node of the own site.
        let beside: Vec<_> =
            bare.iter().filter(|name| !sites.contains(name)).map(|name| beside(name, &own)).collect();
        if !beside.is_empty() {
            let filter = NodeFilter { names: beside, ..NodeFilter::default() };
            let found = list(Records::Nodes(filter)).await?;
            join(&mut without_broker, found.without_broker);
            nodes.extend(found.nodes);
        }
        if let Some(head) = head.filter(|_| wanted.is_empty() || !sites.is_empty()) {
            let found = of_owner(&head, sites.clone(), &list).await?;
            join(&mut without_broker, found.without_broker);
            nodes.extend(found.nodes);
        }
        nodes.sort_by_key(|node| node.virtual_address);
        let mut known = HashSet::new();
        nodes.retain(|node| known.insert(node.name.clone()));
        Ok(Self { own, nodes, sites, without_broker })
    }

    /// The grid name that a word of the command line stands for, unless it is a site's: within
    /// a site, a node's name alone is enough.
    pub(super) fn node_name(&self, word: &str) -> String {
        if word.contains('.') { word.to_owned() } else { beside(word, &self.own) }
    }
}

/// The nodes of the own node's owner, at the sites that are chosen for the own node; at all sites if
/// none is. `None` if the grid doesn't list the own node.
///
/// # Errors The error of `list`, which fetches all records of one kind.
pub(crate) async fn own_nodes<F, E>(
    sites: impl FnOnce(&Node) -> Vec<String>,
    list: impl Fn(Records) -> F,
) -> Result<Option<Vec<Node>>, E>
where
    F: Future<Output = Result<ListReply, E>>,
{
    let (Some(head), _) = with_own(Vec::new(), &list).await? else { return Ok(None) };
    Ok(Some(of_owner(&head, sites(&head), &list).await?.nodes))
}

/// Fetches the own node and the nodes of these names. The first is the own node's record, if the grid
/// lists it.
async fn with_own<F, E>(
    names: Vec<String>,
    list: &impl Fn(Records) -> F,
) -> Result<(Option<Node>, ListReply), E>
where
    F: Future<Output = Result<ListReply, E>>,
{
    let filter = NodeFilter { names, own: true, ..NodeFilter::default() };
    let reply = list(Records::Nodes(filter)).await?;
    Ok((reply.nodes.iter().find(|node| node.name == reply.own).cloned(), reply))
}

/// Fetches the nodes of the head's owner at these sites; of all sites if none is named.
async fn of_owner<F, E>(head: &Node, sites: Vec<String>, list: &impl Fn(Records) -> F) -> Result<ListReply, E>
where
    F: Future<Output = Result<ListReply, E>>,
{
    let filter = NodeFilter { sites, owner: head.owner.clone(), ..NodeFilter::default() };
    list(Records::Nodes(filter)).await
}

/// The grid name of the node with this name in the own node's site.
fn beside(node: &str, own: &str) -> String {
    format!("{node}.{}", site(own))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn names_without_a_site_are_sites_or_nodes_of_the_own_site() {
        let asked = RefCell::new(Vec::new());
        let node = |name: &str, virtual_address| Node {
            name: name.to_owned(),
            owner: "ada".to_owned(),
            virtual_address,
            ..Node::default()
        };
        let all = [node("n1.alpha", 1), node("n2.alpha", 2), node("n1.beta", 3), node("n2.beta", 4)];
        let list = |records| {
            let mut reply = ListReply { own: "n1.alpha".to_owned(), ..ListReply::default() };
            match records {
                Records::Nodes(filter) => {
                    asked.borrow_mut().push(filter.names.join(" "));
                    let wanted = |node: &&Node| {
                        filter.names.contains(&node.name)
                            || filter.sites.iter().any(|name| name == site(&node.name))
                            || (filter.own && node.name == "n1.alpha")
                    };
                    reply.nodes = all.iter().filter(wanted).cloned().collect();
                }
                Records::Sites(filter) if filter.names.contains(&"beta".to_owned()) => {
                    let name = "beta".to_owned();
                    reply.sites = vec![isthmus_wire::proto::Site { name, ..Default::default() }];
                }
                _ => {}
            }
            std::future::ready(Ok::<_, Infallible>(reply))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (wanted, names, asks) in [
            ("n2.alpha", "n1.alpha n2.alpha", "n2.alpha"),
            ("n2", "n1.alpha n2.alpha", "; n2.alpha"),
            ("n2,n2.alpha,n1.beta", "n1.alpha n2.alpha n1.beta", "n2.alpha n1.beta; n2.alpha"),
            ("beta,n2", "n1.alpha n2.alpha n1.beta n2.beta", "; n2.alpha; "),
            ("n9", "n1.alpha", "; n9.alpha"),
        ] {
            asked.borrow_mut().clear();
            let words: Vec<_> = wanted.split(',').map(str::to_owned).collect();
            let Ok(found) = runtime.block_on(Candidates::of(&words, list));
            let got: Vec<_> = found.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(got.join(" "), names, "{wanted}");
            assert_eq!(asked.borrow().join("; "), asks, "{wanted}");
        }
    }
}
