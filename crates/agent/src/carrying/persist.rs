//! A connection that can't be made at once is tried again, as long as a kernel would try:
//! gateways, relays and links come back. While the trunk to the other node is cut it is
//! tried for as long as the job outlives the cut. Where connections have sockets of their own,
//! and none can be made for some time, one goes over the trunk that the job has.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_net::dial::SocketOptions;
use isthmus_reach::ReachError;
use isthmus_service::clock::{millis, seconds};
use isthmus_service::mac::random;
use isthmus_wire::GridName;
use isthmus_wire::preamble::Preamble;
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::settings::ConnectLimits;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::reaching::{Introduced, reach, reach_over_trunk};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::partners::Acceptor;

/// After this time the user is told of a connection that isn't made yet. From then on it may go
/// over a trunk that stands.
const TOLD: Duration = Duration::from_secs(3);
/// The pause after the first failed try. It doubles with each further failure, up to
/// [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// Longest time between two looks whether the way is cut.
const LOOK: Duration = Duration::from_secs(5);
/// How many times a kernel repeats a SYN by default (tcp(7), `tcp_syn_retries`).
const SYN_RETRIES: u32 = 6;

/// Connects to the acceptor's agent as [`reach`] does, and tries again until the program or
/// a kernel would have given up.
///
/// # Errors
/// [`ReachError`] of the last try; [`ReachError::GivenUp`] if the program gave up, or the job
/// has ended.
pub(super) async fn reach_in_time(
    node: &Arc<Node>,
    job: &Job,
    target: &Acceptor,
    preamble: Preamble,
    (options, given_up): (SocketOptions, &CancellationToken),
) -> Result<Introduced, ReachError> {
    let (started, acceptor) = (Instant::now(), &target.name);
    let limits = job.connect_limits;
    let is_cut = || {
        // The gateways don't tell whether their trunk is cut. A trunk that has carried the job's
        // connections counts as cut.
        node.trunks().are_cut(acceptor).unwrap_or_else(|| job.account.has_reached_by_gateways(acceptor))
    };
    let end = too_late(started, limits, is_cut);
    tokio::pin!(end);
    let mut pending =
        PendingConnect { job, ends: [node.name().clone(), acceptor.clone()], started, told: false };
    let left = target.left();
    tokio::pin!(left);
    let has_left = || ReachError::no_way(format!("{acceptor} takes part no more: its run has ended"));
    let mut failure = "the first try goes on".to_owned();
    let mut known = None;
    for failures in 0.. {
        let trying = async {
            let reaching = reach(node, job, target, preamble, (options, given_up), &mut known);
            match reaching.await {
                Err(error) if may_pass(&error) && started.elapsed() > TOLD && !given_up.is_cancelled() => {
                    match reach_over_trunk(node, job, target, preamble).await {
                        Some(Ok(introduced)) => Ok(introduced.after(error)),
                        Some(Err(ReachError::Answered(status))) => Err(ReachError::Answered(status)),
                        Some(Err(_)) | None => Err(error),
                    }
                }
                tried => tried,
            }
        };
        tokio::pin!(trying);
        let tried = loop {
            tokio::select! {
                tried = &mut trying => break tried,
                () = sleep_until((started + TOLD).into()), if !pending.told => {
                    pending.tell(&failure, if is_cut() { limits.cut } else { limits.kernel });
                }
                () = &mut end => return Err(late(&failure, started.elapsed())),
                () = &mut left => return Err(has_left()),
            }
        };
        let error = match tried {
            Ok(introduced) => {
                pending.done();
                return Ok(introduced);
            }
            Err(error) => error,
        };
        if !may_pass(&error) {
            if matches!(error, ReachError::GivenUp) {
                pending.abandoned(&failure);
            }
            return Err(error);
        }
        failure = error.to_string();
        debug!(job = %job.id, %acceptor, failure, "a connection is tried again");
        let [chance] = random();
        tokio::select! {
            () = sleep(pause(failures, chance)) => {}
            () = &mut end => return Err(late(&failure, started.elapsed())),
            () = &mut left => return Err(has_left()),
            () = given_up.cancelled() => {
                pending.abandoned(&failure);
                return Err(ReachError::GivenUp);
            }
            () = job.ended.cancelled() => return Err(ReachError::GivenUp),
        }
    }
    Err(ReachError::GivenUp)
}

/// The error of a connect for which no time is left; `failure` is what the last try met.
fn late(failure: &str, waited: Duration) -> ReachError {
    ReachError::no_way(format!("not within {} s: {failure}", waited.as_secs()))
}

/// Returns once it is too late for another try.
async fn too_late(started: Instant, limits: ConnectLimits, is_cut: impl Fn() -> bool) {
    let mut cut = None;
    loop {
        if is_cut() {
            cut = Some(Instant::now());
        }
        match time_left(started.elapsed(), cut.map(|cut| cut.elapsed()), limits) {
            Some(time) => sleep(time.min(LOOK)).await,
            None => return,
        }
    }
}

