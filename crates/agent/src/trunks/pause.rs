//! A job outlives a cut between two sites: it waits. Silence of a whole site may end any
//! time; whether the node behind it is gone, its gateway knows. A trunk counts as cut from the
//! moment on from which what is sent over it doesn't arrive, whether carriers open or not.

use std::sync::Arc;
use std::time::Duration;

use isthmus_rpc::enums::dial_name;
use isthmus_service::Deadline;
use isthmus_service::clock::{millis, seconds};
use isthmus_wire::proto::{SiteBack, SiteSilent, job_news};
use isthmus_wire::settings::Host;
use tokio::time::{sleep, sleep_until, timeout};

use super::registry::Standing;
use crate::jobs::node::Node;

/// How long a cut lasts before the user is told of it.
const TOLD: Duration = Duration::from_secs(3);
/// By how much longer a trunk may be cut before the job is lost, if the trunk isn't one that holds
/// the job together. This is longer than a cut of a trunk that does may take to be noticed.
const BESIDE: Duration = Duration::from_secs(6);
/// First and longest pause between questions whether the node is gone; the pauses double. For an
/// agent that has ended, the gateway knows that at once.
const ASK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// Why a job must not wait any longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The node's agent is gone, as its gateway says.
    Gone,
    /// The cut has lasted too long, for this time. The text tells how the last connection broke, if
    /// it did.
    Silent(Duration, Option<String>),
    /// Carriers have opened for too long, for this time, while what was sent over them has
    /// vanished.
    Swallowed(Duration),
    /// The trunk has ended.
    Ended,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("its agent has ended or is frozen, its site's gateway says"),
            Self::Silent(time, None) => {
                write!(f, "no sign of life for {} s: its network is cut, or it is frozen", time.as_secs())
            }
            Self::Silent(time, Some(broken)) => {
                write!(f, "no connection to it for {} s; the last one broke ({broken})", time.as_secs())
            }
            Self::Swallowed(time) => {
                write!(f, "nothing that was sent has arrived for {} s: {SWALLOWED}", time.as_secs())
            }
            Self::Ended => f.write_str("its agent has ended, or was started again"),
        }
    }
}

/// What the user reads of a way on which carriers open and fall silent.
const SWALLOWED: &str = "connections open, and what is sent over them vanishes, as where large packets \
                         are dropped on the way (a PMTU black hole); `isthmus doctor pair` looks for that";

/// Waits until the node at a trunk's other end is lost to a job that outlives cuts of `outlive`.
/// Tells of silence, and of the end of silence.
pub(crate) async fn lost(
    node: &Arc<Node>,
    (standing, host): (&Standing, &Host),
    outlive: Duration,
    tell: impl Fn(job_news::Kind),
) -> Lost {
    silent((standing, host), (outlive, Duration::ZERO), tell, || gone(node, host)).await
}

/// Waits until a trunk is cut for too long that doesn't hold the job together. Such a trunk may not
/// work where those that do work.
///
/// Whether the node is gone, the nodes that hold it know. They judge first, if nothing is heard of
/// a whole site.
pub(crate) async fn stalled(
    (standing, host): (&Standing, &Host),
    outlive: Duration,
    tell: impl Fn(job_news::Kind),
) -> Lost {
    silent((standing, host), (outlive, BESIDE), tell, std::future::pending).await
}

async fn silent<G: Future<Output = ()>>(
    (standing, host): (&Standing, &Host),
    (outlive, later): (Duration, Duration),
    tell: impl Fn(job_news::Kind),
    gone: impl Fn() -> G,
) -> Lost {
    let longest = outlive + later;
    standing.kept.outlive(longest);
    let mut cut = standing.kept.cut();
    loop {
        let since = tokio::select! {
            since = cut.wait_for(Option::is_some) => since.ok().and_then(|since| *since),
            () = standing.kept.ended.cancelled() => None,
        };
        let Some(since) = since else { return Lost::Ended };
        let mut told = false;
        let waiting = async {
            let telling = async {
                sleep_until((since + TOLD).into()).await;
                let reason = if standing.kept.swallows() { SWALLOWED } else { "" };
                tell(job_news::Kind::SiteSilent(SiteSilent {
                    node: host.name.to_string(),
                    outlive_seconds: seconds(outlive),
                    broken: broken(standing).unwrap_or_default(),
                    reason: reason.to_owned(),
                    from: String::new(),
                }));
                told = true;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = telling => Lost::Ended,
                () = sleep_until((since + longest).into()) => {
                    if standing.kept.swallows() {
                        Lost::Swallowed(longest)
                    } else {
                        Lost::Silent(longest, broken(standing))
                    }
                }
                () = gone() => Lost::Gone,
                () = standing.kept.ended.cancelled() => Lost::Ended,
            }
        };
        tokio::select! {
            lost = waiting => return lost,
            healed = cut.wait_for(Option::is_none) => {
                if healed.is_err() {
                    return Lost::Ended;
                }
            }
        }
        if told {
            let (node, silent_ms) = (host.name.to_string(), millis(since.elapsed()));
            tell(job_news::Kind::SiteBack(SiteBack { node, silent_ms, from: String::new() }));
        }
    }
}

/// How the trunk's last carrier broke, and by which way it went; `None` if it didn't break.
fn broken(standing: &Standing) -> Option<String> {
    let why = standing.kept.broken()?;
    Some(match standing.last().way {
        Some(way) if way.relay.is_empty() => format!("{}: {why}", dial_name(way.dial)),
        Some(way) => format!("{} {}: {why}", dial_name(way.dial), way.relay),
        None => why,
    })
}

/// Returns once the node's gateway says that the node's agent is gone: then the contact that this
/// agent has is replaced. A gateway that can't be asked says nothing.
pub(crate) async fn gone(node: &Node, host: &Host) {
    let upstream = node.upstream();
    let (mut pause, longest) = ASK;
    loop {
        sleep(pause).await;
        pause = (2 * pause).min(longest);
        let asked = timeout(longest, upstream.contact(host.address.ip(), Deadline::within(longest))).await;
        if let Ok(Ok(found)) = asked
            && found.node.as_ref().is_some_and(|node| node.gone)
        {
            return;
        }
    }
}
