//! A carrier that another node has dialed.

use std::io;
use std::sync::Arc;

use isthmus_carry::trunk::accept::{hello, refuse};
use isthmus_identity::secured::Secured;
use isthmus_identity::{Identity, Role as PartyRole};
use isthmus_net::dial::ends;
use isthmus_trunk::{Reason, Role};
use isthmus_wire::GridName;

use super::open::{self, Made};
use super::registry::Last;
use crate::jobs::node::Node;

/// Joins a carrier to its trunk, or makes the trunk.
///
/// # Errors
/// If the carrier is refused; the other end is told.
pub(crate) async fn carrier(node: &Arc<Node>, mut tls: Secured) -> io::Result<()> {
    let (hello, first) = hello(&mut tls).await?;
    let (peer, name) = match other_end(node, tls.identity()) {
        Ok(found) => found,
        Err(reason) => return refuse(tls, Reason::Done, reason).await,
    };
    if let Some(standing) = node.trunks().find(&peer, hello.trunk) {
        tracing::debug!(%peer, "a trunk's new carrier");
        return standing.kept.join(tls, first).await.map(drop).map_err(io::Error::other);
    }
    if hello.standing || hello.role != Role::Initiator {
        return refuse(tls, Reason::Trunk, format!("{} has no such trunk any more", node.name())).await;
    }
    let last = Last { way: None, ends: ends(tls.get_ref().0).into() };
    let (trunk, notices) = node.plane().trunk(open::own_config(node, Role::Acceptor, hello.trunk))?;
    let made = Made { id: hello.trunk, trunk, notices, peer, last, redial: None };
    open::start(node, &name, tls, first, made).await.map(drop).map_err(io::Error::other)
}

/// The agent at the other end of a carrier.
///
/// # Errors If it is no agent of the same owner; the text is for the other end.
fn other_end(node: &Node, identity: Option<&Identity>) -> Result<(Identity, GridName), String> {
    let denied = || format!("{} has trunks with agents of user {} only", node.name(), node.owner());
    let identity = identity
        .filter(|identity| identity.role() == PartyRole::Agent && identity.owner() == Some(node.owner()))
        .ok_or_else(denied)?;
    let name = identity.grid_name().ok_or_else(denied)?;
    Ok((identity.clone(), name))
}
