//! The gateway's way to the broker: a connection out of the site, over which it attaches, and calls
//! the broker's services. If the connection is silent, another takes its place.

mod attachment;
mod away;
mod beside;
mod orders;
mod waiting_calls;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isthmus_rpc::grpc;
use isthmus_rpc::grpc::{Call, Connections, Repeat};
use isthmus_service::Deadline;
use isthmus_service::clock::humane;
use isthmus_wire::proto::attach_up;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout, timeout_at};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

pub(crate) use attachment::run;
use away::Away;
use waiting_calls::WaitingCalls;

/// The budget of a call to the broker whose caller gave none.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// How long a call waits without an answer before it has the connection looked at, again and again.
const SLOW: Duration = Duration::from_secs(1);
/// How long an answer is awaited after the connection has been replaced.
const GRACE: Duration = Duration::from_millis(100);
/// Pause before a call is sent again after the connection broke.
const RETRY: Duration = Duration::from_millis(250);
/// The broker's name in messages.
const BROKER: &str = "the broker";
/// Most messages that wait to be sent to the broker. When the queue is full, the gateway attaches
/// anew, and sends its whole state.
const QUEUE: usize = 1024;
/// How long a call waits for an attempt to reach a broker that is away.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Whether the gateway is attached to the broker.
enum BrokerState {
    Up(Connected),
    Down(Away),
}

impl BrokerState {
    fn connected(&self) -> Option<&Connected> {
        match self {
            Self::Up(connected) => Some(connected),
            Self::Down(_) => None,
        }
    }

    /// Whether the gateway is attached over another connection than `than`.
    fn is_another(&self, than: &Connected) -> bool {
        self.connected().is_some_and(|connected| connected.number != than.number)
    }
}

/// A connection over which the gateway is attached, or was.
#[derive(Clone)]
struct Connected {
    channel: Channel,
    /// The connection's number, which is never used twice.
    number: u64,
}

/// The connection to the broker, for the rest of the gateway.
pub(crate) struct Upstream {
    link: watch::Sender<BrokerState>,
    /// Calls that wait for the broker, which is tried soon if there are any.
    wanted: WaitingCalls,
    /// Notified when a call has waited for an answer for longer than most.
    doubted: Notify,
    last_number: AtomicU64,
    up_tx: mpsc::Sender<attach_up::Kind>,
    resync: Notify,
}

/// The messages that [`run`] sends.
pub(crate) struct Outbox(mpsc::Receiver<attach_up::Kind>);

impl Upstream {
    pub(crate) fn new() -> (Self, Outbox) {
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        let link = watch::Sender::new(BrokerState::Down(Away::since(Instant::now())));
        let upstream = Self {
            link,
            wanted: WaitingCalls::default(),
            doubted: Notify::new(),
            last_number: AtomicU64::new(0),
            up_tx,
            resync: Notify::new(),
        };
        (upstream, Outbox(up_rx))
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.away().is_none()
    }

    /// For how long the gateway hasn't reached the broker; `None` while it is attached.
    pub(crate) fn away(&self) -> Option<Duration> {
        match &*self.link.borrow() {
            BrokerState::Up(_) => None,
            BrokerState::Down(away) => Some(away.for_how_long(Instant::now())),
        }
    }

    /// Waits until the gateway is attached, or has just tried in vain to reach a broker that has
    /// been away for a while.
    ///
    /// # Errors
    /// For how long the broker has been away.
    pub(crate) async fn reached(&self) -> Result<(), Duration> {
        let mut link = self.link.subscribe();
        let _waiting = self.wanted.waits();
        let attempt = Instant::now() + ATTEMPT;
        loop {
            let away = match &*link.borrow_and_update() {
                BrokerState::Up(_) => return Ok(()),
                BrokerState::Down(away) => *away,
            };
            let now = Instant::now();
            if away.is_certain(now) {
                return Err(away.for_how_long(now));
            }
            let until = attempt.max(away.certain_from());
            if timeout_at(until.into(), link.changed()).await.is_err() {
                // The attempt hangs. Calls that follow at once don't wait for it as well.
                let now = Instant::now();
                self.link.send_if_modified(|link| {
                    if let BrokerState::Down(away) = link {
                        away.tried(now);
                    }
                    false
                });
                return Err(away.for_how_long(now));
            }
        }
    }

    /// Takes in that the gateway is attached over this connection.
    fn attached(&self, channel: Channel) {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        self.link.send_replace(BrokerState::Up(Connected { channel, number }));
    }

    /// Takes in that the gateway isn't attached. Returns whether it was.
    fn failed(&self) -> bool {
        let now = Instant::now();
        let mut was_attached = false;
        self.link.send_modify(|link| match link {
            BrokerState::Up(_) => {
                was_attached = true;
                *link = BrokerState::Down(Away::since(now));
            }
            BrokerState::Down(away) => away.tried(now),
        });
        was_attached
    }

    /// The status of a call that needs the broker while the broker is away.
    pub(crate) fn absent(&self, what: &str) -> Status {
        let away = humane(self.away().unwrap_or_default());
        Status::unavailable(format!(
            "cannot {what}: the gateway has had no connection to the broker for {away}. \
             Direct ways to nodes that were reached before still work; see the gateway's log"
        ))
    }

    /// Sends the broker a message, now or with the whole state once the gateway is attached again.
    /// Never waits.
    pub(crate) fn send(&self, kind: attach_up::Kind) {
        if self.up_tx.try_send(kind).is_err() {
            self.resync.notify_one();
        }
    }

    /// Calls the broker, once there is a connection to it. `what` completes "cannot …" in messages.
    pub(crate) async fn call<M: Clone, T, F>(
        &self,
        what: &str,
        (repeat, deadline): (Repeat, Deadline),
        message: M,
        call: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let to_broker = ToBroker { upstream: self, what };
        let call = |connected: Connected, request| call(connected.channel, request);
        Call { server: BROKER, deadline, repeat }.send(&to_broker, message, call).await
    }

    /// Passes an agent's call on to the broker, with what is left of its budget.
    pub(crate) async fn pass_on<M: Clone, T, F>(
        &self,
        what: &str,
        repeat: Repeat,
        request: Request<M>,
        call: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let budget = grpc::budget(&request, WAIT);
        self.call(what, (repeat, budget), request.into_inner(), call).await
    }
}

/// The connection to the broker, for a call that `what` describes.
struct ToBroker<'a> {
    upstream: &'a Upstream,
    what: &'a str,
}

#[tonic::async_trait]
impl Connections for ToBroker<'_> {
    type Connection = Connected;

    async fn get(&self, former: Option<&Connected>) -> Option<Connected> {
        if former.is_some_and(|former| !self.upstream.link.borrow().is_another(former)) {
            // Until the attachment is found broken, the channel stays the same.
            sleep(RETRY).await;
        }
        let mut link = self.upstream.link.subscribe();
        let _waiting = self.upstream.wanted.waits();
        link.wait_for(|link| link.connected().is_some()).await.ok()?.connected().cloned()
    }

    async fn lost(&self, connected: &Connected) {
        let mut link = self.upstream.link.subscribe();
        let _waiting = self.upstream.wanted.waits();
        while timeout(SLOW, link.wait_for(|link| link.is_another(connected))).await.is_err() {
            self.upstream.doubted.notify_one();
        }
        // The former connection may answer yet.
        sleep(GRACE).await;
    }

    fn is_lost(&self, connected: &Connected) -> bool {
        self.upstream.link.borrow().is_another(connected)
    }

    fn absent(&self) -> Status {
        self.upstream.absent(self.what)
    }
}
