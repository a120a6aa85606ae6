//! A carrier that another node has dialed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::secured::Secured;
use isthmus_net::{Identity, Role as PartyRole};
use isthmus_reach::carrier;
use isthmus_trunk::{Frame, Hello, Reason, Role, Scope};
use isthmus_wire::GridName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::open::{self, Made};
use super::registry::Last;
use crate::jobs::node::Node;

/// How long the first HELLO may take.
const HELLO: Duration = Duration::from_secs(10);
/// More than the longest HELLO.
const HELLO_BYTES: usize = 512;

/// Joins a carrier to its trunk, or makes the trunk.
///
/// # Errors
/// If the carrier is refused; the other end is told.
pub(crate) async fn carrier(node: &Arc<Node>, mut tls: Secured) -> io::Result<()> {
    let (hello, first) = timeout(HELLO, hello(&mut tls)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let (peer, name) = match other_end(node, tls.identity()) {
        Ok(found) => found,
        Err(reason) => return refuse(tls, Reason::Done, reason).await,
    };
    if let Some(standing) = node.trunks().find(&peer, hello.trunk) {
        tracing::debug!(%peer, "a trunk's new carrier");
        return open::join(&standing, tls, first).await.map(drop).map_err(io::Error::other);
    }
    if hello.standing || hello.role != Role::Initiator {
        return refuse(tls, Reason::Trunk, format!("{} has no such trunk any more", node.name())).await;
    }
    let last = Last { way: None, ends: carrier::ends(tls.get_ref().0).into() };
    let (trunk, notices) = node.plane().trunk(open::config(Role::Acceptor, hello.trunk))?;
    let made = Made { id: hello.trunk, trunk, notices, peer, last, redial: None };
    open::start(node, &name, tls, first, made).await.map(drop).map_err(io::Error::other)
}

/// The first HELLO, and all bytes that were read.
async fn hello(tls: &mut Secured) -> io::Result<(Hello, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(HELLO_BYTES);
    loop {
        if let Some(hello) = Hello::peek(&bytes).map_err(io::Error::other)? {
            return Ok((hello, bytes));
        }
        if bytes.len() >= HELLO_BYTES {
            return Err(io::Error::other("the first frame is not a HELLO"));
        }
        let mut more = (&mut *tls).take((HELLO_BYTES - bytes.len()) as u64);
        if more.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Who is at the other end: an agent of the same owner.
fn other_end(node: &Node, identity: Option<&Identity>) -> Result<(Identity, GridName), String> {
    let denied = || format!("{} has trunks with agents of user {} only", node.name(), node.owner());
    let identity = identity
        .filter(|identity| identity.role() == PartyRole::Agent && identity.owner() == Some(node.owner()))
        .ok_or_else(denied)?;
    let name = identity.grid_name().ok_or_else(denied)?;
    Ok((identity.clone(), name))
}

async fn refuse(mut tls: Secured, reason: Reason, text: String) -> io::Result<()> {
    let close = Frame::Close { scope: Scope::Trunk, reason, text: text.clone() };
    let mut bytes = Vec::new();
    close.encode().write_to(&mut bytes);
    let telling = async {
        tls.write_all(&bytes).await?;
        tls.shutdown().await
    };
    timeout(HELLO, telling).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
