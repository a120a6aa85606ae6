//! What a grid offers to a profile: nodes with agents, and those that batch schedulers have. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_front::format::site;
use isthmus_matching::{Links, MOST_CLASSES, NodeClass, Offer, Site};
use isthmus_profile::{Link, Tag};
use isthmus_wire::Label;
use isthmus_wire::proto::{self, JobNode, SitePath};

/// What the network within a site is taken for: nobody measures it.
pub(super) const WITHIN: Link =
    Link { rtt: Some(Duration::from_millis(1)), bytes_per_second: Some(125_000_000) };
/// How long it takes until a free node of a scheduler has an agent. It is only compared.
const STARTS: Duration = Duration::from_secs(10);

/// A node with an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standing {
    pub node: JobNode,
    pub architecture: String,
    /// The features that it has.
    pub tags: Vec<Tag>,
}

/// A site's scheduler, which the user's agent there asks for nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scheduler {
    /// The node of the agent that submits.
    pub submitter: proto::Node,
    /// The scheduler's name, for people.
    pub name: String,
    /// The nodes that a job may have: those of the queue that it would be in.
    pub classes: Vec<proto::NodeClass>,
}

/// Which nodes of schedulers are on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Those that are free.
    Now,
    /// All that are in service.
    Later,
}

/// Nodes that are alike, at one site.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Alike {
    /// They have agents.
    Standing(Vec<JobNode>),
    /// The scheduler at this place of the list has them.
    Scheduler(usize),
}

/// What is offered, and what each class of nodes is.
#[derive(Debug)]
pub(super) struct Offered {
    pub offer: Offer,
    /// For each site of the offer, what each of its classes is.
    pub alike: Vec<Vec<Alike>>,
}

impl Offered {
    /// What nodes and schedulers offer.
    pub(super) fn new(
        standing: &[Standing],
        schedulers: &[Scheduler],
        paths: &[SitePath],
        when: When,
    ) -> Self {
        let mut sites: BTreeMap<String, Vec<(NodeClass, Alike)>> = BTreeMap::new();
        for (class, nodes) in alike(standing) {
            let of_site = nodes.first().map(|node| site(&node.name).to_owned()).unwrap_or_default();
            sites.entry(of_site).or_default().push((class, Alike::Standing(nodes)));
        }
        for (index, scheduler) in schedulers.iter().enumerate() {
            let classes = scheduler.classes.iter();
            let classes = classes.filter_map(|class| of_scheduler(class, &scheduler.submitter, when));
            let all = sites.entry(site(&scheduler.submitter.name).to_owned()).or_default();
            all.extend(classes.map(|class| (class, Alike::Scheduler(index))));
        }
        let mut offered = Self { offer: Offer::default(), alike: Vec::new() };
        for (name, mut classes) in sites {
            let Ok(name) = name.parse::<Label>() else { continue };
            // The largest ones are the most useful ones.
            let cores = |class: &NodeClass| u64::from(class.nodes) * u64::from(class.cores);
            classes.sort_by_key(|(class, _)| std::cmp::Reverse(cores(class)));
            classes.truncate(MOST_CLASSES);
            let (classes, alike): (Vec<_>, Vec<_>) = classes.into_iter().unzip();
            offered.offer.sites.push(Site { name, inside: WITHIN, classes });
            offered.alike.push(alike);
        }
        let place = |name: &str| offered.offer.sites.iter().position(|site| site.name.as_str() == name);
        let mut links = Links::unknown(offered.offer.sites.len());
        for path in paths {
            if let (Some(from), Some(to)) = (place(&path.from), place(&path.to)) {
                let known = |value: u64| (value > 0).then_some(value);
                let rtt = known(path.round_trip_us).map(Duration::from_micros);
                links.set(from, to, Link { rtt, bytes_per_second: known(path.bytes_per_second) });
            }
        }
        offered.offer.links = links;
        offered
    }
}

