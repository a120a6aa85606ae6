//! What a state directory holds, and what a token makes of it.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use isthmus_broker::state::{State, StateError};
use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::token::{BearerToken, JoinToken};
use isthmus_identity::{Credentials, Identity, Role};

use crate::config::{CONFIG_FILE, Config, with_port};
use crate::join::{self, JoinOptions};
use crate::service::Service;

use super::start;

/// What a state directory holds.
#[derive(Debug)]
pub(super) enum Member {
    /// The state of the broker of the grid of this name.
    Grid(String),
    Joined(Credentials),
}

impl Member {
    /// What a directory holds; `None` if nothing yet.
    ///
    /// # Errors
    /// If it can't be read.
    pub(super) fn of(directory: &Path) -> anyhow::Result<Option<Self>> {
        match State::load(directory) {
            Ok(state) => return Ok(Some(Self::Grid(state.grid.name))),
            Err(StateError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match Credentials::load(directory) {
            Ok(credentials) => Ok(Some(Self::Joined(credentials))),
            Err(CredentialsError::Missing { .. }) => Ok(None),
            Err(error) => Err(error).context("this machine's identity can't be read"),
        }
    }

    /// What a directory holds, or what it holds after a join by the token; `None` without either. A
    /// member whose certificate has ended joins again by the token.
    ///
    /// # Errors If joining fails, or the token is for another member than the one that is there.
    pub(super) async fn of_or_joined(
        directory: &Path,
        token: Option<&str>,
        options: impl FnOnce() -> anyhow::Result<JoinOptions>,
    ) -> anyhow::Result<Option<Self>> {
        let known = Self::of(directory)?;
        match (&known, token) {
            (None, Some(token)) => {
                return Ok(Some(Self::Joined(join::join(token, directory, options()?).await?)));
            }
            (Some(member), Some(token)) => member.check(directory, &BearerToken::read(token)?.public)?,
            (_, None) => {}
        }
        if let Some(Self::Joined(credentials)) = &known
            && credentials.check(SystemTime::now()).is_err()
        {
            let identity = credentials.identity();
            let Some(token) = token else {
                bail!("the certificate of {identity} has ended: isthmus up --token FILE, with a new token");
            };
            return Ok(Some(Self::Joined(join_again(directory, token, credentials).await?)));
        }
        Ok(known)
    }

    /// Refuses a token that is not for this member.
    fn check(&self, directory: &Path, token: &JoinToken) -> anyhow::Result<()> {
        let directory = directory.display();
        let elsewhere = "Beside it on this machine, another member has its own directory: isthmus up --state DIR \
                         --token FILE";
        let credentials = match self {
            Self::Grid(name) => {
                bail!("{directory} holds the grid {name} itself, which needs no token. {elsewhere}")
            }
            Self::Joined(credentials) => credentials,
        };
        let identity = credentials.identity();
        let grid = &token.invitation.grid;
        let anew = format!(
            "To join anew there: isthmus down; isthmus join --force --token FILE (and --via FRONT-END on a node); \
             isthmus up. {elsewhere}"
        );
        if !credentials.are_of(&token.authority) {
            bail!(
                "{directory} belongs to {identity} of another grid than {grid}, which the token is for. {anew}"
            );
        }
        if !is_for(token, identity) {
            bail!(
                "{directory} belongs to {identity}, and the token is for another member ({}). {anew}",
                token.invitation
            );
        }
        Ok(())
    }

    /// The service that the member runs.
    ///
    /// # Errors
    /// If it runs none.
    pub(super) fn service(&self) -> anyhow::Result<Service> {
        match self {
            Self::Grid(_) => Ok(Service::Broker),
            Self::Joined(credentials) => {
                let identity = credentials.identity();
                Service::of(identity.role())
                    .with_context(|| format!("{identity} runs no service: use isthmus status, run and grid"))
            }
        }
    }

    /// Where the member's service attaches, in words; `None` for a broker.
    pub(super) fn upstream(&self) -> Option<String> {
        let Self::Joined(credentials) = self else { return None };
        let name = if credentials.identity().role() == Role::Agent { "its gateway" } else { "the broker" };
        Some(format!("{name} at {}", credentials.upstream()))
    }
}

/// Has the member of a directory attach to another front-end from now on, if `via` names one. Its
/// service is ended, to be started anew.
///
/// # Errors
/// If its record can't be written, or its service can't be ended.
pub(super) async fn moved(member: Member, directory: &Path, via: Option<&str>) -> anyhow::Result<Member> {
    let (Member::Joined(credentials), Some(via)) = (&member, via) else { return Ok(member) };
    let via = with_port(via, isthmus_gateway::DEFAULT_PORT);
    if credentials.upstream() == via {
        return Ok(member);
    }
    if Config::load(None, directory)?.agent.gateway.is_some() {
        let file = directory.join(CONFIG_FILE);
        bail!("{} names the gateways of this node ([agent] gateway): change them there", file.display());
    }
    let moved = credentials.with_upstream(&via)?;
    moved.save(directory).context("cannot note the front-end")?;
    start::halt(member.service()?, directory).await?;
    Ok(Member::Joined(moved))
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grid(name) => write!(f, "The broker of grid {name}"),
            Self::Joined(credentials) => credentials.identity().fmt(f),
        }
    }
}

/// Whether a token makes a member of this identity.
fn is_for(token: &JoinToken, identity: &Identity) -> bool {
    let of_site = token.invitation.nodes.is_some();
    let gateway = of_site && identity.role() == Role::Gateway;
    let name = token.invitation.name.is_none().then(|| identity.name().clone());
    token.identity(name, gateway).is_ok_and(|made| made == *identity)
}

