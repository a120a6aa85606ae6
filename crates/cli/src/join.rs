//! `isthmus join`: exchanges a join token for an identity.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_front::output;
use isthmus_front::state::StateArgs;
use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::token::BearerToken;
use isthmus_identity::{Credentials, Identity, Owner, Role};
use isthmus_rpc::enrol;
use isthmus_rpc::enrol::JoinError;
use isthmus_service::files;
use isthmus_wire::Label;

use crate::config::{host_label, with_port};

/// Longest token that is read, in bytes.
const MAX_TOKEN: u64 = 64 * 1024;

/// Join a grid: exchange a join token for an identity.
///
/// The token is read from a file or from stdin. It is never on the command line,
/// because other users can see that.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    state: StateArgs,
    /// File with the token, - for stdin.
    #[arg(long, value_name = "FILE", default_value = "-")]
    token: PathBuf,
    /// Name of this node or relay, if the token has none; by default the machine's
    /// host name. A gateway needs one only if its site has several.
    #[arg(long)]
    name: Option<Label>,
    /// Where to enrol and, from then on, attach: for agents, the gateway of their
    /// site, at port 7710 unless told otherwise. Gateways and relays have the broker's
    /// address from the token. With a site's token, who gives none joins as its gateway, if
    /// the token has that right.
    #[arg(long, value_name = "HOST[:PORT]")]
    via: Option<String>,
    /// Replace another identity in the state directory.
    #[arg(long)]
    force: bool,
}

/// Runs `isthmus join`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: JoinArgs) -> anyhow::Result<()> {
    let text = read_token(&args.token)?;
    let grid = BearerToken::read(&text)?.public.invitation.grid;
    let directory = args.state.directory_to_make()?;
    let options = JoinOptions { name: args.name, via: args.via, force: args.force };
    let credentials = join(&text, &directory, options).await?;
    let option = args.state.option();
    let next = match credentials.identity().role() {
        Role::Admin => format!("See what is going on: isthmus status{option}"),
        role => format!("it attaches to {}. Start it: isthmus {role}{option}", credentials.upstream()),
    };
    output::print(&(), &format!("Joined grid {grid} as {}; {next}\n", credentials.identity()), false)
}

/// What a machine joins as, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct JoinOptions {
    /// The wanted name of the node, relay or gateway. By default a node or relay gets the host's.
    pub(crate) name: Option<Label>,
    /// The address of the gateway to enrol at and to attach to; `None` to use the token's.
    pub(crate) via: Option<String>,
    /// Whether to replace another identity in the directory.
    pub(crate) force: bool,
}

/// Exchanges a token for an identity in a state directory.
///
/// # Errors
/// The message for the user.
pub(crate) async fn join(text: &str, directory: &Path, options: JoinOptions) -> anyhow::Result<Credentials> {
    let token = BearerToken::read(text)?.public;
    let gateway = token.invitation.nodes.is_some() && options.via.is_none();
    let is_unnamed = options.name.is_none();
    let name = match (&options.name, &token.invitation.name, token.invitation.role) {
        (None, None, Role::Agent | Role::Relay) if !gateway => Some(host_label()?),
        _ => options.name,
    };
    // This is checked before the token is spent.
    let identity = token.identity(name.clone(), gateway)?;
    check_directory(directory, &identity, options.force)?;
    let via = options.via.map(|via| with_port(&via, isthmus_gateway::DEFAULT_PORT));
    // Another user's node of this machine may have its name.
    let is_own_choice = is_unnamed && token.invitation.name.is_none() && !gateway;
    let other = name.as_ref().zip(token.invitation.owner.as_ref()).filter(|_| is_own_choice);
    let other = other.and_then(|(host, owner)| name_of_user(host, owner));
    let joined = match (enrol::join_as(text, name, via.as_deref(), gateway).await, other) {
        (Err(JoinError::NameTaken(_)), Some(other)) => {
            let host = identity.name();
            output::message(&format!("{host} is the node of another user of the grid: this one is {other}"));
            enrol::join_as(text, Some(other), via.as_deref(), gateway).await
        }
        (joined, _) => joined,
    };
    let credentials = joined?;
    credentials.save(directory)?;
    Ok(credentials)
}

