//! The relay that a broker brings with it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use isthmus_broker::state::State;
use isthmus_identity::attachment;
use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::token::{Invitation, JoinToken};
use isthmus_identity::{Credentials, Role};
use isthmus_relay::{Listens, RelayConfig};
use isthmus_rpc::port::Share;
use isthmus_rpc::{enrol, renewal};
use isthmus_service::files;
use isthmus_service::upgrade::Upgrades;
use tokio::sync::watch;

use crate::config::Config;
use crate::standing::Writer;

/// Name of the relay's state directory, within the broker's.
pub(crate) const DIRECTORY: &str = "relay";
/// The relay's name in the grid.
const NAME: &str = "main";
/// How long the token is good with which the relay joins at once.
const TOKEN: Duration = Duration::from_secs(60);
/// Pause before the relay is started again after it has failed.
pub(crate) const AGAIN: Duration = Duration::from_secs(30);

/// Whether broker and relay listen at the same port, by their configuration.
pub(crate) fn shares_port(Config { broker, relay, .. }: &Config) -> bool {
    // Port 0 stands for any port, a different one for each service.
    broker.listen == relay.listen && relay.listen.port() != 0
}

/// Runs the relay; never ends. If the relay fails, the broker goes on without it. `begun` is called
/// once the relay is ready or has failed. `broker` is where the broker listens, with the relay's
/// share in that port, if it has one.
pub(crate) async fn of_broker(
    state: State,
    config: &Config,
    broker: (SocketAddr, Option<Share>),
    begun: impl FnOnce(),
) {
    let begun = Cell::new(Some(begun));
    let tell = || begun.take().map_or((), |begun| begun());
    let directory = state.directory.join(DIRECTORY);
    if let Err(error) = files::create_directory(&directory) {
        tracing::warn!(%error, "the broker's relay has no state directory");
    }
    let mut standing = Writer::new(&directory);
    loop {
        if let Err(error) = run(&state, config, &broker, &tell, &mut standing).await {
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
    (broker, share): &(SocketAddr, Option<Share>),
    begun: &impl Fn(),
    standing: &mut Writer,
) -> anyhow::Result<()> {
    let directory = state.directory.join(DIRECTORY);
    let near = near(*broker);
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
    let address = || match share {
        Some(_) => Some(state.grid.address.clone()),
        None => address(&state.grid.address, &config.relay),
    };
    let relay =
        RelayConfig { address: config.relay.address.clone().or_else(address), ..config.relay.clone() };
    let upstreams = || vec![near.clone()];
    let alone = || Listens::Alone(Arc::new(Upgrades::none()));
    let listens = share.clone().map_or_else(alone, Listens::WithBroker);
    let is_ready = watch::Sender::new(false);
    let ready = |address: SocketAddr| {
        tracing::info!(%address, "the broker's relay is ready");
        is_ready.send_replace(true);
        begun();
    };
    tokio::select! {
        result = isthmus_relay::run(relay, credentials.clone(), listens, ready, std::future::pending()) => {
            Ok(result?)
        }
        () = renewal::keep_fresh(&credentials, &directory, upstreams) => Ok(()),
        () = standing.keep(credentials.attachment(), is_ready.subscribe()) => Ok(()),
    }
}

/// Joins the relay to the grid by a token that the broker makes for it. Returns the relay's
/// identity.
async fn join(state: &State, near: &str, directory: &Path) -> anyhow::Result<Credentials> {
    let invitation = Invitation {
        grid: state.grid.name.clone(),
        role: Role::Relay,
        site: None,
        name: Some(NAME.parse()?),
        owner: None,
        nodes: None,
        gateways: 0,
        pilot_nodes: 0,
        expires: SystemTime::now() + TOKEN,
        broker: near.to_owned(),
    };
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation)?;
    let credentials = enrol::join(&token, None, Some(near)).await.context("it can't join")?;
    credentials.save(directory)?;
    Ok(credentials)
}

/// The broker's address as programs on the broker's own machine reach it.
fn near(broker: SocketAddr) -> String {
    if broker.ip().is_unspecified() { format!("127.0.0.1:{}", broker.port()) } else { broker.to_string() }
}

/// Where nodes reach a relay with a port of its own: at the broker's host, and that port.
fn address(grid: &str, relay: &RelayConfig) -> Option<String> {
    let (host, _) = grid.rsplit_once(':')?;
    Some(format!("{host}:{}", relay.listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_one_port() {
        for (broker, relay, want) in [
            ("0.0.0.0:443", "0.0.0.0:443", true),
            ("[::]:443", "[::]:443", true),
            ("0.0.0.0:7700", "0.0.0.0:7720", false),
            ("192.0.2.1:443", "192.0.2.2:443", false),
            ("0.0.0.0:443", "192.0.2.2:443", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let mut config = Config::default();
            (config.broker.listen, config.relay.listen) = (broker.parse().unwrap(), relay.parse().unwrap());
            assert_eq!(shares_port(&config), want, "{broker} {relay}");
        }
    }

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
