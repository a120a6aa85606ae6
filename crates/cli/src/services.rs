//! `isthmus broker`, `gateway`, `agent` and `relay`: runs a service.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use isthmus_broker::state::State;
use isthmus_front::output;
use isthmus_identity::attachment;
use isthmus_identity::audit;
use isthmus_relay::Listens;
use isthmus_rpc::port::{Port, Share};
use isthmus_rpc::renewal;
use isthmus_service::upgrade::Upgrades;
use isthmus_service::{counters, log};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Config;
use crate::few_lines;
use crate::memory;
use crate::relay;
use crate::service::{Prepared, Service, ServiceArgs};
use crate::standing::Writer;
use crate::upgrade::{self, Before};

/// Environment variable with the log filter.
const LOG_VARIABLE: &str = "ISTHMUS_LOG";

/// Runs a service until SIGTERM or SIGINT.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(
    service: Service,
    args: ServiceArgs,
    before: Option<Before>,
    with_relay: bool,
) -> anyhow::Result<()> {
    let _flushed = start_logging()?;
    let Prepared { directory, config, credentials } = Prepared::load(service, &args)?;
    let shutdown = shutdown()?;
    if config.metrics.directory.is_some() {
        counters::start()?;
    }
    let counted = config.metrics.directory.clone();
    let Some(credentials) = credentials else {
        return broker(&directory, &config, with_relay, shutdown).await;
    };
    credentials.peers().keep_in(&directory)?;
    let identity = credentials.identity();
    start_audit(service, &config, &directory)?;
    let label = identity.grid_name().map_or_else(|| identity.name().to_string(), |name| name.to_string());
    let joined = credentials.upstream().to_owned();
    let agent = config.agent.clone();
    // An agent may hear of further gateways.
    let upstreams = move || match service {
        Service::Agent => agent.gateways(&joined).unwrap_or_default(),
        Service::Broker | Service::Gateway | Service::Relay => vec![joined.clone()],
    };
    let upgrades = upgrade::upgrades(before, service, &config);
    let is_ready = watch::Sender::new(false);
    let was_ready = is_ready.clone();
    let ready = move || {
        ready();
        was_ready.send_replace(true);
    };
    let mut standing = Writer::new(&directory);
    let running = async {
        match service {
            Service::Broker => Ok(()),
            Service::Gateway => {
                let listener = listen(config.gateway.listen, service, &upgrades).await?;
                let credentials = credentials.clone();
                isthmus_gateway::run(listener, credentials, &config.gateway, upgrades, ready, shutdown)
                    .await?;
                Ok(())
            }
            Service::Agent => {
                isthmus_agent::run(config.agent, credentials.clone(), upgrades, ready, shutdown).await
            }
            Service::Relay => {
                isthmus_relay::run(
                    config.relay,
                    credentials.clone(),
                    Listens::Alone(upgrades),
                    move |_| ready(),
                    shutdown,
                )
                .await?;
                Ok(())
            }
        }
    };
    tokio::select! {
        result = running => result,
        () = renewal::keep_fresh(&credentials, &directory, upstreams) => Ok(()),
        () = memory::keep_small() => Ok(()),
        () = standing.keep(credentials.attachment(), is_ready.subscribe()) => Ok(()),
        () = keep_counters(counted, service, &label) => Ok(()),
    }
}

/// Runs a broker, with a relay if that is wanted.
async fn broker(
    directory: &Path,
    config: &Config,
    with_relay: bool,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let service = Service::Broker;
    let state = State::load(directory)?;
    start_audit(service, config, directory)?;
    let listener = listen(config.broker.listen, service, &Upgrades::none()).await?;
    let parts = Cell::new(1 + usize::from(with_relay));
    let part_is_ready = || {
        parts.set(parts.get() - 1);
        if parts.get() == 0 {
            ready();
            let state = attachment::State { attached: true, ..attachment::State::default() };
            Writer::new(directory).write(&state, true);
        }
    };
    let share = (with_relay && relay::shares_port(config)).then(Share::default);
    let at = (listener.local_addr()?, share.clone());
    let relay = relay::of_broker(State::load(directory)?, config, at, part_is_ready);
    let port = Port::new(listener, share);
    tokio::select! {
        () = relay, if with_relay => Ok(()),
        result = isthmus_broker::run(port, state, &config.broker, part_is_ready, shutdown) => Ok(result?),
        () = memory::keep_small() => Ok(()),
        () = keep_counters(config.metrics.directory.clone(), service, "1") => Ok(()),
    }
}

/// Writes the service's counters if the configuration has a directory for them;
/// never ends.
async fn keep_counters(directory: Option<PathBuf>, service: Service, label: &str) {
    match directory {
        Some(directory) => counters::keep_written(directory, service.name(), label).await,
        None => std::future::pending().await,
    }
}

async fn listen(address: SocketAddr, service: Service, upgrades: &Upgrades) -> anyhow::Result<TcpListener> {
    let name = service.name();
    let listener = upgrades.listen(address).with_context(|| {
        let or = match service {
            Service::Broker => {
                ", or a relay as a service of its own (only the broker's own relay shares its port)"
            }
            Service::Gateway | Service::Agent | Service::Relay => "",
        };
        format!("cannot listen on {address}; is another {name} running{or}? See `listen` in section [{name}]")
    })?;
    tracing::info!(%address, "listening");
    Ok(listener)
}

/// Starts the audit log of a broker or an agent.
fn start_audit(service: Service, config: &Config, directory: &Path) -> anyhow::Result<()> {
    let (setting, format) = match service {
        Service::Broker => (&config.broker.audit_log, config.broker.audit_format),
        Service::Agent => (&config.agent.audit_log, config.agent.audit_format),
        Service::Gateway | Service::Relay => return Ok(()),
    };
    audit::start(setting.as_deref(), format, directory).with_context(|| {
        format!("cannot start the audit log; set `audit_log` in section [{}]", service.name())
    })
}

/// Logs to stderr, by the filter in [`LOG_VARIABLE`].
fn start_logging() -> anyhow::Result<log::Flushed> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(filter) => EnvFilter::try_new(&filter).with_context(|| {
            format!("{LOG_VARIABLE}={filter} is no filter; try info, or isthmus_gateway=debug,info")
        })?,
        Err(_) => EnvFilter::new("info"),
    };
    let flushed = log::begin(output::Log).context("cannot start the log")?;
    // The log would escape the control characters of colours.
    let lines = tracing_subscriber::fmt::layer().with_writer(|| log::Lines).with_ansi(false);
    tracing_subscriber::registry().with(filter).with(few_lines::Bound::default()).with(lines).init();
    Ok(flushed)
}

/// A future that ends with the first SIGTERM or SIGINT.
fn shutdown() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot take signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot take signals")?;
    ignore_notices()?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending");
        notify(NotifyState::Stopping);
    })
}

/// Has this process outlive SIGUSR1 and SIGUSR2. A batch system sends them to all processes of a job step
/// before its time is over (sbatch(1), `--signal`), so that programs have them from there. Programs that this
/// process starts have the signals' default actions.
pub(crate) fn ignore_notices() -> anyhow::Result<()> {
    for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
        // The handler stays when its receiver is gone.
        drop(signal(kind).context("cannot take signals")?);
    }
    Ok(())
}

/// Reports to the service manager that the service is ready.
fn ready() {
    tracing::info!("ready");
    notify(NotifyState::Ready);
}

/// Tells the service manager a state; does nothing where there is none.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
