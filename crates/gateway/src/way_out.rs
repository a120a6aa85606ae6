//! Whether the site's nodes can dial out. An agent reports that its node can't if no relay or
//! gateway outside answers. The report counts only if a relay or gateway outside answers this
//! gateway: otherwise they may be down.

use std::time::Duration;

use isthmus_net::dial::{self, PunchPort};
use isthmus_wire::{Label, proto};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::directory::Directory;

/// How long a relay or gateway outside may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Most relays and gateways that are asked, all at once.
const ASKED: usize = 4;
/// How long an answer counts. Agents look about as often.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// How long it counts that no relay or gateway has answered: they may have been down.
const UNANSWERED_FOR: Duration = Duration::from_secs(3);
/// How often relays and gateways are asked again as long as none answers. An agent doesn't repeat
/// its report.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);

/// Whether any relay or gateway outside answered this gateway, and when.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<Option<(Instant, bool)>>);

impl Answered {
    /// Whether a relay or gateway of the directory answers this gateway, which is of `site`.
    pub(crate) async fn is_true(&self, directory: &Directory, site: &Label) -> bool {
        let mut known = self.0.lock().await;
        if let Some((at, answered)) = *known
            && at.elapsed() < if answered { GOOD_FOR } else { UNANSWERED_FOR }
        {
            return answered;
        }
        let mut asked = tokio::task::JoinSet::new();
        let relays =
            directory.relays_beyond(site).unwrap_or_default().into_iter().map(|entry| (entry.address, true));
        let gateways = directory.gateways(site).into_iter().map(|address| (address, false));
        for (address, is_relay) in relays.chain(gateways).take(ASKED) {
            let places = directory.relay_places();
            asked.spawn(async move {
                let answering = async {
                    let at = match is_relay {
                        true => places.resolve(&address).await.ok()?,
                        false => dial::resolve(&address).await.ok()?,
                    };
                    PunchPort::open(at, ANSWER).await.ok()
                };
                tokio::time::timeout(ANSWER, answering).await.is_ok_and(|answer| answer.is_some())
            });
        }
        let mut answered = false;
        while let Some(one) = asked.join_next().await {
            answered = answered || one.unwrap_or(false);
            if answered {
                break;
            }
        }
        *known = Some((Instant::now(), answered));
        answered
    }
}

/// An agent's findings, with its way out judged by the configured value and by whether this gateway
/// is `answered`, which is found out only if it matters.
pub(crate) async fn judge(
    nodes_dial_out: Option<bool>,
    seen: proto::Seen,
    answered: impl Future<Output = bool>,
) -> proto::Seen {
    let answered = match (nodes_dial_out, seen.way_out()) {
        (None, proto::WayOut::No) => answered.await,
        _ => false,
    };
    declared(nodes_dial_out, seen, answered)
}

/// An agent's findings, with its way out judged by the configured value and by whether the gateway
/// was answered.
pub(crate) fn declared(nodes_dial_out: Option<bool>, seen: proto::Seen, answered: bool) -> proto::Seen {
    let way_out = match (nodes_dial_out, seen.way_out()) {
        (Some(true), _) => proto::WayOut::Yes,
        (Some(false), _) => proto::WayOut::No,
        (None, proto::WayOut::No) if !answered => proto::WayOut::Unknown,
        (None, reported) => reported,
    };
    proto::Seen { way_out: way_out.into(), ..seen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::WayOut::{No, Unknown, Yes};

    #[test]
    fn the_declared_value_counts_and_a_report_without_an_answer_does_not() {
        for (configured, reported, answered, want) in [
            (None, Yes, false, Yes),
            (None, Unknown, true, Unknown),
            (None, No, true, No),
            (None, No, false, Unknown),
            (Some(false), Yes, false, No),
            (Some(true), No, true, Yes),
        ] {
            let seen = proto::Seen {
                way_out: reported.into(),
                address: "192.0.2.1".to_owned(),
                ..Default::default()
            };
            let judged = declared(configured, seen, answered);
            assert_eq!(
                (judged.way_out(), judged.address.as_str()),
                (want, "192.0.2.1"),
                "{configured:?} {reported:?}"
            );
        }
    }
}
