//! `isthmus up` and `isthmus down`: a machine joins its grid if it has not yet, and its
//! services run on after the command has ended.

mod running;
mod start;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_broker::state::{ADMIN_DIRECTORY, State, StateError};
use isthmus_net::credentials::CredentialsError;
use isthmus_net::{Credentials, Identity};
use isthmus_wire::Label;

use crate::config::{Config, StateArgs};
use crate::join::{self, Wanted};
use crate::output;
use crate::services::Service;
use running::Stopped;
use start::Started;

/// Of a front-end that is a node as well, the node's state within the front-end's.
const NODE_DIRECTORY: &str = "node";

/// Join a grid if need be, and start this machine's services.
///
/// On the broker's host, after `isthmus grid init`: the broker, with a relay. With a
/// site's token: the gateway, or with --via a node. The services run in the background
/// until `isthmus down` or the machine's end; a second `isthmus up` starts what doesn't
/// run.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    state: StateArgs,
    /// File with a join token, - for stdin. Needed the first time.
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// This machine is a node, and this is its site's front-end, at port 7710 unless told
    /// otherwise.
    #[arg(long, value_name = "HOST[:PORT]")]
    via: Option<String>,
    /// This front-end is a node of its site as well.
    #[arg(long, conflicts_with = "via")]
    node: bool,
    /// Name of this node or relay; by default the machine's host name.
    #[arg(long)]
    name: Option<Label>,
}

/// Stop the services that `isthmus up` started on this machine.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    state: StateArgs,
}

/// Runs `isthmus up`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn up(args: UpArgs) -> anyhow::Result<()> {
    let directory = args.state.directory();
    let _lock = running::lock(&directory)?;
    let token = args.token.as_deref().map(join::read_token).transpose()?;
    let wanted = Wanted { name: args.name.clone(), via: args.via.clone(), force: false };
    let Some(member) = Member::of_or_joined(&directory, token.as_deref(), || Ok(wanted)).await? else {
        bail!(
            "this machine belongs to no grid yet ({} holds no identity). With a join token: isthmus up --token \
             FILE, and --via FRONT-END on a node. Without one: isthmus grid init makes a grid, and isthmus grid \
             invite a token, both on the broker's host",
            directory.display()
        )
    };
    if let (Member::Joined(identity), Some(name)) = (&member, &args.name)
        && identity.name() != name
    {
        bail!(
            "{} holds the identity of {identity}, not of {name}; give another directory with --state",
            directory.display()
        );
    }
    let option = args.state.option();
    let service = member.service()?;
    if args.node && service != Service::Gateway {
        bail!("--node is for a site's front-end, and this machine is {member}");
    }
    run(service, &directory, &member.to_string()).await?;
    let node = directory.join(NODE_DIRECTORY);
    if args.node || (service == Service::Gateway && node.exists()) {
        let wanted = || {
            let via = Some(gateway_from_here(&directory)?.to_string());
            Ok(Wanted { name: args.name, via, force: false })
        };
        let Some(member) = Member::of_or_joined(&node, token.as_deref(), wanted).await? else {
            bail!("this machine is no node yet: give the site's token again, --token FILE")
        };
        run(member.service()?, &node, &member.to_string()).await?;
    }
    output::print(&(), &next(service, &directory, &option, args.node), false)
}

/// Starts a service, and says so.
async fn run(service: Service, directory: &Path, who: &str) -> anyhow::Result<()> {
    let started = start::start(service, directory).await?;
    let how = match started {
        Started::Now => "runs",
        Started::Before => "runs already",
    };
    let log = directory.join(start::LOG_FILE);
    output::print(&(), &format!("{who} {how}; its log is {}\n", log.display()), false)
}

