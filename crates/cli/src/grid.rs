//! `isthmus grid`: makes a grid, and join tokens for it; lists and revokes its members.

mod members;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use isthmus_broker::config::DEFAULT_PORT;
use isthmus_broker::state::{ADMIN_DIRECTORY, State};
use isthmus_front::format::{count, number};
use isthmus_front::output;
use isthmus_front::state::StateArgs;
use isthmus_identity::authority::KEY_FILE;
use isthmus_identity::token::{DEFAULT_VALIDITY, Invitation, JoinToken};
use isthmus_identity::{Authority, Owner, Role, audit};
use isthmus_service::files;
use isthmus_wire::Label;

use crate::config::{CONFIG_FILE, Config, with_port};
use crate::own_address;

/// Validity of a site's token by default.
const SITE_VALIDITY: Duration = Duration::from_secs(7 * 24 * 3600);
/// A token that is good for longer than this gets a warning.
const LONG: Duration = Duration::from_secs(31 * 24 * 3600);

/// Make a grid, and join tokens for it; list and revoke its members.
#[derive(Debug, Subcommand)]
pub(crate) enum GridCommand {
    Init(InitArgs),
    Invite(InviteArgs),
    Sign(SignArgs),
    List(members::MembersArgs),
    Revoke(members::RevokeArgs),
    /// Revoke members, and free their names for other owners.
    Remove(members::RevokeArgs),
}

/// Make a new signing certificate, which the broker issues certificates with.
///
/// It is good for a year; the broker warns in its log 30 days before the end. A running
/// broker uses the new one within an hour.
#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    #[command(flatten)]
    state: StateArgs,
    /// The authority's key; by default ca-key.pem in the state directory.
    #[arg(long, value_name = "FILE")]
    authority_key: Option<PathBuf>,
}

/// Make a new grid: its certificate authority, broker and administrator.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Name of the grid.
    #[arg(long)]
    name: String,
    /// Address at which gateways and relays reach the broker, at port 7700 unless told
    /// otherwise.
    #[arg(long, value_name = "HOST[:PORT]")]
    address: String,
}

/// Print a join token: for a site, or for one service.
///
/// With --nodes the token is a site's: so many nodes of one owner join with it. With
/// --gateways as well, so many of the site's front-ends do, as gateways; `isthmus up` does
/// both. A gateway opens connections for the nodes of all owners, so give that right to who
/// runs the site only. With --role a token is for one service and good once. It is a secret
/// until it is used up or has expired. Works without the broker running, where the grid was
/// made.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["nodes", "role"]))]
pub(crate) struct InviteArgs {
    #[command(flatten)]
    state: StateArgs,
    /// For a whole site: how many nodes of its owner may join.
    #[arg(long, value_name = "N", requires = "site", requires = "owner", value_parser = number)]
    nodes: Option<u32>,
    /// For so many front-ends of the site as well, its gateways; without it for none.
    #[arg(long, value_name = "N", requires = "nodes", value_parser = number)]
    gateways: Option<u32>,
    /// Each node that joins may bring further nodes by the site's batch scheduler, so many at one
    /// time; without it none.
    #[arg(long, value_name = "N", requires = "owner", value_parser = number)]
    pilot_nodes: Option<u32>,
    /// For one service: its role.
    #[arg(long)]
    role: Option<InvitedRole>,
    /// Site of a gateway or an agent.
    #[arg(long)]
    site: Option<Label>,
    /// Name of the node or relay, or of one of several gateways of a site;
    /// without it, `isthmus join` chooses. An administrator needs one.
    #[arg(long, conflicts_with = "nodes")]
    name: Option<Label>,
    /// User whose processes an agent may start; an agent needs one.
    #[arg(long, value_name = "USER", required_if_eq("role", "agent"))]
    owner: Option<Owner>,
    /// How long the token is good, at most a year. By default a week for a site, and an
    /// hour for one service.
    #[arg(long, value_name = "TIME", value_parser = validity)]
    expires: Option<Duration>,
    /// Write the token to this file, for its owner only, rather than to stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Reads for how long a token is to be good.
fn validity(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
    const SHORTEST: Duration = Duration::from_secs(1);
    let read = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match read {
        _ if read > LONGEST => Err("a token is good for at most a year".to_owned()),
        _ if read < SHORTEST => Err("it would be over before anybody could use it".to_owned()),
        _ => Ok(read),
    }
}

/// Roles that join; the broker and the first administrator are made with the grid.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum InvitedRole {
    /// The service on a site's front-end.
    Gateway,
    /// The service on a node.
    Agent,
    /// A service that splices two outgoing connections.
    Relay,
    /// A further person who runs the grid.
    Admin,
}

impl From<InvitedRole> for Role {
    fn from(role: InvitedRole) -> Self {
        match role {
            InvitedRole::Gateway => Self::Gateway,
            InvitedRole::Agent => Self::Agent,
            InvitedRole::Relay => Self::Relay,
            InvitedRole::Admin => Self::Admin,
        }
    }
}

