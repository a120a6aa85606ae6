//! Which of a batch job's nodes have an agent already: a pure choice.

use std::collections::BTreeMap;

use isthmus_wire::proto;

use super::step::AllocatedNode;

/// The grid names of agents on these nodes of a batch job, by the nodes' names in Slurm. `noted` are
/// those that were started in this job. `listed` are the own site's nodes of this owner. Agents of
/// other batch jobs end with those, and are left out.
pub(super) fn agents(
    hosts: &[&str],
    noted: &[AllocatedNode],
    listed: &[proto::Node],
) -> BTreeMap<String, String> {
    let find = |host: &str| {
        let own = noted.iter().find(|node| node.host == host);
        let own = own.and_then(|own| listed.iter().find(|node| node.up && node.name == own.name));
        let standing = || listed.iter().find(|node| node.up && is_at(node, host) && !is_of_job(node, host));
        own.or_else(standing).map(|node| node.name.clone())
    };
    hosts.iter().filter_map(|host| Some(((*host).to_owned(), find(host)?))).collect()
}

/// Whether a node's agent runs on this host.
fn is_at(node: &proto::Node, host: &str) -> bool {
    first_label(&node.host_name).eq_ignore_ascii_case(first_label(host))
}

/// Whether a node's agent was started in a batch job: its name is then `HOST-OWNER-NUMBER`.
fn is_of_job(node: &proto::Node, host: &str) -> bool {
    let rest = first_label(&node.name).strip_prefix(&first_label(host).to_ascii_lowercase());
    let number = rest.and_then(|rest| rest.strip_prefix('-')).and_then(|rest| rest.rsplit_once('-'));
    number.is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_agents_and_those_of_this_job_are_taken() {
        let node = |name: &str, host: &str, up| proto::Node {
            name: name.to_owned(),
            host_name: host.to_owned(),
            up,
            ..proto::Node::default()
        };
        let listed = [
            node("n1.alpha", "n1", true),
            node("n2-ada-1.alpha", "n2", true),
            node("n2-ada-2.alpha", "n2", true),
            node("n3-ada-1.alpha", "n3", true),
            node("n4-ada.alpha", "N4.alpha.example", true),
            node("n5.alpha", "n5", false),
            node("n6-ada-1.alpha", "n6", false),
        ];
        let noted = |host: &str, name: &str| AllocatedNode {
            host: host.to_owned(),
            name: name.to_owned(),
            socket: "/x".into(),
        };
        let noted = [noted("n2", "n2-ada-2.alpha"), noted("n6", "n6-ada-1.alpha")];
        let found = agents(&["n1", "n2", "n3", "n4", "n5", "n6", "n7"], &noted, &listed);
        let found: Vec<_> = found.iter().map(|(host, name)| format!("{host}={name}")).collect();
        assert_eq!(found, ["n1=n1.alpha", "n2=n2-ada-2.alpha", "n4=n4-ada.alpha"]);
    }
}