/// Where this machine's gateway listens, for an agent of the same machine: not on
/// loopback, since other nodes reach the agent at the address from which it attaches.
fn gateway_from_here(directory: &Path) -> anyhow::Result<SocketAddr> {
    let listen = Config::load(None, directory)?.gateway.listen;
    if !listen.ip().is_unspecified() {
        return Ok(listen);
    }
    let credentials = Credentials::load(directory)?;
    let own = || -> std::io::Result<SocketAddr> {
        // Nothing is sent: the kernel chooses the address by its routes.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(credentials.upstream())?;
        socket.local_addr()
    };
    let own = own().with_context(|| format!("no way to the broker at {}", credentials.upstream()))?;
    Ok(SocketAddr::new(own.ip(), listen.port()))
}

/// What to do next.
fn next(service: Service, directory: &Path, option: &str, is_node: bool) -> String {
    let stop = format!("  stop                  isthmus down{option}\n");
    let here = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let here = here.unwrap_or_else(|_| "FRONT-END".to_owned());
    let use_it =
        "  see what there is     isthmus status\n  run something         isthmus run -- mpirun -n 8 ./app\n";
    match service {
        Service::Broker => format!(
            "  invite a site         isthmus grid invite{option} --site SITE --owner USER --nodes N --out SITE.token\n  \
               see what there is     isthmus status --state {}\n{stop}",
            directory.join(ADMIN_DIRECTORY).display()
        ),
        Service::Gateway if is_node => format!("{use_it}{stop}"),
        Service::Gateway => format!("  on each of its nodes  isthmus up --token FILE --via {here}\n{stop}"),
        Service::Agent => format!("{use_it}{stop}"),
        Service::Relay => stop,
    }
}

/// Runs `isthmus down`.
///
/// # Errors
/// The message for the user.
pub(crate) fn down(args: &DownArgs) -> anyhow::Result<()> {
    let directory = args.state.directory();
    let lock = if directory.exists() { Some(running::lock(&directory)?) } else { None };
    // A node takes leave through its gateway.
    let mut all = Vec::new();
    for place in [directory.join(NODE_DIRECTORY), directory.clone()] {
        all.extend(running::stop(&place)?);
    }
    let mut text = String::new();
    for (service, stopped) in &all {
        let how = match stopped {
            Stopped::InOrder => "stopped",
            Stopped::Killed => "didn't end and was killed",
        };
        text += &format!("The {service} {how}.\n");
    }
    if all.is_empty() {
        text = format!("Nothing runs here that isthmus up has started ({}).\n", directory.display());
    }
    drop(lock);
    output::print(&(), &text, false)
}

/// What a state directory holds.
enum Member {
    Grid(String),
    Joined(Identity),
}

impl Member {
    fn of(directory: &Path) -> anyhow::Result<Option<Self>> {
        match State::load(directory) {
            Ok(state) => return Ok(Some(Self::Grid(state.grid.name))),
            Err(StateError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match Credentials::load(directory) {
            Ok(credentials) => Ok(Some(Self::Joined(credentials.identity().clone()))),
            Err(CredentialsError::Missing { .. }) => Ok(None),
            Err(error) => Err(error).context("this machine's identity can't be read"),
        }
    }

    /// What it holds, or after a join by the token. None without either.
    async fn of_or_joined(
        directory: &Path,
        token: Option<&str>,
        wanted: impl FnOnce() -> anyhow::Result<Wanted>,
    ) -> anyhow::Result<Option<Self>> {
        match (Self::of(directory)?, token) {
            (None, Some(token)) => {
                let credentials = join::join(token, directory, wanted()?).await?;
                Ok(Some(Self::Joined(credentials.identity().clone())))
            }
            (known, _) => Ok(known),
        }
    }

    fn service(&self) -> anyhow::Result<Service> {
        match self {
            Self::Grid(_) => Ok(Service::Broker),
            Self::Joined(identity) => Service::of(identity.role())
                .with_context(|| format!("{identity} runs no service: use isthmus status, run and grid")),
        }
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grid(name) => write!(f, "The broker of grid {name}, with a relay,"),
            Self::Joined(identity) => identity.fmt(f),
        }
    }
}
