//! `isthmus grid`: makes a grid, and join tokens for it; lists and revokes its members.

mod members;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use isthmus_broker::config::DEFAULT_PORT;
use isthmus_broker::state::{ADMIN_DIRECTORY, State};
use isthmus_net::authority::KEY_FILE;
use isthmus_net::token::{Invitation, JoinToken};
use isthmus_net::{Authority, Owner, Role, audit, files};
use isthmus_wire::Label;

use crate::config::{Config, StateArgs};
use crate::output;

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
    /// Address at which gateways and relays reach the broker.
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
}

/// Print a join token: the right to one certificate.
///
/// A token is for one service, good once, and a secret until then. Works
/// without the broker running, where the grid was made.
#[derive(Debug, Args)]
pub(crate) struct InviteArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Role of the service.
    #[arg(long)]
    role: InvitedRole,
    /// Site of a gateway or an agent.
    #[arg(long)]
    site: Option<Label>,
    /// Name of the node or relay, or of one of several gateways of a site;
    /// without it, `isthmus join` chooses. An administrator needs one.
    #[arg(long)]
    name: Option<Label>,
    /// User whose processes an agent may start; an agent needs one.
    #[arg(long, value_name = "USER", required_if_eq("role", "agent"))]
    owner: Option<Owner>,
    /// How long the token is good, at most a year.
    #[arg(long, value_name = "TIME", value_parser = validity, default_value = "1h")]
    expires: Duration,
    /// Write the token to this file, for its owner only, rather than to stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Reads a token's validity.
fn validity(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
    let read = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if read <= LONGEST { Ok(read) } else { Err("a token is good for at most a year".to_owned()) }
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
        GridCommand::Init(args) => init(&args),
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
    println!("The new signing certificate ends at {}.", humantime::format_rfc3339_seconds(ends));
    println!("A running broker uses it within an hour.");
    Ok(())
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let directory = args.state.directory();
    let state = State::create(&directory, &args.name, &args.address, SystemTime::now())?;
    let option =
        if args.state.is_given() { format!(" --state {}", directory.display()) } else { String::new() };
    let port = args.address.rsplit_once(':').map_or("", |(_, port)| port);
    println!("Made grid {} in {}.", state.grid.name, directory.display());
    println!("  start its broker      isthmus broker{option}");
    println!("                        (listens on port {DEFAULT_PORT}; others reach it at {})", args.address);
    println!("  invite a gateway      isthmus grid invite{option} --role gateway --site SITE");
    println!("  see what is going on  isthmus status --state {}", directory.join(ADMIN_DIRECTORY).display());
    println!("ca-key.pem in there is the grid's authority: with it, any identity can be made.");
    println!("Move it to a safe place. Only isthmus grid sign needs it, once a year (--authority-key FILE).");
    if port != DEFAULT_PORT.to_string() {
        println!("If port {port} isn't forwarded to {DEFAULT_PORT}, set `listen` in section [broker].");
    }
    Ok(())
}

fn invite(args: InviteArgs) -> anyhow::Result<()> {
    let directory = args.state.directory();
    let state = State::load(&directory)?;
    start_audit(&directory)?;
    let expires = SystemTime::now().checked_add(args.expires).context("--expires is too long")?;
    let invitation = Invitation {
        grid: state.grid.name.clone(),
        role: args.role.into(),
        site: args.site,
        name: args.name,
        owner: args.owner,
        expires,
        broker: state.grid.address.clone(),
    };
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation)?;
    record_invitation(&invitation);
    match &args.out {
        Some(path) => files::write(path, format!("{token}\n").as_bytes(), 0o600)?,
        None => {
            let mut stdout = std::io::stdout();
            writeln!(stdout, "{token}").context("cannot write the token")?;
            if stdout.is_terminal() {
                let good = humantime::format_duration(args.expires);
                output::write(&format!(
                    "Good once, for {good}. On the other machine: isthmus join, and paste it.\n"
                ));
            }
        }
    }
    Ok(())
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
    use isthmus_net::token::DEFAULT_VALIDITY;

    #[test]
    fn the_default_of_the_help_is_the_token_s() {
        assert_eq!(humantime::parse_duration("1h").unwrap(), DEFAULT_VALIDITY);
    }

    /// The date of a token's end must have four digits of a year.
    #[test]
    fn a_token_is_good_for_a_year_at_most() {
        assert!(super::validity("365days").is_ok());
        for text in ["367days", "99999999999999h", "1", ""] {
            assert!(super::validity(text).is_err(), "{text}");
        }
    }
}