/// The classes of nodes with agents. What isn't known of their memory is checked before the program
/// starts.
fn alike(standing: &[Standing]) -> Vec<(NodeClass, Vec<JobNode>)> {
    let mut groups: BTreeMap<(&str, u32, &str, &[Tag]), Vec<JobNode>> = BTreeMap::new();
    for Standing { node, architecture, tags } in standing.iter().filter(|standing| standing.node.slots > 0) {
        let alike = (site(&node.name), node.slots, architecture.as_str(), tags.as_slice());
        groups.entry(alike).or_default().push(node.clone());
    }
    let class = |((_, cores, architecture, tags), nodes): ((&str, u32, &str, &[Tag]), Vec<JobNode>)| {
        let class = NodeClass {
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            cores,
            memory_bytes: Some(u64::MAX),
            architecture: architecture.parse().ok(),
            tags: tags.to_vec(),
            start: Some(Duration::ZERO),
        };
        (class, nodes)
    };
    groups.into_iter().map(class).collect()
}

/// A scheduler's nodes; `None` if there are none then. They run the program of the agent that submits,
/// and so have its architecture.
fn of_scheduler(class: &proto::NodeClass, submitter: &proto::Node, when: When) -> Option<NodeClass> {
    let (nodes, start) = match when {
        When::Now => (class.nodes_free, Some(STARTS)),
        When::Later => (class.nodes, None),
    };
    let mut tags: Vec<Tag> = class.features.iter().filter_map(|feature| feature.parse().ok()).collect();
    tags.sort();
    tags.dedup();
    (nodes > 0 && class.cores > 0).then(|| NodeClass {
        nodes,
        cores: class.cores,
        memory_bytes: (class.memory_bytes > 0).then_some(class.memory_bytes),
        architecture: submitter.architecture.parse().ok(),
        tags,
        start,
    })
}

/// The classes of the queue that a job would be in: the one that is named, or else the scheduler's own
/// choice. Where that may be one of several, it is the largest: nodes may be in all of them.
///
/// # Errors
/// The queues that there are, if that isn't one of them.
pub(super) fn of_queue(
    classes: Vec<proto::NodeClass>,
    queue: Option<&str>,
) -> Result<Vec<proto::NodeClass>, Vec<String>> {
    let mut queues: Vec<String> = classes.iter().map(|class| class.queue.clone()).collect();
    let is_meant = |class: &proto::NodeClass| queue.map_or(class.default, |queue| class.queue == queue);
    let mut found: Vec<_> = classes.into_iter().filter(is_meant).collect();
    let mut cores: BTreeMap<String, u64> = BTreeMap::new();
    for class in &found {
        *cores.entry(class.queue.clone()).or_default() += u64::from(class.nodes) * u64::from(class.cores);
    }
    if let Some((largest, _)) = cores.into_iter().max_by_key(|(_, cores)| *cores) {
        found.retain(|class| class.queue == largest);
    }
    if found.is_empty() && !queues.is_empty() {
        queues.sort();
        queues.dedup();
        return Err(queues);
    }
    Ok(found)
}

