//! The relay that a broker brings with it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use isthmus_broker::state::State;
use isthmus_net::attachment;
use isthmus_net::credentials::CredentialsError;
use isthmus_net::token::{Invitation, JoinToken};
use isthmus_net::upgrade::Upgrades;
use isthmus_net::{Credentials, Role, enrol, files, renewal};
use isthmus_relay::RelayConfig;
use tokio::sync::watch;

use crate::config::Config;
use crate::standing::Writer;

/// Its state directory, within the broker's.
pub(crate) const DIRECTORY: &str = "relay";
/// Its name in the grid.
const NAME: &str = "main";
/// How long the token is good that it joins with at once.
const TOKEN: Duration = Duration::from_secs(60);
/// Pause after it has failed.
pub(crate) const AGAIN: Duration = Duration::from_secs(30);

/// Runs the relay; never ends. Where it fails, the broker goes on without it. `begun` is called
/// once it is ready or has failed.
pub(crate) async fn of_broker(state: State, config: &Config, broker: SocketAddr, begun: impl FnOnce()) {
    let begun = Cell::new(Some(begun));
    let tell = || begun.take().map_or((), |begun| begun());
    let directory = state.directory.join(DIRECTORY);
    if let Err(error) = files::create_directory(&directory) {
        tracing::warn!(%error, "the broker's relay has no state directory");
    }
    let mut standing = Writer::new(&directory);
    loop {
        if let Err(error) = run(&state, config, broker, &tell, &mut standing).await {
            let reason = format!("{error:#}");
            tracing::warn!(error = reason, "the broker's relay doesn't run; tried again in 30 s");
            standing.write(&attachment::State { reason, ..attachment::State::default() }, false);
        }
        tell();
        tokio::time::sleep(AGAIN).await;
    }
}

async fn run(
    state: &State,
    config: &Config,
    broker: SocketAddr,
    begun: &impl Fn(),
    standing: &mut Writer,
) -> anyhow::Result<()> {
    let directory = state.directory.join(DIRECTORY);
    let near = near(broker);
    let credentials = match Credentials::load(&directory) {
        Ok(credentials) if credentials.check(SystemTime::now()).is_ok() => credentials,
        Ok(_) | Err(CredentialsError::Missing { .. }) => join(state, &near, &directory).await?,
        Err(error) => return Err(error.into()),
    };
    // The broker may listen elsewhere than when the relay joined.
    let credentials = if credentials.upstream() == near {
        credentials
    } else {
        let moved = credentials.with_upstream(&near)?;
        moved.save(&directory)?;
        moved
    };
    credentials.peers().keep_in(&directory)?;
    let address = config.relay.address.clone().or_else(|| address(&state.grid.address, &config.relay));
    let relay = RelayConfig { address, ..config.relay.clone() };
    let upstreams = || vec![near.clone()];
    let none = Arc::new(Upgrades::none());
    let is_ready = watch::Sender::new(false);
    let ready = |address: SocketAddr| {
        tracing::info!(%address, "the broker's relay is ready");
        is_ready.send_replace(true);
        begun();
    };
    tokio::select! {
        result = isthmus_relay::run(relay, credentials.clone(), none, ready, std::future::pending()) => {
            Ok(result?)
        }
        () = renewal::keep_fresh(&credentials, &directory, upstreams) => Ok(()),
        () = standing.keep(credentials.attachment(), is_ready.subscribe()) => Ok(()),
    }
}

/// The relay's identity, by a token of the broker's own.
async fn join(state: &State, near: &str, directory: &Path) -> anyhow::Result<Credentials> {
    let invitation = Invitation {
        grid: state.grid.name.clone(),
        role: Role::Relay,
        site: None,
        name: Some(NAME.parse()?),
        owner: None,
        nodes: None,
        gateways: 0,
        expires: SystemTime::now() + TOKEN,
        broker: near.to_owned(),
    };
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation)?;
    let credentials = enrol::join(&token, None, Some(near)).await.context("it can't join")?;
    credentials.save(directory)?;
    Ok(credentials)
}

/// The broker's address from its own machine.
fn near(broker: SocketAddr) -> String {
    if broker.ip().is_unspecified() { format!("127.0.0.1:{}", broker.port()) } else { broker.to_string() }
}

/// Where nodes reach it: at the broker's host, and the port that it listens on.
fn address(grid: &str, relay: &RelayConfig) -> Option<String> {
    let (host, _) = grid.rsplit_once(':')?;
    Some(format!("{host}:{}", relay.listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_reach_it_at_the_broker_s_host() {
        let relay = RelayConfig::default();
        assert_eq!(address("broker.example.org:7700", &relay), Some("broker.example.org:7720".to_owned()));
        assert_eq!(address("[2001:db8::1]:9", &relay), Some("[2001:db8::1]:7720".to_owned()));
        for (broker, want) in [("0.0.0.0:7700", "127.0.0.1:7700"), ("192.0.2.1:9", "192.0.2.1:9")] {
            assert_eq!(near(broker.parse().unwrap()), want);
        }
    }
}
