//! Connections to the broker that don't wait for TCP's back-off. A segment that a cut has swallowed
//! is sent again after a pause as long as the cut, and so is a SYN. Therefore, while a call waits,
//! other connections are tried beside the silent one.

use std::time::Duration;

use isthmus_rpc::grpc::{self, ConnectError};
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, SiteFilter};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tracing::{debug, info};

use super::WaitingCalls;
use crate::gateway::Gateway;

/// Time between the beginnings of two attempts to connect, while a call waits for the broker.
const AGAIN: Duration = Duration::from_secs(1);
/// Most attempts at once: as many as may begin while an attempt lasts that nobody answers.
const ATTEMPTS: usize = 6;
/// How long the broker may take to answer the simplest question, beside round trips.
const ANSWER: Duration = Duration::from_millis(750);
/// How old a connection must be to be doubted: a broker that is slow isn't made slower.
const SETTLED: Duration = Duration::from_secs(5);

/// Connects to the broker. While a call waits for the connection, another attempt begins now and
/// then. The first that works counts.
///
/// # Errors
/// The error of the last attempt that failed, once none is under way.
pub(super) async fn connect(gateway: &Gateway) -> Result<Channel, ConnectError> {
    let attempt = || {
        let credentials = gateway.credentials.clone();
        async move { grpc::connect(credentials.upstream(), "broker", &credentials).await }
    };
    let mut attempts = JoinSet::from_iter([attempt()]);
    let again = async |wanted: &WaitingCalls| {
        sleep(AGAIN).await;
        wanted.awaited().await;
    };
    loop {
        tokio::select! {
            Some(done) = attempts.join_next() => match done {
                Ok(Ok(channel)) => return Ok(channel),
                Ok(Err(error)) if attempts.is_empty() => return Err(error),
                Ok(Err(error)) => debug!(%error, "an attempt to connect to the broker has failed"),
                Err(error) => tracing::error!(%error, "an attempt to connect to the broker has ended early"),
            },
            () = again(&gateway.upstream.wanted), if attempts.len() < ATTEMPTS => {
                attempts.spawn(attempt());
            }
        }
    }
}

/// Returns another connection to the broker, once one is made sooner than the broker answers over
/// `channel`. Another is looked for only when a call has waited for a while. The round trip of
/// `channel` is no longer than `round_trip`.
pub(super) async fn another(gateway: &Gateway, channel: &Channel, round_trip: Duration) -> Channel {
    sleep(SETTLED).await;
    loop {
        gateway.upstream.doubted.notified().await;
        let asking = ask(gateway, channel.clone());
        tokio::pin!(asking);
        if timeout(ANSWER + 2 * round_trip, &mut asking).await.is_ok() {
            continue;
        }
        info!("the broker doesn't answer: another connection to it is tried beside");
        tokio::select! {
            () = asking => {}
            connected = connect(gateway) => match connected {
                Ok(channel) => return channel,
                Err(error) => debug!(%error, "no other connection to the broker"),
            },
        }
    }
}

/// Returns once the broker has answered, whatever it says, or once the connection has ended.
async fn ask(gateway: &Gateway, channel: Channel) {
    let records = Records::Sites(SiteFilter { names: vec![gateway.site.to_string()] });
    let request = proto::ListRequest { records: Some(records), ..proto::ListRequest::default() };
    let _ = RegistryClient::new(channel).list(request).await;
}
