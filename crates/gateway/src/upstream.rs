//! The gateway's way to the broker: one connection out of the site, over which it
//! attaches, and calls the broker's services.

mod attachment;
mod orders;

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::grpc;
use isthmus_net::grpc::{Call, Connections, Repeat};
use isthmus_wire::proto::attach_up;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

pub(crate) use attachment::run;

/// The budget of a call to the broker whose caller gave none.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// Pause before a call is sent again after the connection broke.
const RETRY: Duration = Duration::from_millis(250);
/// The broker's name in messages.
const BROKER: &str = "the broker";
/// Messages waiting to be sent to the broker. When it is full the gateway attaches
/// anew, and sends its whole state.
const QUEUE: usize = 1024;

/// The connection to the broker, for the rest of the gateway.
pub(crate) struct Upstream {
    channel: watch::Sender<Option<Channel>>,
    up_tx: mpsc::Sender<attach_up::Kind>,
    resync: Notify,
}

/// The messages that [`run`] sends.
pub(crate) struct Outbox(mpsc::Receiver<attach_up::Kind>);

impl Upstream {
    pub(crate) fn new() -> (Self, Outbox) {
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        (Self { channel: watch::Sender::new(None), up_tx, resync: Notify::new() }, Outbox(up_rx))
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.channel.borrow().is_some()
    }

    /// Sends the broker a message, now or with the whole state when the gateway is
    /// attached again. Never waits.
    pub(crate) fn send(&self, kind: attach_up::Kind) {
        if self.up_tx.try_send(kind).is_err() {
            self.resync.notify_one();
        }
    }

    /// Calls the broker, once there is a connection to it. `what` completes
    /// "cannot …".
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
    type Connection = Channel;

    async fn get(&self, former: Option<&Channel>) -> Option<Channel> {
        if former.is_some() {
            // Until the attachment is found broken, the channel is the same one.
            sleep(RETRY).await;
        }
        let mut channel = self.upstream.channel.subscribe();
        channel.wait_for(Option::is_some).await.ok()?.clone()
    }

    fn absent(&self) -> Status {
        Status::unavailable(format!(
            "cannot {}: the gateway has no connection to the broker. \
             Contacts that were used before still work; see the gateway's log",
            self.what
        ))
    }
}