/// The classes whose jobs may take so long.
///
/// # Errors
/// The longest time of a job, if that is too short everywhere.
pub(super) fn that_last(
    classes: Vec<proto::NodeClass>,
    time: Option<Duration>,
) -> Result<Vec<proto::NodeClass>, Duration> {
    let most = |class: &proto::NodeClass| Duration::from_secs(class.time_seconds.into());
    let lasts =
        |class: &proto::NodeClass| most(class).is_zero() || time.is_none_or(|time| time <= most(class));
    let longest = classes.iter().map(most).max();
    let found: Vec<_> = classes.into_iter().filter(lasts).collect();
    match longest {
        Some(longest) if found.is_empty() => Err(longest),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(name: &str, slots: u32) -> Standing {
        let node = JobNode { name: name.to_owned(), slots, ..JobNode::default() };
        Standing { node, architecture: "x86_64".to_owned(), tags: Vec::new() }
    }

    fn class(queue: &str, nodes: (u32, u32)) -> proto::NodeClass {
        proto::NodeClass {
            queue: queue.to_owned(),
            default: queue == "main",
            nodes: nodes.0,
            nodes_free: nodes.1,
            cores: 16,
            memory_bytes: 1 << 36,
            time_seconds: 3600,
            features: vec!["gpu".to_owned(), "not,a.label".to_owned(), "GPU".to_owned()],
            ..proto::NodeClass::default()
        }
    }

    fn scheduler(site: &str) -> Scheduler {
        let submitter = proto::Node {
            name: format!("login.{site}"),
            architecture: "x86_64".to_owned(),
            ..proto::Node::default()
        };
        Scheduler { submitter, name: "Slurm".to_owned(), classes: vec![class("main", (4, 1))] }
    }

    #[test]
    fn nodes_that_are_alike_are_one_class() {
        let nodes = [
            standing("n1.a", 4),
            standing("n2.a", 4),
            standing("n3.a", 8),
            standing("fe.a", 0),
            standing("n1.b", 4),
        ];
        let path =
            SitePath { from: "a".to_owned(), to: "b".to_owned(), round_trip_us: 10_600, bytes_per_second: 0 };
        let offered = Offered::new(&nodes, &[scheduler("b")], &[path], When::Now);
        let counts: Vec<Vec<_>> = offered
            .offer
            .sites
            .iter()
            .map(|site| site.classes.iter().map(|class| (class.nodes, class.cores)).collect())
            .collect();
        assert_eq!(counts, [vec![(2, 4), (1, 8)], vec![(1, 16), (1, 4)]]);
        assert_eq!(offered.alike[1][0], Alike::Scheduler(0));
        let link = offered.offer.links.between(1, 0);
        assert_eq!(link, Link { rtt: Some(Duration::from_micros(10_600)), bytes_per_second: None });
    }

    #[test]
    fn nodes_of_a_scheduler_are_there_now_or_later() {
        let offer = |when| {
            let sites = Offered::new(&[], &[scheduler("b")], &[], when).offer.sites;
            sites[0].classes.first().map(|class| (class.nodes, class.start.is_some(), class.tags.len()))
        };
        assert_eq!(offer(When::Now), Some((1, true, 2)));
        assert_eq!(offer(When::Later), Some((4, false, 2)));
    }

    #[test]
    fn nodes_are_had_for_as_long_as_jobs_may_take() {
        let count = |time: Option<u64>| {
            let classes =
                vec![class("main", (4, 1)), proto::NodeClass { time_seconds: 60, ..class("main", (1, 1)) }];
            that_last(classes, time.map(Duration::from_secs)).map(|found| found.len())
        };
        assert_eq!(count(None), Ok(2));
        assert_eq!(count(Some(60)), Ok(2));
        assert_eq!(count(Some(3600)), Ok(1));
        assert_eq!(count(Some(3601)), Err(Duration::from_secs(3600)));
        assert_eq!(that_last(Vec::new(), Some(Duration::MAX)), Ok(Vec::new()));
    }

    #[test]
    fn a_job_is_in_one_queue() {
        let classes = || vec![class("main", (1, 1)), class("short", (2, 2))];
        assert_eq!(of_queue(classes(), None).unwrap(), [class("main", (1, 1))]);
        assert_eq!(of_queue(classes(), Some("short")).unwrap(), [class("short", (2, 2))]);
        assert_eq!(of_queue(classes(), Some("long")).unwrap_err(), ["main", "short"]);
        assert!(of_queue(Vec::new(), Some("long")).unwrap().is_empty());
        // Grid Engine chooses among all.
        let any = classes().into_iter().map(|class| proto::NodeClass { default: true, ..class }).collect();
        assert_eq!(of_queue(any, None).unwrap().len(), 1);
    }
}
