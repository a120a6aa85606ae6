//! A job outlives a cut between two sites: it waits. Silence of a whole site may end any
//! time; whether the node behind it is gone, its gateway knows.

use std::sync::Arc;
use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::clock::{millis, seconds};
use isthmus_net::enums::dial_name;
use isthmus_reach::ControlPlane as _;
use isthmus_wire::proto::{SiteBack, SiteSilent, job_news};
use isthmus_wire::settings::Host;
use tokio::time::{sleep, sleep_until, timeout};

use super::registry::Standing;
use crate::jobs::node::Node;

/// A cut of this length is told to the user.
const TOLD: Duration = Duration::from_secs(3);
/// First and longest pause between questions whether the node is gone: they double. An agent
/// that has ended is known as such at once.
const ASK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// Why a job must not wait any longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The node's agent is gone, its gateway says.
    Gone,
    /// The cut has lasted too long, and how the last connection broke, if it did.
    Silent(Duration, Option<String>),
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
            Self::Ended => f.write_str("its agent has ended, or was started again"),
        }
    }
}

/// Waits until a node at the other end of a trunk is lost to a job that waits for
/// `outlive`. Tells of silence, and of its end.
pub(crate) async fn lost(
    node: &Arc<Node>,
    (standing, host): (&Standing, &Host),
    outlive: Duration,
    tell: impl Fn(job_news::Kind),
) -> Lost {
    standing.kept.outlive(outlive);
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
                let outlive_seconds = seconds(outlive);
                let broken = broken(standing).unwrap_or_default();
                let silent = SiteSilent { node: host.name.to_string(), outlive_seconds, broken };
                tell(job_news::Kind::SiteSilent(silent));
                told = true;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = telling => Lost::Ended,
                () = sleep_until((since + outlive).into()) => Lost::Silent(outlive, broken(standing)),
                () = gone(node, host) => Lost::Gone,
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
            let back = SiteBack { node: host.name.to_string(), silent_ms: millis(since.elapsed()) };
            tell(job_news::Kind::SiteBack(back));
        }
    }
}

/// How the trunk's last carrier broke, and which way that went.
fn broken(standing: &Standing) -> Option<String> {
    let why = standing.kept.broken()?;
    Some(match standing.last().way {
        Some(way) if way.relay.is_empty() => format!("{}: {why}", dial_name(way.dial)),
        Some(way) => format!("{} {}: {why}", dial_name(way.dial), way.relay),
        None => why,
    })
}

/// Returns once the node's gateway says that its agent is gone: the contact that this
/// agent has is replaced then. Whoever can't be asked says nothing.
pub(crate) async fn gone(node: &Node, host: &Host) {
    let upstream = node.upstream();
    let (mut pause, longest) = ASK;
    loop {
        sleep(pause).await;
        pause = (2 * pause).min(longest);
        let asked = timeout(longest, upstream.lookup(host.address.ip(), Deadline::within(longest))).await;
        if let Ok(Ok(found)) = asked
            && found.node.as_ref().is_some_and(|node| node.gone)
        {
            return;
        }
    }
}