/// Joins again as the member that the directory holds, by a token that is for it.
///
/// # Errors
/// The grid's refusal.
pub(super) async fn join_again(
    directory: &Path,
    token: &str,
    credentials: &Credentials,
) -> anyhow::Result<Credentials> {
    let identity = credentials.identity();
    let named = BearerToken::read(token)?.public.invitation.name.is_some();
    let options = JoinOptions {
        name: (!named).then(|| identity.name().clone()),
        via: (identity.role() == Role::Agent).then(|| credentials.upstream().to_owned()),
        force: true,
    };
    join::join(token, directory, options).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use isthmus_identity::Authority;
    use isthmus_identity::credentials::SigningRequest;
    use isthmus_identity::token::Invitation;
    use isthmus_service::mac::Secret;

    use super::*;

    fn member(authority: &Authority, uri: &str) -> Member {
        let request = SigningRequest::new().unwrap();
        let identity = Identity::from_uri(uri).unwrap();
        let certificate = authority.sign(&identity, request.public_key(), SystemTime::now()).unwrap();
        let credentials = Credentials::new(&request, &certificate, authority.certificate_pem(), "fe:7710");
        Member::Joined(credentials.unwrap())
    }

    fn token(authority: &Authority, change: impl FnOnce(&mut Invitation)) -> JoinToken {
        let mut invitation = Invitation {
            grid: "demo".to_owned(),
            role: Role::Agent,
            site: "alpha".parse().ok(),
            name: None,
            owner: "ada".parse().ok(),
            nodes: Some(4),
            gateways: 1,
            pilot_nodes: 0,
            expires: SystemTime::now() + Duration::from_secs(60),
            broker: "broker:7700".to_owned(),
        };
        change(&mut invitation);
        let token = JoinToken::mint(&Secret::random(), authority.certificate(), &invitation).unwrap();
        BearerToken::read(&token).unwrap().public
    }

    #[tokio::test]
    async fn a_node_moves_to_another_front_end() {
        let authority = Authority::create("demo", SystemTime::now()).unwrap();
        let node = || member(&authority, "isthmus:///agent/alpha/n1/ada");
        let directory = tempfile::tempdir().unwrap();
        let saved = || Credentials::load(directory.path()).map(|saved| saved.upstream().to_owned()).ok();
        for (via, want) in
            [(None, None), (Some("fe"), None), (Some("fe2"), Some("fe2:7710")), (Some("fe:9"), Some("fe:9"))]
        {
            let moved = moved(node(), directory.path(), via).await.unwrap();
            assert_eq!(saved().as_deref(), want, "{via:?}");
            if let (Member::Joined(moved), Some(want)) = (moved, want) {
                assert_eq!(moved.upstream(), want);
            }
        }
        std::fs::write(directory.path().join(CONFIG_FILE), "[agent]\ngateway = \"fe:7710\"\n").unwrap();
        let error = moved(node(), directory.path(), Some("fe3")).await.unwrap_err().to_string();
        assert!(error.contains("[agent] gateway"), "{error}");
        assert_eq!(saved().as_deref(), Some("fe:9"));
    }

    #[test]
    fn a_token_for_another_member_is_refused() {
        let now = SystemTime::now();
        let (authority, other) =
            (Authority::create("demo", now).unwrap(), Authority::create("demo", now).unwrap());
        let site = token(&authority, |_| {});
        let beta = token(&authority, |token| token.site = "beta".parse().ok());
        let berta = token(&authority, |token| token.owner = "berta".parse().ok());
        let nodes = token(&authority, |token| token.gateways = 0);
        let named = |name: &str| {
            token(&authority, |token| {
                (token.nodes, token.gateways, token.name) = (None, 0, name.parse().ok());
            })
        };
        let (n1, n2) = (named("n1"), named("n2"));
        let relay = token(&authority, |token| {
            (token.role, token.site, token.owner) = (Role::Relay, None, None);
            (token.nodes, token.gateways) = (None, 0);
        });
        let (agent, gateway) = ("isthmus:///agent/alpha/n1/ada", "isthmus:///gateway/alpha/gateway/");
        for (case, uri, token, want) in [
            ("the site's, a node", agent, &site, None),
            ("the site's, its gateway", gateway, &site, None),
            ("the site's, one of several", "isthmus:///gateway/alpha/login2/", &site, None),
            ("the site's, for nodes only, a node", agent, &nodes, None),
            ("the site's, for nodes only, its gateway", gateway, &nodes, Some("another member")),
            ("its own", agent, &n1, None),
            ("another node's", agent, &n2, Some("another member")),
            ("another site's", agent, &beta, Some("another member")),
            ("another site's gateway", gateway, &beta, Some("another member")),
            ("another owner's", agent, &berta, Some("another member")),
            ("one node's", gateway, &n1, Some("another member")),
            ("a relay's, unnamed", "isthmus:///relay//r1/", &relay, None),
            ("a relay's", agent, &relay, Some("another member")),
        ] {
            let checked = member(&authority, uri).check(Path::new("/state"), token);
            let error = checked.map_err(|error| error.to_string()).err();
            assert_eq!(error.is_some(), want.is_some(), "{case}: {error:?}");
            let told = |error: &String| {
                ["/state belongs to", "join --force", "--state DIR", want.unwrap_or_default()]
                    .iter()
                    .all(|part| error.contains(part))
            };
            assert!(error.iter().all(told), "{case}: {error:?}");
        }
        let error = member(&other, agent).check(Path::new("/state"), &site).unwrap_err().to_string();
        assert!(error.contains("agent n1.alpha of another grid than demo"), "{error}");
        let error =
            Member::Grid("demo".to_owned()).check(Path::new("/state"), &site).unwrap_err().to_string();
        assert!(error.contains("holds the grid demo itself"), "{error}");
    }
}
