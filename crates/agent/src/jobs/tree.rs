//! The tree of a job's nodes. Its head holds the other nodes of its own site and one
//! node of each other site, which holds the rest of that site. So a start or an end
//! goes over the wide area once per site.
//!
//! All nodes of a job have the same list of nodes, the head first, and so compute
//! the same tree.

use isthmus_wire::GridName;
use isthmus_wire::settings::Host;

/// How many nodes of a site tell the head of the loss of the node that holds them. One of them may
/// be hit as well.
const WITNESSES: usize = 2;

/// The first node of each site, its lead. The head is the lead of its own site.
pub(crate) fn leads(nodes: &[Host]) -> Vec<&Host> {
    let mut leads: Vec<&Host> = Vec::new();
    for host in nodes {
        if !leads.iter().any(|lead| lead.name.site == host.name.site) {
            leads.push(host);
        }
    }
    leads
}

/// Whether a node is the job's head.
pub(crate) fn is_head(nodes: &[Host], own: &GridName) -> bool {
    nodes.first().is_some_and(|head| head.name == *own)
}

/// The nodes that a node holds.
pub(crate) fn children<'a>(nodes: &'a [Host], own: &GridName) -> Vec<&'a Host> {
    let leads = leads(nodes);
    let mut children = Vec::new();
    if leads.iter().any(|lead| lead.name == *own) {
        children.extend(nodes.iter().filter(|host| host.name.site == own.site && host.name != *own));
    }
    if is_head(nodes, own) {
        children.extend(leads.into_iter().filter(|lead| lead.name.site != own.site));
    }
    children
}

/// The node that holds a node; none holds the head.
pub(crate) fn holder<'a>(nodes: &'a [Host], own: &GridName) -> Option<&'a Host> {
    let lead = nodes.iter().find(|host| host.name.site == own.site)?;
    let holder = if lead.name == *own { nodes.first()? } else { lead };
    (holder.name != *own).then_some(holder)
}

/// Whether a node tells the head itself when the node that holds it is lost. The first nodes below
/// the lead of each site but the head's do.
pub(crate) fn is_witness(nodes: &[Host], own: &GridName) -> bool {
    let is_below = |host: &&Host| host.name.site == own.site;
    let beside_head = nodes.first().is_none_or(|head| head.name.site == own.site);
    !beside_head && nodes.iter().filter(is_below).skip(1).take(WITNESSES).any(|host| host.name == *own)
}

/// The node that forwards a call to another one: that node itself within a site, else
/// the lead of its site.
pub(crate) fn next_hop<'a>(nodes: &'a [Host], own: &GridName, target: &'a Host) -> &'a Host {
    if target.name.site == own.site {
        return target;
    }
    leads(nodes).into_iter().find(|lead| lead.name.site == target.name.site).unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_wire::VirtualAddress;

    /// Nodes at three sites: the head at alpha, the others in no order.
    fn nodes() -> Vec<Host> {
        let names = ["n2.alpha", "n1.beta", "n1.alpha", "n1.gamma", "n2.beta", "n3.beta"];
        let host = |(number, name): (u8, &&str)| Host {
            address: VirtualAddress::new([240, 64, 0, number + 1].into()).unwrap(),
            name: name.parse().unwrap(),
        };
        (0..).zip(&names).map(host).collect()
    }

    #[test]
    fn children_of_each_node() {
        let nodes = nodes();
        for (own, want) in [
            ("n2.alpha", &["n1.alpha", "n1.beta", "n1.gamma"][..]),
            ("n1.beta", &["n2.beta", "n3.beta"]),
            ("n1.alpha", &[]),
            ("n2.beta", &[]),
            ("n1.gamma", &[]),
        ] {
            let children = children(&nodes, &own.parse().unwrap());
            let names: Vec<_> = children.iter().map(|host| host.name.to_string()).collect();
            assert_eq!(names, want, "{own}");
        }
    }

    #[test]
    fn every_node_but_the_head_is_held_by_one() {
        let nodes = nodes();
        for host in &nodes {
            let holders: Vec<_> =
                nodes.iter().filter(|other| children(&nodes, &other.name).contains(&host)).collect();
            let own = holder(&nodes, &host.name);
            assert_eq!(holders, own.into_iter().collect::<Vec<_>>(), "{}", host.name);
            assert_eq!(own.is_none(), is_head(&nodes, &host.name));
        }
    }

    #[test]
    fn the_first_nodes_below_another_site_s_are_witnesses() {
        let mut nodes = nodes();
        let host = |number, name: &str| Host {
            address: VirtualAddress::new([240, 64, 1, number].into()).unwrap(),
            name: name.parse().unwrap(),
        };
        nodes.push(host(9, "n9.beta"));
        let witnesses = nodes.iter().filter(|host| is_witness(&nodes, &host.name));
        let names: Vec<_> = witnesses.map(|host| host.name.to_string()).collect();
        assert_eq!(names, ["n2.beta", "n3.beta"]);
    }

    #[test]
    fn calls_reach_their_node_within_two_hops() {
        let nodes = nodes();
        for from in &nodes {
            for to in &nodes {
                let mut at = &from.name;
                let mut hops = 0;
                while *at != to.name {
                    at = &next_hop(&nodes, at, to).name;
                    hops += 1;
                }
                assert!(hops <= 2, "{} to {}: {hops}", from.name, to.name);
            }
        }
    }
}