/// Runs `isthmus grid`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(command: GridCommand) -> anyhow::Result<()> {
    match command {
        GridCommand::Init(args) => init(&args).await,
        GridCommand::Invite(args) => invite(args),
        GridCommand::Sign(args) => sign(&args),
        GridCommand::List(args) => members::list(args).await,
        GridCommand::Revoke(args) => members::revoke(args, false).await,
        GridCommand::Remove(args) => members::revoke(args, true).await,
    }
}

fn sign(args: &SignArgs) -> anyhow::Result<()> {
    let directory = args.state.directory();
    let key = args.authority_key.clone().unwrap_or_else(|| directory.join(KEY_FILE));
    let ends = Authority::renew_signing(&directory, &key, SystemTime::now())?;
    let ends = humantime::format_rfc3339_seconds(ends);
    let text =
        format!("The new signing certificate ends at {ends}.\nA running broker uses it within an hour.\n");
    output::print(&(), &text, false)
}

async fn init(args: &InitArgs) -> anyhow::Result<()> {
    let directory = args.state.directory_to_make()?;
    let address = with_port(&args.address, DEFAULT_PORT);
    let state = State::create(&directory, &args.name, &address, SystemTime::now())?;
    let option = args.state.option();
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let mut text = format!(
        "Made grid {name} in {state}.\n  \
           start its broker      isthmus up{option}\n                        \
                                 (others reach it at {address}, and a relay at port {relay_port})\n  \
           invite a site         isthmus grid invite{option} --site SITE --owner USER --nodes N --gateways 1 --out SITE.token\n  \
           see what is going on  isthmus status --state {admin}\n\
         ca-key.pem in there is the grid's authority: with it, any identity can be made.\n\
         Move it to a safe place. Only isthmus grid sign needs it, once a year (--authority-key FILE).\n",
        name = state.grid.name,
        relay_port = isthmus_relay::DEFAULT_PORT,
        state = directory.display(),
        admin = directory.join(ADMIN_DIRECTORY).display(),
    );
    if port != DEFAULT_PORT.to_string() {
        text += &format!(
            "If port {port} isn't forwarded to {DEFAULT_PORT}, set `listen` in section [broker] of {}.\n\
             With the same `listen` in section [relay] its relay is at port {port}, too: sites need let out no other.\n",
            directory.join(CONFIG_FILE).display()
        );
    }
    output::print(&(), &text, false)?;
    if let Some(warning) = own_address::unknown(&address).await {
        output::message(&warning);
    }
    Ok(())
}

fn invite(args: InviteArgs) -> anyhow::Result<()> {
    let directory = args.state.directory();
    let state = State::load(&directory)?;
    start_audit(&directory)?;
    let good = args.expires.unwrap_or(if args.nodes.is_some() { SITE_VALIDITY } else { DEFAULT_VALIDITY });
    let expires = SystemTime::now().checked_add(good).context("--expires is too long")?;
    let invitation = Invitation {
        grid: state.grid.name.clone(),
        role: args.role.map_or(Role::Agent, Role::from),
        site: args.site,
        name: args.name,
        owner: args.owner,
        nodes: args.nodes,
        gateways: args.gateways.unwrap_or_default(),
        pilot_nodes: args.pilot_nodes.unwrap_or_default(),
        expires,
        broker: state.grid.address.clone(),
    };
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation)?;
    record_invitation(&invitation);
    match &args.out {
        Some(path) => files::write(path, format!("{token}\n").as_bytes(), 0o600)?,
        None => writeln!(std::io::stdout(), "{token}").context("cannot write the token")?,
    }
    // A script that reads the token needs no words.
    if args.out.is_some() || std::io::stdout().is_terminal() {
        output::write(&usage(&invitation, good, args.out.as_deref()));
    }
    Ok(())
}

