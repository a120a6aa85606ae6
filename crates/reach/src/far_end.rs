//! Verifies the party at the other end.

use isthmus_identity::secured::{ClientTls, Secured};
use isthmus_identity::{Identity, Owner, Role};
use isthmus_service::{Deadline, Late};
use isthmus_wire::{GridName, Label};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use crate::carrier::keep_alive;

/// The party that must be at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The role that its certificate must name.
    pub role: Role,
    /// The server name of its certificate, as [`Identity::server_name`] gives it.
    pub server_name: String,
    /// The name that its certificate must have, where several parties share a server name; `None`
    /// where the server name tells.
    pub name: Option<Label>,
    /// The owner that its certificate must name; `None` for any.
    pub owner: Option<Owner>,
}

/// Why the other end is not the expected party.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// The handshake failed, or another party is at the other end.
    #[error("{0}")]
    Failed(String),
    /// The expected party is there, and belongs to another user. No other way to it helps.
    #[error("{0}")]
    OtherOwner(String),
}

impl Expected {
    /// Expects the agent of a node; `owner` is `None` for any owner.
    pub fn agent(node: &GridName, owner: Option<&Owner>) -> Self {
        Self { role: Role::Agent, server_name: node.to_string(), name: None, owner: owner.cloned() }
    }

    /// Expects the gateway that has this grid name. All gateways of a site share a server name.
    pub fn gateway(name: &GridName) -> Self {
        let server_name = Identity::gateway_server_name(&name.site);
        Self { role: Role::Gateway, server_name, name: Some(name.node.clone()), owner: None }
    }

    /// Checks that an identity is the expected party's. The server name includes the site.
    ///
    /// # Errors
    /// [`Unverified`] says why the identity is another.
    pub fn check(&self, identity: Option<&Identity>) -> Result<(), Unverified> {
        let identity = identity
            .filter(|identity| identity.role() == self.role && identity.server_name() == self.server_name)
            .filter(|identity| self.name.as_ref().is_none_or(|name| identity.name() == name))
            .ok_or_else(|| Unverified::Failed(format!("the other end is {identity:?}")))?;
        match (&self.owner, identity.owner()) {
            (Some(own), theirs) if theirs != Some(own) => Err(Unverified::OtherOwner(format!(
                "the certificate of {identity} names {}, and this agent works for user {own}: \
                 it sends no job and no data there",
                theirs.map_or_else(|| "no user".to_owned(), |owner| format!("user {owner}")),
            ))),
            _ => Ok(()),
        }
    }
}

/// Verifies by TLS that the expected party is at the other end.
///
/// # Errors
/// [`Unverified`] says why it isn't.
pub async fn secure(
    stream: TcpStream,
    expected: &Expected,
    tls: &ClientTls,
    deadline: Deadline,
) -> Result<Secured, Unverified> {
    let name = &expected.server_name;
    let ends = isthmus_net::dial::ends(&stream);
    let failed = |reason: String| Unverified::Failed(format!("TLS with {name} ({ends}): {reason}"));
    keep_alive(&stream);
    let server = ServerName::try_from(name.clone()).map_err(|error| failed(error.to_string()))?;
    let handshake = tls.connect(server, stream);
    let stream = deadline
        .bound(handshake)
        .await
        .map_err(|late: Late| failed(late.to_string()))?
        .map_err(|error| failed(error.to_string()))?;
    match expected.check(stream.identity()) {
        Ok(()) => Ok(stream),
        Err(Unverified::Failed(reason)) => Err(failed(reason)),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_name_site_and_owner_are_checked() {
        let anna: Owner = "anna".parse().unwrap();
        let node: GridName = "n1.alpha".parse().unwrap();
        let check = |owner, uri: &str| {
            let identity = Identity::from_uri(uri).unwrap();
            Expected::agent(&node, owner).check(Some(&identity)).map_err(|error| match error {
                Unverified::Failed(_) => "another party",
                Unverified::OtherOwner(_) => "another owner",
            })
        };
        for (owner, uri, want) in [
            (Some(&anna), "isthmus:///agent/alpha/n1/anna", Ok(())),
            (Some(&anna), "isthmus:///agent/alpha/n1/berta", Err("another owner")),
            (None, "isthmus:///agent/alpha/n1/berta", Ok(())),
            (Some(&anna), "isthmus:///agent/alpha/n2/anna", Err("another party")),
            (Some(&anna), "isthmus:///agent/beta/n1/anna", Err("another party")),
            (Some(&anna), "isthmus:///relay//n1/anna", Err("another party")),
            (Some(&anna), "isthmus:///gateway/alpha//anna", Err("another party")),
        ] {
            assert_eq!(check(owner, uri), want, "{owner:?} {uri}");
        }
        assert!(Expected::agent(&node, None).check(None).is_err());
    }

    #[test]
    fn a_site_s_gateways_are_told_apart_by_their_names() {
        let expected = Expected::gateway(&"login1.alpha".parse().unwrap());
        for (uri, want) in [
            ("isthmus:///gateway/alpha/login1/", true),
            ("isthmus:///gateway/alpha/login2/", false),
            ("isthmus:///gateway/beta/login1/", false),
            ("isthmus:///agent/alpha/login1/anna", false),
        ] {
            assert_eq!(expected.check(Some(&Identity::from_uri(uri).unwrap())).is_ok(), want, "{uri}");
        }
    }
}
