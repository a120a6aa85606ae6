//! `isthmus up` and `isthmus down`: a machine joins its grid if it has not yet, and its
//! services run on after the command has ended.

pub(crate) mod allocated;
mod detached;
mod member;
mod running;
mod slurm;
mod start;
mod submit;
mod systemd;
mod text;
mod unit;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_agent::runtime_directory;
use isthmus_broker::state::State;
use isthmus_front::output;
use isthmus_front::state::{NODE_DIRECTORY, StateArgs};
use isthmus_identity::token::{BearerToken, Invitation};
use isthmus_identity::{Credentials, Role};
use isthmus_pilot::record::Record;
use isthmus_wire::Label;

use crate::config::Config;
use crate::join::{self, JoinOptions};
use crate::own_address;
use crate::relay;
use crate::service::Service;
use crate::standing::ServiceReport;
use member::Member;
use running::Stopped;
use start::{Running, Started};
use systemd::Manager;

/// Where an agent that submits batch jobs has its records of them, in its state directory.
const PILOTS_DIRECTORY: &str = "pilots";
/// How long a service that was just started may take to attach.
const ATTACH: Duration = Duration::from_secs(15);
/// How long a service that ran before may take to attach: it may be between two attempts.
const ATTACH_AGAIN: Duration = Duration::from_secs(5);

/// Join a grid if need be, and start this machine's services.
///
/// On the broker's host, after `isthmus grid init`: the broker, with a relay. With a
/// site's token: with --via a node, else its gateway, if the token has that right. The services run in the background
/// until `isthmus down` or the machine's end; a second `isthmus up` starts what doesn't
/// run, and says how the others are.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    state: StateArgs,
    /// File with a join token, - for stdin. Needed the first time, and after a revocation.
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
    /// This machine is a further gateway of its site, with this name.
    #[arg(long, value_name = "NAME", conflicts_with = "via")]
    gateway: Option<Label>,
    /// Have the user's systemd run the services, also after a restart of the machine: writes,
    /// enables and starts a unit for each.
    #[arg(long)]
    user_unit: bool,
    /// In a batch job of Slurm: start an agent on each of its nodes, until the batch job ends.
    ///
    /// With the site's token and --via its front-end, nodes that are no members of the grid yet join.
    #[arg(long, conflicts_with_all = ["node", "name", "gateway", "user_unit"])]
    slurm: bool,
    /// On a login node: this machine's agent submits batch jobs there for its user, and starts no ranks
    /// itself.
    #[arg(long, value_name = "SCHEDULER", conflicts_with = "slurm")]
    submit: Option<submit::SubmitTo>,
}

/// Stop the services that `isthmus up` started on this machine.
///
/// Units of the user's systemd that it has written are removed.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    state: StateArgs,
}

impl UpArgs {
    /// What the machine's own directory is to join as.
    fn join_options(&self) -> JoinOptions {
        let name = if self.node { None } else { self.name.clone() };
        JoinOptions { name: self.gateway.clone().or(name), via: self.via.clone(), force: false }
    }

    /// Refuses options that don't fit the token, before it is spent.
    fn check(&self, token: Option<&Invitation>) -> anyhow::Result<()> {
        let Some(token) = token else { return Ok(()) };
        let of_site = token.nodes.is_some();
        if self.gateway.is_some() && !of_site && token.role != Role::Gateway {
            bail!("--gateway is for a site's front-end, and the token is for a {}", token.role);
        }
        if of_site && self.via.is_none() && !self.node && self.name.is_some() {
            bail!(
                "--name is a node's name, and a node needs its site's front-end as well, --via FRONT-END; a further \
                 gateway of the site is named by --gateway NAME"
            );
        }
        Ok(())
    }
}

/// A state directory, and how its service is to run.
#[derive(Clone, Copy)]
struct ServiceSetup<'a> {
    directory: &'a Path,
    /// ` --state DIR` for the command lines that messages name; empty for the default.
    option: &'a str,
    token: Option<&'a str>,
    manager: Option<&'a Manager>,
}

