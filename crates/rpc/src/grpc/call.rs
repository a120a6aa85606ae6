//! Calls with one time budget each: for finding a connection, for every try, and
//! for the calls that servers make on behalf of the caller. A server gets the rest
//! of the budget as the gRPC deadline (`grpc-timeout`).

use std::time::Duration;

use isthmus_service::{Deadline, Late};
use tonic::{Code, Request, Response, Status};

use crate::connection;

/// Pause before a call is sent again after `UNAVAILABLE`.
const PAUSE: Duration = Duration::from_millis(250);
/// Time limit for the first try of a call that may be sent again.
const TRY: Duration = Duration::from_secs(5);
/// Most of its caller's budget that a server keeps to send its own answer.
const OWN: Duration = Duration::from_millis(250);

/// When a call may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Never: a second call would do harm.
    Never,
    /// If the connection broke before the answer came.
    IfBroken,
    /// If the connection broke before the answer came, or if the server answers `UNAVAILABLE`.
    IfUnavailable,
}

/// How a try of a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection broke, or was silent for too long.
    Broken,
    /// The server answered with this status code.
    Code(Code),
}

/// What a caller does after a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The caller returns the failure.
    GiveUp,
    /// The caller sends the call again, on another connection.
    Elsewhere,
    /// The caller sends the call again after this pause.
    After(Duration),
}

/// Decides what follows a failed try; `left` is the rest of the call's budget.
pub fn next(failure: Failure, repeat: Repeat, left: Duration) -> Next {
    match (failure, repeat) {
        _ if left.is_zero() => Next::GiveUp,
        (_, Repeat::Never) => Next::GiveUp,
        (Failure::Broken, Repeat::IfBroken | Repeat::IfUnavailable) => Next::Elsewhere,
        (Failure::Code(Code::Unavailable), Repeat::IfUnavailable) if left > PAUSE => Next::After(PAUSE),
        (Failure::Code(_), _) => Next::GiveUp,
    }
}

/// The time limit for a try, after `late` tries that were late. It doubles each time. So a server
/// that is gone is left soon, and a server at the end of a long way gets to answer.
fn limit_of_try(late: u32) -> Duration {
    TRY.saturating_mul(1 << late.min(4))
}

/// Where calls are sent: connections of which another is taken if one breaks.
#[tonic::async_trait]
pub trait Connections: Sync {
    /// A connection over which calls are sent.
    type Connection: Clone + Send + Sync;

    /// Waits for an open connection. If `former` is given, it broke, and another connection is
    /// preferred.
    async fn get(&self, former: Option<&Self::Connection>) -> Option<Self::Connection>;

    /// Waits until this connection is replaced by another.
    async fn lost(&self, _connection: &Self::Connection) {
        std::future::pending().await
    }

    /// Whether this connection has been replaced by another.
    fn is_lost(&self, _connection: &Self::Connection) -> bool {
        false
    }

    /// The status for a caller that got no connection within its budget.
    fn absent(&self) -> Status;
}

/// A call, with what bounds it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The server's name in messages, such as "the gateway".
    pub server: &'a str,
    /// When the call's budget is spent.
    pub deadline: Deadline,
    /// When the call may be sent again.
    pub repeat: Repeat,
}

impl Call<'_> {
    /// Sends the call until there is an answer or the budget is spent.
    ///
    /// # Errors
    /// The last answer of a server; `DEADLINE_EXCEEDED` if no server answered, or what
    /// [`Connections::absent`] gives.
    pub async fn send<C, M, T, F>(
        &self,
        connections: &C,
        message: M,
        call: impl Fn(C::Connection, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        C: Connections,
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut former = None;
        let mut last = None;
        let mut late_tries = 0_u32;
        loop {
            let found = self.deadline.bound(connections.get(former.as_ref())).await;
            let Some(connection) = found.ok().flatten() else {
                return Err(last.unwrap_or_else(|| connections.absent()));
            };
            let limit = match self.repeat {
                Repeat::IfUnavailable => self.deadline.part(limit_of_try(late_tries)),
                Repeat::Never | Repeat::IfBroken => self.deadline,
            };
            let mut request = connection::request(message.clone());
            request.set_timeout(limit.left());
            let answer = tokio::select! {
                answer = limit.bound(call(connection.clone(), request)) => answer,
                () = connections.lost(&connection) => Ok(Err(Status::unavailable(format!("{} went away", self.server)))),
            };
            let (failure, status) = match answer {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if is_late(&status) && limit.left().is_zero() => {
                    (Failure::Broken, self.late(limit))
                }
                Ok(Err(status)) if broke(&status) || connections.is_lost(&connection) => {
                    (Failure::Broken, status)
                }
                Ok(Err(status)) => (Failure::Code(status.code()), status),
                Err(Late(_)) => (Failure::Broken, self.late(limit)),
            };
            match next(failure, self.repeat, self.deadline.left()) {
                Next::GiveUp => return Err(status),
                Next::Elsewhere => {
                    late_tries = late_tries.saturating_add(u32::from(limit.left().is_zero()));
                    former = Some(connection);
                }
                Next::After(pause) => tokio::time::sleep(pause).await,
            }
            last = Some(status);
        }
    }

    fn late(&self, deadline: Deadline) -> Status {
        Status::deadline_exceeded(format!("{} did not answer within {:?}", self.server, deadline.limit()))
    }
}