/// How much longer to try; `None` if it is too late. `cut_ago` is the time since the way was last
/// cut; `None` if it never was. After a cut, a try has a kernel's time once more.
fn time_left(tried: Duration, cut_ago: Option<Duration>, limits: ConnectLimits) -> Option<Duration> {
    let again = cut_ago.map(|ago| limits.kernel.saturating_sub(ago).min(limits.cut.saturating_sub(tried)));
    let left = limits.kernel.saturating_sub(tried).max(again.unwrap_or_default());
    (!left.is_zero()).then_some(left)
}

/// Whether another try may do better. A plan without steps may have some once a relay or a
/// gateway is back.
fn may_pass(error: &ReachError) -> bool {
    match error {
        ReachError::Unknown(_) | ReachError::NoWay(_) | ReachError::OnlyEncrypted(_) => true,
        ReachError::Answered(_) | ReachError::GivenUp | ReachError::OtherOwner(_) => false,
    }
}

/// The pause after the failed try of this number, counted from 0. Half of it is left to chance
/// (`chance`): else two nodes that connect to each other would go on meeting.
fn pause(failures: u32, chance: u8) -> Duration {
    let longest = PAUSE.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE);
    longest.mul_f64(0.5 + 0.5 * f64::from(chance) / f64::from(u8::MAX))
}

/// How long connections of a job may take that outlives cuts of this length.
pub(crate) fn limits(outlive: Duration) -> ConnectLimits {
    let retries = fs::read_to_string("/proc/sys/net/ipv4/tcp_syn_retries").ok();
    let kernel = of_retries(retries.and_then(|text| text.trim().parse().ok()).unwrap_or(SYN_RETRIES));
    ConnectLimits { kernel, cut: kernel.max(outlive) }
}

/// How long a kernel tries to connect with so many repeated SYNs. It waits 1 s for an answer to the
/// first SYN, and twice as long for each further one (RFC 6298).
fn of_retries(retries: u32) -> Duration {
    Duration::from_secs((2 << retries.min(16)) - 1)
}

/// A connection that is being made, and what the user was told of it.
struct PendingConnect<'a> {
    job: &'a Job,
    /// The nodes of the initiator and of the acceptor.
    ends: [GridName; 2],
    started: Instant,
    told: bool,
}

impl PendingConnect<'_> {
    /// Tells the user that the connection is still being made; `failure` is what the last try met.
    fn tell(&mut self, failure: &str, limit: Duration) {
        self.told = true;
        let [initiator, acceptor] = self.ends.each_ref().map(ToString::to_string);
        info!(job = %self.job.id, acceptor, failure, "a connection is not there yet");
        self.job.news.send(job_news::Kind::ConnectWaits(proto::ConnectWaits {
            initiator,
            acceptor,
            reason: failure.to_owned(),
            limit_seconds: seconds(limit),
        }));
    }

    /// Tells the user that the program has given up, which may be why it ends. Does so only if the
    /// user was told of the connection before.
    fn abandoned(&self, failure: &str) {
        if !self.told {
            return;
        }
        let [initiator, acceptor] = self.ends.each_ref().map(ToString::to_string);
        let waited = self.started.elapsed().as_secs();
        let reason = format!("the program has given up after {waited} s: {failure}");
        let failed = proto::ConnectFailed { initiator, acceptor, reason, given_up: false };
        self.job.news.send(job_news::Kind::ConnectFailed(failed));
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
        let (short, long) = (limits(Duration::ZERO), limits(Duration::from_secs(1 << 20)));
        assert!(short.kernel >= Duration::from_secs(1) && short.cut == short.kernel, "{short:?}");
        assert_eq!((long.kernel, long.cut), (short.kernel, Duration::from_secs(1 << 20)));
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let longest = [0, 1, 3, 4, 5, u32::MAX].map(|failures| pause(failures, u8::MAX).as_millis());
        assert_eq!(longest, [250, 500, 2000, 4000, 4000, 4000]);
        let shortest = [0, 1, 4].map(|failures| pause(failures, 0).as_millis());
        assert_eq!(shortest, [125, 250, 2000]);
    }

    #[test]
    fn a_cut_is_waited_for() {
        let [kernel, cut] = [127, 900].map(Duration::from_secs);
        // Seconds for which it was tried, seconds since the cut; seconds for which to go on.
        for (tried, cut_ago, want) in [
            (0, None, Some(127)),
            (127, None, None),
            (100, Some(0), Some(127)),
            (200, Some(27), Some(100)),
            (300, Some(127), None),
            (897, Some(0), Some(3)),
            (900, Some(0), None),
        ] {
            let [tried, cut_ago] = [Some(tried), cut_ago].map(|seconds| seconds.map(Duration::from_secs));
            let left = time_left(tried.unwrap(), cut_ago, ConnectLimits { kernel, cut });
            assert_eq!(left.map(|left| left.as_secs()), want, "{tried:?} {cut_ago:?}");
        }
    }

    #[test]
    fn what_cannot_change_is_not_tried_again() {
        use isthmus_wire::preamble::Status;
        for (error, passes) in [
            (ReachError::no_way("a reason"), true),
            (ReachError::Unknown("the gateway is away".into()), true),
            (ReachError::OnlyEncrypted(vec!["a reason".into()]), true),
            (ReachError::Answered(Status::Refused), false),
            (ReachError::GivenUp, false),
            (ReachError::OtherOwner("another user's".to_owned()), false),
        ] {
            assert_eq!(may_pass(&error), passes, "{error}");
        }
    }
}
