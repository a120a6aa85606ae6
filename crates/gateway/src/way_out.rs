//! Whether the site's nodes reach the outside themselves. An agent says that it
//! doesn't if nobody outside answers it; that this is the site's doing, and not
//! the others', the gateway knows only if it is answered itself.

use std::time::Duration;

use isthmus_net::dial::PunchPort;
use isthmus_wire::proto;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::service::Gateway;

/// How long somebody outside may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// How many are asked, all at once.
const ASKED: usize = 4;
/// For how long the answer counts: agents ask again about as often.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// Whether the gateway was answered, and when.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<Option<(Instant, bool)>>);

/// What is believed of what an agent said.
pub(crate) async fn judge(gateway: &Gateway, seen: proto::Seen) -> proto::Seen {
    let answered = match (gateway.nodes_dial_out, seen.way_out()) {
        (None, proto::WayOut::No) => answered(gateway).await,
        _ => false,
    };
    declared(gateway.nodes_dial_out, seen, answered)
}

/// The same by what is declared, and whether the gateway itself was answered.
pub(crate) fn declared(nodes_dial_out: Option<bool>, seen: proto::Seen, answered: bool) -> proto::Seen {
    let way_out = match (nodes_dial_out, seen.way_out()) {
        (Some(true), _) => proto::WayOut::Yes,
        (Some(false), _) => proto::WayOut::No,
        (None, proto::WayOut::No) if !answered => proto::WayOut::Unknown,
        (None, said) => said,
    };
    proto::Seen { way_out: way_out.into(), ..seen }
}

async fn answered(gateway: &Gateway) -> bool {
    let mut known = gateway.answered.0.lock().await;
    if let Some((at, answered)) = *known
        && at.elapsed() < GOOD_FOR
    {
        return answered;
    }
    let mut asked = tokio::task::JoinSet::new();
    for address in gateway.directory.reflectors(&gateway.site).into_iter().take(ASKED) {
        asked.spawn(async move { PunchPort::open(&address, ANSWER).await.is_ok() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use proto::WayOut::{No, Unknown, Yes};

    #[test]
    fn what_is_declared_counts_and_an_unreachable_outside_says_nothing() {
        for (declares, said, answered, want) in [
            (None, Yes, false, Yes),
            (None, Unknown, true, Unknown),
            (None, No, true, No),
            (None, No, false, Unknown),
            (Some(false), Yes, false, No),
            (Some(true), No, true, Yes),
        ] {
            let seen =
                proto::Seen { way_out: said.into(), address: "192.0.2.1".to_owned(), ..Default::default() };
            let judged = declared(declares, seen, answered);
            assert_eq!(
                (judged.way_out(), judged.address.as_str()),
                (want, "192.0.2.1"),
                "{declares:?} {said:?}"
            );
        }
    }
}
