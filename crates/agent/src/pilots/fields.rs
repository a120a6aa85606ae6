//! The messages about pilots, and the values that they stand for.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use isthmus_batch::{Estimate, NodeClass, Request, Word};
use isthmus_pilot::{Arrived, Phase, PilotId, Status as Known, Wanted};
use isthmus_service::clock::seconds;
use isthmus_wire::proto::{self, estimate, pilot_down};
use tonic::Status;

/// Most features that a node must have.
const MOST_TAGS: usize = 32;
/// Most nodes that one message tells of: it has 256 KiB at most.
const AT_ONCE: usize = 500;
/// Most classes of nodes that are told.
const MOST_CLASSES: usize = 1000;
/// Most characters of a scheduler's name for a host, and of a feature that is told.
const LONGEST: usize = 255;

/// Reads a pilot's id.
///
/// # Errors `INVALID_ARGUMENT` if it isn't one.
pub(super) fn id(bytes: &[u8]) -> Result<PilotId, Status> {
    let id = bytes.try_into().map(PilotId);
    id.map_err(|_| Status::invalid_argument("a pilot's id has 16 bytes"))
}

/// Reads what is ordered.
///
/// # Errors `INVALID_ARGUMENT` if no scheduler can be asked for it.
pub(super) fn wanted(order: &proto::PilotOrder) -> Result<Wanted, Status> {
    let nodes = order.wanted.as_ref().ok_or_else(|| Status::invalid_argument("no nodes are asked for"))?;
    let wait = Duration::from_secs(order.wait_seconds.into());
    Ok(Wanted { request: request(nodes)?, wait: (!wait.is_zero()).then_some(wait) })
}

/// Reads what a scheduler is asked for.
///
/// # Errors `INVALID_ARGUMENT` if no scheduler can be asked for it.
pub(super) fn request(wanted: &proto::NodesWanted) -> Result<Request, Status> {
    let invalid = |reason: String| Status::invalid_argument(reason);
    let word = |text: &str| text.parse::<Word>().map_err(|error| invalid(error.to_string()));
    let optional = |text: &str| (!text.is_empty()).then(|| word(text)).transpose();
    if wanted.tags.len() > MOST_TAGS {
        return Err(invalid(format!("{} features, and {MOST_TAGS} is the most", wanted.tags.len())));
    }
    Ok(Request {
        nodes: NonZeroU32::new(wanted.nodes).ok_or_else(|| invalid("0 nodes are asked for".to_owned()))?,
        time: (wanted.time_seconds > 0).then(|| Duration::from_secs(wanted.time_seconds.into())),
        cores: NonZeroU32::new(wanted.cores),
        memory_bytes: (wanted.memory_bytes > 0).then_some(wanted.memory_bytes),
        tags: wanted.tags.iter().map(|tag| word(tag)).collect::<Result<_, _>>()?,
        queue: optional(&wanted.queue)?,
        reservation: optional(&wanted.reservation)?,
        account: optional(&wanted.account)?,
    })
}

/// Reads the name that a node has at its scheduler.
///
/// # Errors `INVALID_ARGUMENT` if it can't be one.
pub(super) fn host(text: &str) -> Result<String, Status> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !text.is_empty() && text.len() <= LONGEST && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(Status::invalid_argument("the host's name at the scheduler is none"))
    }
}

/// The messages that tell what is known of a pilot. `told` has the nodes of earlier messages, and gets
/// those of these.
pub(super) fn down(scheduler: &str, known: &Known, told: &mut Vec<Arrived>) -> Vec<proto::PilotDown> {
    let now = SystemTime::now();
    let in_seconds = |time: &SystemTime| time.duration_since(now).unwrap_or_default().as_secs();
    let phase = match &known.phase {
        Phase::Submitting => None,
        Phase::Waits { reason, start } => {
            let (reason, starts_in_seconds) = (reason.clone(), start.as_ref().map(in_seconds));
            Some(pilot_down::Phase::Waits(proto::PilotWaits { reason, starts_in_seconds }))
        }
        Phase::Runs { nodes, end, suspended, ending } => Some(pilot_down::Phase::Runs(proto::PilotRuns {
            nodes: *nodes,
            ends_in_seconds: end.as_ref().map(in_seconds),
            suspended: *suspended,
            ending: *ending,
        })),
        Phase::Ends(why) => Some(pilot_down::Phase::Ends(why.to_string())),
        Phase::Ended(why) => Some(pilot_down::Phase::Ended(why.to_string())),
    };
    let gone: Vec<_> = told.iter().filter(|node| !known.arrived.contains(node)).cloned().collect();
    told.retain(|node| known.arrived.contains(node));
    let gone: Vec<String> = gone.into_iter().map(|node| node.host).take(AT_ONCE).collect();
    let message = |nodes: &[Arrived]| proto::PilotDown {
        scheduler: scheduler.to_owned(),
        job: known.job.as_ref().map(|job| job.id.to_string()).unwrap_or_default(),
        phase: phase.clone(),
        arrived: nodes
            .iter()
            .map(|Arrived { name, host }| proto::PilotNode { name: name.clone(), host: host.clone() })
            .collect(),
        trouble: known.trouble.clone().unwrap_or_default(),
        answers: known.answers,
        gone: gone.clone(),
    };
    let new: Vec<_> = known.arrived.iter().filter(|node| !told.contains(node)).cloned().collect();
    let messages = match new.as_slice() {
        [] => vec![message(&[])],
        new => new.chunks(AT_ONCE).map(message).collect(),
    };
    told.extend(new);
    messages
}