/// The lines that tell what a token is good for, and how it is used.
fn usage(invitation: &Invitation, good: Duration, file: Option<&Path>) -> String {
    let until = humantime::format_rfc3339_seconds(invitation.expires);
    let text = |part: &Option<_>| part.as_ref().map(Label::to_string).unwrap_or_default();
    let token = file.map_or_else(String::new, |file| format!(" --token {}", file.display()));
    let (site, is_gateway) = (text(&invitation.site), invitation.gateways > 0);
    let mut lines = match invitation.nodes {
        Some(nodes) => format!(
            "Good for {nodes} of site {site}, of user {owner}, and for {gateways}, until {until}.\n{front_end}  \
               on each of its nodes     isthmus up{token} --via FRONT-END\n",
            nodes = count(nodes.into(), "node"),
            gateways = match invitation.gateways {
                0 => "no gateway".to_owned(),
                gateways => format!("{} of it", count(gateways.into(), "gateway")),
            },
            front_end = match is_gateway {
                true => format!("  on the site's front-end  isthmus up{token}\n"),
                false => String::new(),
            },
            owner = invitation.owner.as_ref().map(Owner::as_str).unwrap_or_default(),
        ),
        None => {
            let via = if invitation.role == Role::Agent { " --via FRONT-END" } else { "" };
            format!(
                "Good once, for {}, until {until}. On the other machine: isthmus up{token}{via}\n",
                service(invitation, &site)
            )
        }
    };
    if invitation.pilot_nodes > 0 {
        lines += &format!(
            "On a login node whose batch scheduler is to give nodes: isthmus up --submit slurm{token} --via FRONT-END\n  \
             (for {} at one time)\n",
            count(invitation.pilot_nodes.into(), "node")
        );
    }
    lines += "It is a secret: carry it over as you would a password.\n";
    if is_gateway || invitation.role == Role::Gateway {
        lines += &format!(
            "A gateway opens connections for all nodes of site {site}, whoever owns them. So give it to who runs the \
             site, and to other users tokens without --gateways.\n"
        );
    }
    if good > LONG {
        lines += "That is long: whoever finds it may join until then. --expires TIME shortens it.\n";
    }
    lines
}

/// What a member becomes that joins with a token for one service.
fn service(invitation: &Invitation, site: &str) -> String {
    let owner = invitation.owner.as_ref().map(Owner::as_str).unwrap_or_default();
    match invitation.role {
        Role::Gateway => format!("a gateway of site {site}"),
        Role::Agent => format!("a node of site {site}, of user {owner}"),
        Role::Relay => "a relay".to_owned(),
        Role::Admin => "an administrator of the grid".to_owned(),
        Role::Broker => "a broker".to_owned(),
    }
}

/// The log of the broker of this state directory, as its own isthmus.toml names it.
fn start_audit(directory: &Path) -> anyhow::Result<()> {
    let broker = Config::load(None, directory)?.broker;
    audit::start(broker.audit_log.as_deref(), broker.audit_format, directory)?;
    Ok(())
}

fn record_invitation(invitation: &Invitation) {
    let until = humantime::format_rfc3339_seconds(invitation.expires);
    let subject = format!("{invitation} until {until}");
    audit::Entry::done("invite").by_user(nix::unistd::getuid().as_raw()).about(subject).record();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The date of a token's end must have four digits of a year.
    #[test]
    fn a_token_is_good_for_a_year_at_most() {
        assert!(validity("365days").is_ok());
        for text in ["367days", "99999999999999h", "1", "", "0s", "1ms"] {
            assert!(validity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_token_is_for_is_said() {
        let invitation = Invitation {
            grid: "demo".to_owned(),
            role: Role::Agent,
            site: "alpha".parse().ok(),
            name: None,
            owner: "ada".parse().ok(),
            nodes: Some(16),
            gateways: 0,
            pilot_nodes: 0,
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            broker: "broker.example.org:7700".to_owned(),
        };
        let file = Some(Path::new("alpha.token"));
        let (gateway, all) =
            ("on the site's front-end  isthmus up --token alpha.token\n", "whoever owns them");
        for (gateways, want, is_gateway) in [
            (0, "16 nodes of site alpha, of user ada, and for no gateway, until 2027-01-15T08:00:00Z", false),
            (1, "16 nodes of site alpha, of user ada, and for 1 gateway of it, until 2027", true),
            (2, "and for 2 gateways of it, until", true),
        ] {
            let text = usage(&Invitation { gateways, ..invitation.clone() }, SITE_VALIDITY, file);
            assert!(text.contains(want) && text.contains("--token alpha.token --via FRONT-END\n"), "{text}");
            assert_eq!((text.contains(gateway), text.contains(all)), (is_gateway, is_gateway), "{text}");
            assert!(!text.contains("That is long"), "{text}");
        }
        let one = Invitation { nodes: None, ..invitation };
        let text = usage(&one, LONG * 2, None);
        assert!(text.contains("Good once") && text.contains("That is long"), "{text}");
        let file = Some(Path::new("n1.token"));
        for (role, good, want) in [
            (
                Role::Agent,
                "a node of site alpha, of user ada, until",
                "isthmus up --token n1.token --via FRONT-END\n",
            ),
            (Role::Gateway, "a gateway of site alpha, until", "isthmus up --token n1.token\n"),
            (Role::Relay, "a relay, until", "isthmus up --token n1.token\n"),
            (Role::Admin, "an administrator of the grid, until", "isthmus up --token n1.token\n"),
        ] {
            let text = usage(&Invitation { role, ..one.clone() }, SITE_VALIDITY, file);
            assert!(text.contains(good) && text.contains(want), "{role}: {text}");
            assert_eq!(text.contains(all), role == Role::Gateway, "{role}: {text}");
        }
    }
}