/// Runs `isthmus up`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn up(args: UpArgs) -> anyhow::Result<()> {
    // Services have another working directory.
    let directory = std::path::absolute(args.state.directory_to_make()?).context("no working directory")?;
    if args.slurm {
        return slurm::up(&args, &directory).await;
    }
    let manager = if args.user_unit { Some(Manager::find().await?) } else { None };
    let _lock = running::lock(&directory)?;
    let token = args.token.as_deref().map(join::read_token).transpose()?;
    let invitation = token.as_deref().map(BearerToken::read).transpose()?;
    let invitation = invitation.map(|token| token.public.invitation);
    let known = Member::of(&directory)?;
    if known.is_none() {
        args.check(invitation.as_ref())?;
    }
    let node = directory.join(NODE_DIRECTORY);
    if let Some(directory) = agents_directory(&args, (&directory, &node), known.as_ref(), invitation.as_ref())
    {
        let configured = Config::load(None, directory)?.agent.runtime_directory;
        runtime_directory::check(configured.as_deref())?;
    }
    if let Some(to) = args.submit {
        let agent = agents_directory(&args, (&directory, &node), known.as_ref(), invitation.as_ref());
        let Some(agent) = agent else {
            bail!("--submit is for an agent: give --via FRONT-END, or on the front-end itself --node");
        };
        if submit::configure(agent, to, &std::env::var_os("PATH").unwrap_or_default())? && agent.exists() {
            start::halt(Service::Agent, agent).await?;
        }
    }
    let option = args.state.option();
    let setup = ServiceSetup {
        directory: &directory,
        option: &option,
        token: token.as_deref(),
        manager: manager.as_ref(),
    };
    let Some(member) = Member::of_or_joined(&directory, setup.token, || Ok(args.join_options())).await?
    else {
        bail!(
            "this machine belongs to no grid yet ({} holds no identity). With a join token: isthmus up --token \
             FILE, and --via FRONT-END on a node. Without one: isthmus grid init makes a grid, and isthmus grid \
             invite a token, both on the broker's host",
            directory.display()
        )
    };
    let service = member.service()?;
    check_named(&args, &member, &directory)?;
    let member = member::moved(member, &directory, args.via.as_deref()).await?;
    setup.run(&member).await?;
    if service == Service::Broker
        && let Some(warning) = own_address::doubt(&State::load(&directory)?).await
    {
        output::message(&warning);
    }
    if args.node || (service == Service::Gateway && node.exists()) {
        let options = || {
            let via = Some(gateway_from_here(&directory)?.to_string());
            Ok(JoinOptions { name: args.name.clone(), via, force: false })
        };
        let setup = ServiceSetup { directory: &node, ..setup };
        let Some(member) = Member::of_or_joined(&node, setup.token, options).await? else {
            bail!("this machine is no node yet: give the site's token again, --token FILE")
        };
        setup.run(&member).await?;
    }
    let mut text = text::next(service, &directory, &option, args.node);
    if manager.is_some() {
        text = text::linger(runtime_directory::lingers()).to_owned() + &text;
    }
    output::print(&(), &text, false)
}

/// The state directory of the agent that will run on this machine; `None` if none will.
fn agents_directory<'a>(
    args: &UpArgs,
    (own, node): (&'a Path, &'a Path),
    known: Option<&Member>,
    token: Option<&Invitation>,
) -> Option<&'a Path> {
    let is_agent = match (known, token) {
        (Some(member), _) => member.service().is_ok_and(|service| service == Service::Agent),
        (None, Some(token)) => token.role == Role::Agent && (token.nodes.is_none() || args.via.is_some()),
        (None, None) => false,
    };
    if is_agent { Some(own) } else { (args.node || node.exists()).then_some(node) }
}

/// Refuses options that name another member than the one that is here.
fn check_named(args: &UpArgs, member: &Member, directory: &Path) -> anyhow::Result<()> {
    let is_gateway = member.service()? == Service::Gateway;
    for (given, option) in [(args.node, "--node"), (args.gateway.is_some(), "--gateway")] {
        if given && !is_gateway {
            bail!("{option} is for a site's front-end. {member} is on this machine");
        }
    }
    if args.via.is_some() && member.service()? != Service::Agent {
        bail!("--via is for a node. {member} is on this machine: isthmus up alone starts it");
    }
    let Member::Joined(credentials) = member else { return Ok(()) };
    let given = if is_gateway { &args.gateway } else { &args.name };
    let identity = credentials.identity();
    if let Some(name) = given.as_ref().filter(|name| identity.name() != *name) {
        bail!(
            "{} belongs to {identity}, not to {name}. To join anew there: isthmus down; isthmus join --force --token \
             FILE (and --via FRONT-END on a node); isthmus up. Beside it on this machine, {name} has its own \
             directory: isthmus up --state DIR --token FILE",
            directory.display()
        );
    }
    Ok(())
}

