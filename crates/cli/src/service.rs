//! The services that this program can run, their arguments, and what each reads before it begins
//! to serve.

use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::bail;
use clap::Args;
use isthmus_front::state::StateArgs;
use isthmus_identity::{Credentials, Role};
use isthmus_service::upgrade::CHECK_OPTION;

use crate::config::Config;

/// The services that this program can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// The grid's central service.
    Broker,
    /// The service on a site's front-end.
    Gateway,
    /// The service on a node.
    Agent,
    /// The service that splices connections of two sites.
    Relay,
}

impl Service {
    /// Name of the service's command and of its section in the configuration.
    pub(crate) fn name(self) -> &'static str {
        self.role().as_str()
    }

    /// The service that serves for members of a role; `None` for an administrator.
    pub(crate) fn of(role: Role) -> Option<Self> {
        match role {
            Role::Broker => Some(Self::Broker),
            Role::Gateway => Some(Self::Gateway),
            Role::Agent => Some(Self::Agent),
            Role::Relay => Some(Self::Relay),
            Role::Admin => None,
        }
    }

    /// The options with which `isthmus up` starts the service.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Broker => &["--with-relay"],
            Self::Gateway | Self::Agent | Self::Relay => &[],
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Broker => Role::Broker,
            Self::Gateway => Role::Gateway,
            Self::Agent => Role::Agent,
            Self::Relay => Role::Relay,
        }
    }
}

/// The arguments of every service.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Configuration file; by default isthmus.toml in the state directory, if
    /// there is one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say whether this program can take the place of the running service, which listens
    /// at these addresses.
    #[arg(long = CHECK_OPTION, hide = true, value_name = "ADDRESSES", value_parser = addresses)]
    pub(crate) check_upgrade: Option<Addresses>,
}

/// The arguments of a broker.
#[derive(Debug, Args)]
pub(crate) struct BrokerArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Run a relay as well, by section [relay]. Unless that has an `address`, nodes
    /// reach it at the broker's host. With the same `listen` as in section [broker] it
    /// shares the broker's port.
    #[arg(long)]
    pub(crate) with_relay: bool,
}

/// Addresses with commas between them, as on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Addresses(pub(crate) Vec<SocketAddr>);

/// Reads addresses with commas between them.
pub(crate) fn addresses(text: &str) -> Result<Addresses, AddrParseError> {
    text.split(',').filter(|word| !word.is_empty()).map(str::parse).collect::<Result<_, _>>().map(Addresses)
}

/// What a service has read before it begins to serve.
pub(crate) struct Prepared {
    pub(crate) directory: PathBuf,
    pub(crate) config: Config,
    /// The service's identity; `None` for a broker, whose state has it.
    pub(crate) credentials: Option<Credentials>,
}

impl Prepared {
    /// Reads the configuration and the identity.
    ///
    /// # Errors
    /// The message for the user.
    pub(crate) fn load(service: Service, args: &ServiceArgs) -> anyhow::Result<Self> {
        let directory = args.state.directory();
        let mut config = Config::load(args.config.as_deref(), &directory)?;
        if service == Service::Broker {
            return Ok(Self { directory, config, credentials: None });
        }
        let credentials = Credentials::load(&directory)?;
        credentials.check(SystemTime::now())?;
        let identity = credentials.identity();
        if identity.role() != service.role() {
            bail!(
                "{} holds the identity of {identity}, not of {} {}; give another directory with --state",
                directory.display(),
                if service == Service::Agent { "an" } else { "a" },
                service.name()
            );
        }
        config.agent.pilots_directory = Some(directory.join("pilots"));
        config.agent.heard = identity.site().map(|site| directory.join(format!("gateways-of-{site}")));
        Ok(Self { directory, config, credentials: Some(credentials) })
    }
}