/// The message that tells a class of nodes.
fn class(class: NodeClass) -> proto::NodeClass {
    let short = |text: String| text.chars().take(LONGEST).collect();
    proto::NodeClass {
        queue: class.queue.map(short).unwrap_or_default(),
        default: class.default,
        nodes: class.nodes,
        nodes_free: class.nodes_free,
        cores: class.cores,
        cores_free: class.cores_free,
        memory_bytes: class.memory_bytes,
        time_seconds: class.time.map_or(0, seconds),
        features: class.features.into_iter().take(MOST_TAGS).map(short).collect(),
    }
}

/// The reply that tells which nodes there are.
pub(super) fn capacity(scheduler: &str, classes: Vec<NodeClass>) -> proto::SchedulerReply {
    let classes = classes.into_iter().take(MOST_CLASSES).map(class).collect();
    proto::SchedulerReply { scheduler: scheduler.to_owned(), classes, estimate: None }
}

/// The reply that tells when nodes could start.
pub(super) fn estimated(scheduler: &str, estimate: Estimate) -> proto::SchedulerReply {
    let kind = match estimate {
        Estimate::At(start) => {
            let left = start.duration_since(SystemTime::now()).unwrap_or_default();
            estimate::Kind::StartsInSeconds(left.as_secs())
        }
        Estimate::Unknown { reason } => estimate::Kind::Unknown(reason),
        Estimate::Never { reason } => estimate::Kind::Never(reason),
    };
    let estimate = Some(proto::Estimate { kind: Some(kind) });
    proto::SchedulerReply { scheduler: scheduler.to_owned(), classes: Vec::new(), estimate }
}

#[cfg(test)]
mod tests {
    use isthmus_batch::End;
    use isthmus_pilot::Why;

    use super::*;

    fn nodes(number: usize) -> Vec<Arrived> {
        let node = |number| Arrived { name: format!("n{number}-ada-1.alpha"), host: format!("n{number}") };
        (0..number).map(node).collect()
    }

    #[test]
    fn each_node_is_told_once() {
        let mut known = Known {
            phase: Phase::Runs { nodes: 2, end: None, suspended: false, ending: false },
            ..Known::default()
        };
        let mut told = Vec::new();
        let counts = |messages: Vec<proto::PilotDown>| -> Vec<_> {
            messages.iter().map(|message| message.arrived.len()).collect()
        };
        assert_eq!(counts(down("Slurm", &known, &mut told)), [0]);
        known.arrived = nodes(1);
        assert_eq!(counts(down("Slurm", &known, &mut told)), [1]);
        assert_eq!(counts(down("Slurm", &known, &mut told)), [0]);
        known.arrived = Vec::new();
        let messages = down("Slurm", &known, &mut told);
        assert_eq!((messages[0].gone.clone(), told.len()), (vec!["n0".to_owned()], 0));
        known.arrived = nodes(1);
        assert_eq!(counts(down("Slurm", &known, &mut told)), [1]);
        known.arrived = nodes(1 + AT_ONCE + 1);
        assert_eq!(counts(down("Slurm", &known, &mut told)), [AT_ONCE, 1]);
    }

    #[test]
    fn an_end_has_its_reason() {
        let phase = Phase::Ended(Why::Job(End::Cancelled { by: Some("ada".to_owned()) }));
        let messages = down("Slurm", &Known { phase, ..Known::default() }, &mut Vec::new());
        let want = pilot_down::Phase::Ended("it was cancelled by ada".to_owned());
        assert_eq!(messages[0].phase, Some(want));
    }

    #[test]
    fn what_no_scheduler_can_be_asked_for_is_refused() {
        let good = proto::NodesWanted { nodes: 2, tags: vec!["gpu".to_owned()], ..Default::default() };
        assert_eq!(request(&good).unwrap().tags.len(), 1);
        for (case, wanted) in [
            ("no nodes", proto::NodesWanted { nodes: 0, ..good.clone() }),
            ("an option", proto::NodesWanted { queue: "-p".to_owned(), ..good.clone() }),
            ("a shell's words", proto::NodesWanted { account: "a;b".to_owned(), ..good.clone() }),
            ("too many", proto::NodesWanted { tags: vec!["a".to_owned(); 33], ..good.clone() }),
        ] {
            assert!(request(&wanted).is_err(), "{case}");
        }
        assert!(id(&[1; 15]).is_err() && host("a b").is_err() && host("n1.alpha").is_ok());
        assert!(wanted(&proto::PilotOrder::default()).is_err());
    }
}
