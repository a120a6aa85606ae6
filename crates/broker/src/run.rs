//! The broker as a process: its server and its periodic tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_identity::Credentials;
use isthmus_identity::authority::SIGNING_ENDS_SOON;
use isthmus_identity::credentials::{ALPN_H2, CredentialsError};
use isthmus_registry::records::Unreadable;
use isthmus_registry::{
    ForbiddenPairs, Places, PlacesError, Policy, PolicyError, Registry, TrunkPins, TrustedPairs,
};
use isthmus_rpc::calls::{At, guarded};
use isthmus_rpc::port::Port;
use isthmus_rpc::{grpc, packets};
use isthmus_service::clock::unix_seconds;
use isthmus_service::kept::keep;
use isthmus_wire::bounds::{ENROLMENT_BYTES, MESSAGE_BYTES};
use isthmus_wire::proto::administration_server::AdministrationServer;
use isthmus_wire::proto::enrolment_server::EnrolmentServer;
use isthmus_wire::proto::registry_server::RegistryServer;
use tokio::time::timeout;
use tonic::service::Routes;
use tracing::{info, warn};

use crate::administration::AdministrationService;
use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::enrolment::EnrolmentService;
use crate::fold::{Fold, FoldError};
use crate::members;
use crate::service::Service;
use crate::state::{State, StateError};
use crate::store::{Embedded, StoreError};

/// How often the broker checks whether its own certificate is due.
const RENEWAL_CHECK: Duration = Duration::from_secs(3600);

/// How long attachments may take to end when the broker does.
const ENDING: Duration = Duration::from_secs(2);
/// How often the broker checks whether leases have ended.
const LEASE_CHECK: Duration = Duration::from_secs(1);
/// How often the broker checks whether measurements between sites are due.
const MEASURE_CHECK: Duration = Duration::from_secs(5);
/// How often the broker checks whether the directory has changed.
const DIRECTORY_CHECK: Duration = Duration::from_millis(250);

/// Why a broker can't run.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The state directory can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record of the store can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The configuration's policy is refused.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The configuration's levels and places are refused.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// The broker's credentials can't be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The gRPC server has failed.
    #[error("the broker's server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Runs the broker of a state directory at a port until `shutdown`; calls `ready` once everything
/// is set up.
///
/// # Errors
/// If the broker can't start, or its server fails.
pub async fn run(
    port: impl Into<Port>,
    state: State,
    config: &BrokerConfig,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), BrokerError> {
    isthmus_service::listen::raise_descriptor_limit();
    let credentials = state.credentials(SystemTime::now())?;
    let store = Arc::new(Embedded::open(&state.store_path())?);
    members::enrol_first_administrator(&*store).await?;
    let trusted = TrustedPairs::new(&config.trusted).map_err(|error| PolicyError::Site("trusted", error))?;
    let policy = Policy {
        trusted,
        forbidden: ForbiddenPairs::new(&config.pairs)?,
        pins: TrunkPins::new(&config.pairs).map_err(|error| PolicyError::Site("pairs", error))?,
        places: Places::new(&config.levels, &config.places)?,
        relays: config.relays,
        gateways_relay: config.gateways_relay,
        measure: config.measure,
    };
    let registry = Registry::new(&state.grid.name, policy);
    let tls = credentials.enrolling_server_config(&[ALPN_H2, packets::PROTOCOL])?;
    let broker = Arc::new(Broker::new(state, store, registry, credentials.peers().clone())?);
    let fold = Fold::begin(&broker).await.map_err(|error| match error {
        FoldError::Store(error) => BrokerError::Store(error),
        FoldError::Unreadable(error) => BrokerError::Unreadable(error),
    })?;
    let registry_service =
        RegistryServer::new(Service(broker.clone())).max_decoding_message_size(MESSAGE_BYTES);
    let enrolment = EnrolmentServer::new(EnrolmentService::new(broker.clone()))
        .max_decoding_message_size(ENROLMENT_BYTES);
    let administration = AdministrationServer::new(AdministrationService(broker.clone()));
    let administration = administration.max_decoding_message_size(ENROLMENT_BYTES);
    let routes = Routes::new(guarded(At::Broker, registry_service))
        .add_service(guarded(At::Broker, enrolment))
        .add_service(guarded(At::Broker, administration));
    ready();
    let serving = grpc::serve(At::Broker, port, tls, routes, async {
        shutdown.await;
        broker.sessions.remove_all();
    });
    let result = tokio::select! {
        result = serving => result.map_err(BrokerError::from),
        never = keep("the renewal of the certificate", || keep_renewed(&broker, &credentials)) => match never {},
        never = keep("orders to measure", || keep_measured(&broker)) => match never {},
        never = keep("the directory for gateways", || keep_directory(&broker)) => match never {},
        () = keep_leases(&broker) => Ok(()),
        () = fold.keep(&broker) => Ok(()),
    };
    // The attachments' tasks delete their records, and hold the store open.
    broker.tasks.close();
    let _ = timeout(ENDING, broker.tasks.wait()).await;
    result
}

/// Renews the broker's own certificate when it is due; never returns.
async fn keep_renewed(broker: &Broker, credentials: &Credentials) {
    loop {
        check_signing(&broker.state, SystemTime::now());
        tokio::time::sleep(RENEWAL_CHECK).await;
        match broker.state.renew_if_due(credentials, SystemTime::now()) {
            Ok(true) => info!("the broker's certificate is renewed"),
            Ok(false) => {}
            Err(error) => warn!(%error, "cannot renew the broker's certificate"),
        }
    }
}

/// Takes over a new signing certificate, and warns before the certificate in use ends.
fn check_signing(state: &State, now: SystemTime) {
    match state.authority.reload_signing(&state.directory) {
        Ok(true) => info!("a new signing certificate is in use"),
        Ok(false) => {}
        Err(error) => warn!(%error, "cannot read the signing certificate; the former one stays in use"),
    }
    let left = state.authority.signing_ends().duration_since(now).unwrap_or_default();
    if left < SIGNING_ENDS_SOON {
        let days = left.as_secs() / (24 * 3600);
        warn!(days, "the signing certificate ends soon; make a new one with `isthmus grid sign`");
    }
}

/// Ends leases whose time has passed; never returns.
async fn keep_leases(broker: &Broker) {
    loop {
        tokio::time::sleep(LEASE_CHECK).await;
        if let Err(error) = broker.store.expire().await {
            warn!(%error, "cannot end leases");
        }
    }
}

/// Sends the directory to the gateways when it has changed; never returns.
async fn keep_directory(broker: &Broker) {
    loop {
        tokio::time::sleep(DIRECTORY_CHECK).await;
        let effects = broker.registry().directory_due();
        broker.sessions.carry_out(effects);
    }
}

/// Orders the measurements between sites that are due; never returns.
async fn keep_measured(broker: &Broker) {
    loop {
        tokio::time::sleep(MEASURE_CHECK).await;
        let effects = broker.registry().measure_due(unix_seconds(SystemTime::now()));
        broker.sessions.carry_out(effects);
    }
}