/// A name for this owner's node on a host whose name is taken by a node of another owner; `None` if
/// none can be made.
pub(crate) fn name_of_user(host: &Label, owner: &Owner) -> Option<Label> {
    const LONGEST: usize = 63;
    let allowed = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let owner: String = owner.as_str().chars().map(allowed).collect();
    let owner = owner.trim_matches('-');
    let host: String = host.as_str().chars().take(LONGEST.saturating_sub(1 + owner.len())).collect();
    format!("{}-{owner}", host.trim_end_matches('-')).parse().ok()
}

/// Reads a token from a file, or from stdin if the path is `-`.
///
/// # Errors If it can't be read, or is too long for a token.
pub(crate) fn read_token(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if path != Path::new("-") {
        let cannot = || format!("cannot read {}", path.display());
        let file = std::fs::File::open(path).with_context(cannot)?;
        file.take(MAX_TOKEN + 1).read_to_string(&mut text).with_context(cannot)?;
    } else if std::io::stdin().is_terminal() {
        output::write("Paste the join token and press Enter:\n");
        let line = std::io::stdin().lock().take(MAX_TOKEN + 1).read_line(&mut text);
        line.context("cannot read the token")?;
    } else {
        let whole = std::io::stdin().lock().take(MAX_TOKEN + 1).read_to_string(&mut text);
        whole.context("cannot read the token from stdin")?;
    }
    if u64::try_from(text.len())? > MAX_TOKEN {
        bail!("{} is no join token: it has more than {} KiB", path.display(), MAX_TOKEN / 1024);
    }
    Ok(text)
}

/// Makes the state directory, and refuses one that holds another identity.
fn check_directory(directory: &Path, identity: &Identity, force: bool) -> anyhow::Result<()> {
    files::create_directory(directory)?;
    let former = match Credentials::load(directory) {
        Ok(former) => former,
        Err(CredentialsError::Missing { .. }) => return Ok(()),
        Err(_) if force => return Ok(()),
        Err(error) => return Err(error).context("give --force to replace what is there"),
    };
    let expired = former.check(SystemTime::now()).is_err();
    if former.identity().role() == Role::Broker {
        bail!("{} holds the grid itself; choose another directory with --state", directory.display());
    }
    if force || expired || former.identity() == identity {
        return Ok(());
    }
    bail!(
        "{} holds the identity of {} already, and this token is for {identity}; \
         choose another directory with --state, or give --force",
        directory.display(),
        former.identity()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_further_user_has_both_names() {
        for (host, owner, want) in [
            ("n1", "bob", Some("n1-bob")),
            ("n1", "b.o_b", Some("n1-b-o-b")),
            ("n1", "_bob.", Some("n1-bob")),
            ("n1", "___", None),
            (&"h".repeat(63), "bob", Some(&*format!("{}-bob", "h".repeat(59)))),
            ("n1", &"b".repeat(64), None),
        ] {
            let name = name_of_user(&host.parse().unwrap(), &owner.parse().unwrap());
            assert_eq!(name.as_ref().map(Label::as_str), want, "{host} {owner}");
        }
    }

    #[test]
    fn what_is_no_token_is_not_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "x".repeat(64 * 1024)).unwrap();
        assert_eq!(read_token(&path).unwrap().len(), 64 * 1024);
        for long in [path.as_path(), Path::new("/dev/zero")] {
            if long == path {
                std::fs::write(&path, "x".repeat(64 * 1024 + 1)).unwrap();
            }
            let error = read_token(long).unwrap_err().to_string();
            assert!(error.contains("more than 64 KiB"), "{error}");
        }
        let error = format!("{:#}", read_token(&directory.path().join("none")).unwrap_err());
        assert!(error.starts_with("cannot read ") && error.contains("No such file"), "{error}");
    }
}
