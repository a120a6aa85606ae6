//! A connection that can't be made at once is tried again, as long as a kernel would try:
//! gateways, relays and links come back.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_net::clock::millis;
use isthmus_net::dial::SocketOptions;
use isthmus_reach::ReachError;
use isthmus_wire::GridName;
use isthmus_wire::preamble::Preamble;
use isthmus_wire::proto::{self, job_news};
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::connect::{Introduced, reach};
use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// A connection that takes longer is told to the user.
const TOLD: Duration = Duration::from_secs(3);
/// The first pause after a failure; it doubles with each further one,
const PAUSE: Duration = Duration::from_millis(250);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The program's own socket has its kernel's patience. Its end must come later, for nobody
/// learns the reason from a kernel.
const BEFORE_THE_KERNEL: Duration = Duration::from_millis(500);
/// How often a kernel sends a SYN again by default (tcp(7)).
const SYN_RETRIES: u32 = 6;

/// Connects to the acceptor's agent as [`reach`] does, and tries again until the program or
/// a kernel would have given up.
///
/// # Errors
/// [`ReachError`] of the last try.
pub(super) async fn reach_in_time(
    node: &Arc<Node>,
    job: &Job,
    acceptor: &GridName,
    preamble: Preamble,
    (options, given_up): (SocketOptions, &CancellationToken),
) -> Result<Introduced, ReachError> {
    let (started, patience) = (Instant::now(), patience());
    let last = sleep_until((started + patience.saturating_sub(BEFORE_THE_KERNEL)).into());
    tokio::pin!(last);
    let mut waiting = Waiting { job, ends: [node.name().clone(), acceptor.clone()], started, told: false };
    let mut failure = "the first try goes on".to_owned();
    for failures in 0.. {
        let trying = reach(node, job, acceptor, preamble, (options, given_up));
        tokio::pin!(trying);
        let tried = loop {
            tokio::select! {
                tried = &mut trying => break tried,
                () = sleep_until((started + TOLD).into()), if !waiting.told => {
                    waiting.tell(&failure, patience);
                }
                () = &mut last => return Err(late(&failure, patience)),
            }
        };
        let error = match tried {
            Ok(introduced) => {
                waiting.done();
                return Ok(introduced);
            }
            Err(error) => error,
        };
        if !may_pass(&error) {
            return Err(error);
        }
        failure = error.to_string();
        debug!(job = %job.id, %acceptor, failure, "a connection is tried again");
        tokio::select! {
            () = sleep(pause(failures)) => {}
            () = &mut last => return Err(late(&failure, patience)),
            () = given_up.cancelled() => return Err(ReachError::GivenUp),
            () = job.ended.cancelled() => return Err(error),
        }
    }
    Err(ReachError::GivenUp)
}

/// What the last try met, once there is no time for another one.
fn late(failure: &str, patience: Duration) -> ReachError {
    ReachError::NoWay(vec![format!("not within {} s: {failure}", patience.as_secs())])
}

/// Whether another try may do better. A plan without steps may have some once a relay or a
/// gateway is back.
fn may_pass(error: &ReachError) -> bool {
    match error {
        ReachError::Unknown(_) | ReachError::NoWay(_) => true,
        ReachError::Answered(_) | ReachError::GivenUp | ReachError::OtherOwner(_) => false,
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE)
}

/// How long this node's kernel tries to connect.
fn patience() -> Duration {
    let retries = fs::read_to_string("/proc/sys/net/ipv4/tcp_syn_retries").ok();
    of_retries(retries.and_then(|text| text.trim().parse().ok()).unwrap_or(SYN_RETRIES))
}

/// The first SYN waits for 1 s, and each further one for twice as long (RFC 6298).
fn of_retries(retries: u32) -> Duration {
    Duration::from_secs((2 << retries.min(16)) - 1)
}

/// A connection that is being made, as the user reads of it.
struct Waiting<'a> {
    job: &'a Job,
    /// Initiator and acceptor.
    ends: [GridName; 2],
    started: Instant,
    told: bool,
}

impl Waiting<'_> {
    /// `failure`: what the last try met.
    fn tell(&mut self, failure: &str, patience: Duration) {
        self.told = true;
        let [initiator, acceptor] = self.ends.each_ref().map(ToString::to_string);
        info!(job = %self.job.id, acceptor, failure, "a connection is not there yet");
        self.job.news.send(job_news::Kind::ConnectWaits(proto::ConnectWaits {
            initiator,
            acceptor,
            reason: failure.to_owned(),
            limit_seconds: u32::try_from(patience.as_secs()).unwrap_or(u32::MAX),
        }));
    }

    fn done(&self) {
        if self.told {
            let [initiator, acceptor] = self.ends.each_ref().map(ToString::to_string);
            let waited_ms = millis(self.started.elapsed());
            self.job.news.send(job_news::Kind::ConnectedLate(proto::ConnectedLate {
                initiator,
                acceptor,
                waited_ms,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_long_as_a_kernel() {
        for (retries, seconds) in [(0, 1), (1, 3), (6, 127), (u32::MAX, 131_071)] {
            assert_eq!(of_retries(retries), Duration::from_secs(seconds), "{retries}");
        }
        assert!(patience() >= Duration::from_secs(1));
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses = [0, 1, 3, 4, 5, u32::MAX].map(|failures| pause(failures).as_millis());
        assert_eq!(pauses, [250, 500, 2000, 4000, 4000, 4000]);
    }

    #[test]
    fn what_cannot_change_is_not_tried_again() {
        use isthmus_wire::preamble::Status;
        for (error, passes) in [
            (ReachError::NoWay(vec!["a reason".to_owned()]), true),
            (ReachError::Unknown("the gateway is away".to_owned()), true),
            (ReachError::Answered(Status::Refused), false),
            (ReachError::GivenUp, false),
            (ReachError::OtherOwner("another user's".to_owned()), false),
        ] {
            assert_eq!(may_pass(&error), passes, "{error}");
        }
    }
}