/// The budget of a server for a call, `most` at most. It is a little less than its caller's, so
/// that the answer arrives in time.
pub fn budget<T>(request: &Request<T>, most: Duration) -> Deadline {
    let given = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
    let own = |given: Duration| given - (given / 10).min(OWN);
    Deadline::within(given.and_then(timeout).map_or(most, own).min(most))
}

/// Reads a `grpc-timeout` (gRPC over HTTP/2, "Timeout"): at most 8 digits and a
/// unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

/// Whether a call failed because the connection broke, as opposed to an answer of the server.
pub fn broke(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Whether a failed call may have another answer some time later. That is so if the connection
/// broke, or if the server, or what it needs, is away.
pub fn may_pass(status: &Status) -> bool {
    broke(status) || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}

/// Whether a call was cancelled by its `grpc-timeout`, here or at the server.
fn is_late(status: &Status) -> bool {
    matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use isthmus_service::lock;

    use super::*;

    const LEFT: Duration = Duration::from_secs(3);

    #[test]
    fn each_late_try_doubles_the_limit_of_the_next() {
        let seconds = [0, 1, 2, 4, 9, u32::MAX].map(|late| limit_of_try(late).as_secs());
        assert_eq!(seconds, [5, 10, 20, 80, 80, 80]);
    }

    #[test]
    fn which_calls_are_sent_again() {
        use Failure::{Broken, Code as Answered};
        use Repeat::{IfBroken, IfUnavailable, Never};
        for (failure, repeat, left, want) in [
            (Broken, Never, LEFT, Next::GiveUp),
            (Broken, IfBroken, LEFT, Next::Elsewhere),
            (Broken, IfUnavailable, LEFT, Next::Elsewhere),
            (Broken, IfUnavailable, Duration::ZERO, Next::GiveUp),
            (Answered(Code::Unavailable), Never, LEFT, Next::GiveUp),
            (Answered(Code::Unavailable), IfBroken, LEFT, Next::GiveUp),
            (Answered(Code::Unavailable), IfUnavailable, LEFT, Next::After(PAUSE)),
            (Answered(Code::Unavailable), IfUnavailable, PAUSE, Next::GiveUp),
            (Answered(Code::NotFound), IfUnavailable, LEFT, Next::GiveUp),
            (Answered(Code::PermissionDenied), IfUnavailable, LEFT, Next::GiveUp),
            (Answered(Code::Internal), IfBroken, LEFT, Next::GiveUp),
        ] {
            assert_eq!(next(failure, repeat, left), want, "{failure:?} {repeat:?} {left:?}");
        }
    }

    #[test]
    fn a_servers_budget_is_less_than_its_callers() {
        let most = Duration::from_secs(10);
        for (text, want_ms) in [
            ("4S", 3750),
            ("1000m", 900),
            ("1M", 10_000),
            ("99999999H", 10_000),
            ("0n", 0),
            ("", 10_000),
            ("S", 10_000),
            ("+4S", 10_000),
            ("100000000n", 10_000),
            ("4", 10_000),
            ("4\u{e9}", 10_000),
        ] {
            let mut request = Request::new(());
            if let Ok(value) = text.parse() {
                request.metadata_mut().insert("grpc-timeout", value);
            }
            assert_eq!(budget(&request, most).limit(), Duration::from_millis(want_ms), "{text:?}");
        }
    }

    /// Connections that are numbers. A script lists the result of each try.
    struct Script(Mutex<Vec<Result<u32, Code>>>);

    #[tonic::async_trait]
    impl Connections for Script {
        type Connection = u32;

        async fn get(&self, former: Option<&u32>) -> Option<u32> {
            Some(former.map_or(1, |former| former + 1))
        }

        fn absent(&self) -> Status {
            Status::unavailable("nothing")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_budget_for_all_tries() {
        for (name, script, repeat, limit_ms, want) in [
            ("at once", vec![Ok(7)], Repeat::Never, 100, Ok(7)),
            ("not now", vec![Err(Code::Unavailable), Ok(7)], Repeat::IfUnavailable, 2000, Ok(7)),
            (
                "no room",
                vec![Err(Code::Unavailable), Ok(7)],
                Repeat::IfUnavailable,
                100,
                Err(Code::Unavailable),
            ),
            ("final", vec![Err(Code::NotFound), Ok(7)], Repeat::IfUnavailable, 2000, Err(Code::NotFound)),
            ("silent", vec![], Repeat::IfBroken, 100, Err(Code::DeadlineExceeded)),
        ] {
            let script = Script(Mutex::new(script));
            let began = tokio::time::Instant::now();
            let deadline = Deadline::within(Duration::from_millis(limit_ms));
            let call = Call { server: "the server", deadline, repeat };
            let answer = call
                .send(&script, (), |_, request: Request<()>| {
                    let given = budget(&request, LEFT).limit();
                    let mut script = lock(&script.0);
                    let result = (!script.is_empty()).then(|| script.remove(0));
                    async move {
                        assert!(given < Duration::from_millis(limit_ms), "{given:?}");
                        match result {
                            Some(result) => result.map(Response::new).map_err(|code| Status::new(code, "")),
                            None => std::future::pending().await,
                        }
                    }
                })
                .await;
            assert_eq!(answer.map_err(|status| status.code()), want, "{name}");
            assert!(began.elapsed() < Duration::from_millis(limit_ms + 200), "{name}");
        }
    }
}
