//! Whether the broker's own address leads to it. It is in every token, so a typing mistake in it
//! is found before others meet it. A broker behind a NAT may not reach itself: it is only a doubt.

use std::time::Duration;

use isthmus_broker::state::State;
use isthmus_rpc::grpc;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// How long to wait for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The broker's name in its certificate.
const BROKER: &str = "broker";

/// A warning if no name server knows the address of a grid that is just made; else `None`.
pub(crate) async fn unknown(address: &str) -> Option<String> {
    match timeout(ANSWER, lookup_host(address)).await {
        Ok(Ok(_)) | Err(_) => None,
        Ok(Err(error)) => Some(format!(
            "warning: this machine finds no address of {}: {error}. Others join by that name",
            host(address)
        )),
    }
}

/// A warning if the running broker isn't reached at its own address; else `None`.
pub(crate) async fn doubt(state: &State) -> Option<String> {
    let address = &state.grid.address;
    let connecting = grpc::connect_unidentified(address, BROKER, state.authority.certificate().clone());
    let reason = match timeout(ANSWER, connecting).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.reason,
        Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
    };
    Some(format!(
        "warning: this host doesn't reach its broker at {address}, the address that tokens have: {reason}. Behind a \
         NAT that may be as it should. Else correct `address` in {}/grid.toml, then isthmus down and isthmus up",
        state.directory.display()
    ))
}

fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
