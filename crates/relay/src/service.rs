//! The relay as a service: port, data plane and attachment to the broker.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use isthmus_identity::{Credentials, Role};
use isthmus_rpc::port::Share;
use isthmus_service::upgrade::Upgrades;
use isthmus_splice::address::{self, NoAddress};
use isthmus_splice::admission::{self, Intake, Limits, Outside};
use isthmus_splice::{Claims, succession};
use isthmus_wire::RelayName;
use tokio::sync::watch;

use crate::config::RelayConfig;
use crate::control::{Attachment, Kind};
use crate::prober::Prober;

/// Why the relay could not start, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The port is taken, or the address isn't this machine's.
    #[error(
        "cannot listen on {address}: {cause}; set another `listen` in section [relay] of the configuration. If the \
         grid's broker has that port, it shares it with the relay in its own process (isthmus broker --with-relay), \
         where [broker] and [relay] have the same `listen`"
    )]
    Listen {
        /// The address that was to be listened on.
        address: SocketAddr,
        /// The operating system's error.
        cause: io::Error,
    },
    /// Agents can't reach any address that the relay could announce.
    #[error(
        "this relay listens on {listen} and reaches the broker from {towards_broker}, and agents can't reach it \
         at either: set `address = \"HOST:PORT\"` in section [relay] of the configuration"
    )]
    NoAddress {
        /// The address that the relay listens on.
        listen: SocketAddr,
        /// The address from which the relay reaches the broker.
        towards_broker: IpAddr,
    },
    /// The credentials are another service's.
    #[error("these are the credentials of {identity}, not of a relay")]
    NotARelay {
        /// The service whose credentials they are.
        identity: String,
    },
    /// The data plane couldn't be started, or failed later.
    #[error("the relay's data plane failed: {0}")]
    Plane(io::Error),
}

/// How a relay listens.
#[derive(Debug)]
pub enum Listens {
    /// At a port of the relay's own. The relay takes over the sockets that a former program left in
    /// the [`Upgrades`]. Through them another program replaces this one.
    Alone(Arc<Upgrades>),
    /// At the port of a broker in the same process, at the same configured address.
    WithBroker(Share),
}

impl Listens {
    /// The source of connections, the address that the relay listens on, and what replaces the
    /// program.
    fn begin(self, address: SocketAddr) -> Result<(Outside, SocketAddr, Arc<Upgrades>), RelayError> {
        match self {
            Self::Alone(upgrades) => {
                let failed = |cause| RelayError::Listen { address, cause };
                let listener = upgrades.listen(address).map_err(failed)?;
                let listening = listener.local_addr().map_err(failed)?;
                Ok((listener.into(), listening, upgrades))
            }
            Self::WithBroker(share) => {
                Ok((Outside::Shared(share.take()), address, Arc::new(Upgrades::none())))
            }
        }
    }
}

/// Runs a relay until `shutdown`, which resets the connections that it carries. `ready` is called
/// with the address that the relay listens on, once the broker has sent the key of tickets.
///
/// # Errors
/// See [`RelayError`]. An unreachable broker is no error: the relay goes on trying.
pub async fn run(
    config: RelayConfig,
    credentials: Credentials,
    listens: Listens,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RelayError> {
    if credentials.identity().role() != Role::Relay {
        return Err(RelayError::NotARelay { identity: credentials.identity().to_string() });
    }
    isthmus_service::listen::raise_descriptor_limit();
    let (outside, listening, upgrades) = listens.begin(config.listen)?;
    let (plane, mut failure_rx) =
        succession::start_plane(config.workers, &upgrades).map_err(RelayError::Plane)?;
    let (keys_tx, keys_rx) = watch::channel(None);
    let claims = Arc::new(Claims::default());
    let mut first_key = keys_rx.clone();
    tracing::info!(%listening, "relay started");
    let limits = Limits::default();
    let attaching = async {
        let none = |NoAddress { listen, towards_broker }| RelayError::NoAddress { listen, towards_broker };
        let address = address::of(config.address, listening, credentials.upstream()).await.map_err(none)?;
        let prober = Arc::new(Prober::new(claims.clone()));
        let (name, plane) = (RelayName::Relay(credentials.identity().name().clone()), Arc::clone(&plane));
        let totals = Box::new(move || plane.totals());
        let (kind, most) = (Kind::Relay, limits.spliced);
        match (Attachment { kind, credentials, name, address, totals, most, keys_tx, prober }).keep().await {}
    };
    let becoming_ready = async {
        if first_key.changed().await.is_ok() {
            ready(listening);
        }
        std::future::pending::<()>().await;
    };
    let intake = Intake { patience: succession::patience(&upgrades), ..Intake::open(outside) };
    let serving = admission::serve(intake, limits, keys_rx, Arc::clone(&plane), claims.clone(), shutdown);
    let result = tokio::select! {
        () = serving => Ok(()),
        result = attaching => result,
        () = becoming_ready => Ok(()),
        never = succession::serve(upgrades, Arc::clone(&plane)) => match never {},
        Some(error) = failure_rx.recv() => Err(RelayError::Plane(error)),
    };
    let totals = plane.totals();
    tracing::info!(totals.connections, totals.running, totals.bytes, "relay ends");
    result
}