impl ServiceSetup<'_> {
    /// Starts the service unless it runs, waits until it is attached, and tells the user how it is.
    /// A revoked member joins again by the token.
    async fn run(&self, member: &Member) -> anyhow::Result<()> {
        let service = member.service()?;
        let mut begun = self.begin(member).await?;
        if let (None, Some(token), Member::Joined(credentials)) = (&begun, self.token, member) {
            start::halt(service, self.directory).await?;
            member::join_again(self.directory, token, credentials).await?;
            begun = self.begin(member).await?;
        }
        let Some((running, report)) = begun else {
            bail!("{}", text::revoked(&member.to_string(), self.option));
        };
        let log = self.directory.join(start::LOG_FILE);
        if let (Some(report), Some(upstream)) = (report.filter(|now| !now.attached), member.upstream()) {
            bail!("{}", text::not_attached(&member.to_string(), &upstream, &report, &log));
        }
        let (with, more) = match member {
            Member::Grid(_) => {
                let directory = self.directory.join(relay::DIRECTORY);
                let found = start::settled(&directory, running.pid, patience(&running)).await?;
                text::relay(found.as_ref(), self.directory)
            }
            Member::Joined(_) => ("", String::new()),
        };
        let how = how(&running);
        output::print(&(), &format!("{member}{with} {how}; its log is {}\n{more}", log.display()), false)
    }

    /// Starts the service unless it runs, and waits until it is known whether it is attached.
    /// Returns `None` if its certificate is revoked.
    async fn begin(&self, member: &Member) -> anyhow::Result<Option<(Running, Option<ServiceReport>)>> {
        let service = member.service()?;
        let Started::Runs(running) = start::start(service, self.directory, self.manager).await? else {
            return Ok(None);
        };
        if running.already && running::is_stopped(running.pid) {
            bail!("{}", text::stopped(&member.to_string(), running.pid));
        }
        let report = start::settled(self.directory, running.pid, patience(&running)).await?;
        if !report.as_ref().is_some_and(|report| report.revoked) {
            return Ok(Some((running, report)));
        }
        if !running.already {
            start::halt(service, self.directory).await?;
        }
        Ok(None)
    }
}

/// How long to wait until it is known whether a service is attached.
fn patience(running: &Running) -> Duration {
    if running.already { ATTACH_AGAIN } else { ATTACH }
}

fn how(running: &Running) -> String {
    let runs = if running.already { "runs already" } else { "runs" };
    match &running.unit {
        Some(unit) => format!("{runs} as {unit} of your systemd"),
        None => runs.to_owned(),
    }
}

/// Where an agent of this machine reaches this machine's gateway. The address isn't on loopback,
/// since other nodes reach the agent at the address from which it attaches.
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

/// Runs `isthmus down`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn down(args: DownArgs) -> anyhow::Result<()> {
    let directory = std::path::absolute(args.state.directory()).context("no working directory")?;
    let lock = if directory.exists() { Some(running::lock(&directory)?) } else { None };
    // The node's agent ends first: it takes leave through its gateway.
    let mut all = Vec::new();
    for state in [directory.join(NODE_DIRECTORY), directory.clone()] {
        all.extend(running::stop(&state).await?);
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
    let pilots: usize = [directory.join(NODE_DIRECTORY), directory]
        .map(|state| Record::all(&state.join(PILOTS_DIRECTORY)).len())
        .into_iter()
        .sum();
    text += &left_text(pilots);
    drop(lock);
    output::print(&(), &text, false)
}

/// What is said of the batch jobs that no agent looks after any more.
fn left_text(pilots: usize) -> String {
    match pilots {
        0 => String::new(),
        1 => "A batch job of its agent may go on: its nodes end within 10 min.\n".to_owned(),
        many => format!("{many} batch jobs of its agent may go on: their nodes end within 10 min.\n"),
    }
}
