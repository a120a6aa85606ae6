//! Whether a node's agent is at the address that the gateway is to dial for it.
//!
//! An agent itself names the address at which it is let in. Without this check a member
//! could name any host and port that another site's gateway reaches, inside that site
//! too, and send there what it likes. So the gateway shows by TLS that this agent is
//! there, on a connection of its own, while it dials. It remembers the result.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_identity::secured::ClientTls;
use isthmus_net::dial::{SocketOptions, direct};
use isthmus_reach::{Expected, secure};
use isthmus_service::{Deadline, lock};
use isthmus_wire::GridName;

/// How long an agent counts as being at an address after it was verified there.
const VERIFIED: Duration = Duration::from_secs(3600);
/// Most agents that are remembered: more than a grid has in use at a time.
const AGENTS: usize = 16_384;

/// When an agent was verified last. It is locked while the agent is verified, so that others wait
/// for the result.
type Known = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// The agents of other sites that were verified.
pub(crate) struct FarAgents {
    tls: ClientTls,
    known: Mutex<HashMap<(GridName, SocketAddr), Known>>,
}

impl FarAgents {
    pub(crate) fn new(tls: ClientTls) -> Self {
        Self { tls, known: Mutex::default() }
    }

    /// Verifies that this node's agent is at an address. `segment` is the longest segment of the
    /// connection, in bytes; `None` lets the kernel choose it.
    ///
    /// # Errors
    /// If another host or party answers, or if none does.
    pub(crate) async fn verify(
        &self,
        node: &GridName,
        (address, segment): (SocketAddr, Option<u16>),
        deadline: Deadline,
    ) -> Result<(), String> {
        let failed = |reason: &dyn std::fmt::Display| {
            format!(
                "the agent of {node} does not show itself at {address}, which it names as its own: {reason}"
            )
        };
        let known = self.known(node, address);
        let mut since = deadline.bound(known.lock()).await.map_err(|late| failed(&late))?;
        if since.is_some_and(|since| since.elapsed() < VERIFIED) {
            return Ok(());
        }
        let options = SocketOptions { segment, ..SocketOptions::default() };
        let stream = direct(&address.to_string(), options, deadline).await;
        let stream = stream.map_err(|error| failed(&error))?;
        let secured = secure(stream, &Expected::agent(node, None), &self.tls, deadline).await;
        secured.map_err(|error| failed(&error))?;
        *since = Some(Instant::now());
        Ok(())
    }

    fn known(&self, node: &GridName, address: SocketAddr) -> Known {
        let mut all = lock(&self.known);
        if all.len() >= AGENTS {
            // Each is verified anew at its next use.
            all.clear();
        }
        all.entry((node.clone(), address)).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use isthmus_identity::credentials::SigningRequest;
    use isthmus_identity::{Authority, Credentials, Identity};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    fn credentials(authority: &Authority, uri: &str) -> Credentials {
        let (key, identity) = (SigningRequest::new().unwrap(), Identity::from_uri(uri).unwrap());
        let certificate = authority.sign(&identity, key.public_key(), SystemTime::now()).unwrap();
        Credentials::new(&key, &certificate, authority.certificate_pem(), "").unwrap()
    }

    /// A service with this identity. Without credentials, a service that answers every connection
    /// with text.
    async fn service(credentials: Option<Credentials>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                match &credentials {
                    Some(own) => kept.push(own.server_config(&[]).unwrap().accept(stream).await),
                    None => stream.write_all(b"220 welcome\r\n").await.unwrap(),
                }
            }
        });
        address
    }

    #[tokio::test]
    async fn only_the_named_agent_of_the_grid_is_verified() {
        let (grid, other) = (
            Authority::create("demo", SystemTime::now()).unwrap(),
            Authority::create("demo", SystemTime::now()).unwrap(),
        );
        let gateway = credentials(&grid, "isthmus:///gateway/alpha/gateway/");
        let far_agents = FarAgents::new(gateway.client_config(&[]).unwrap());
        let node: GridName = "n1.beta".parse().unwrap();
        for (of, uri, want) in [
            (&grid, "isthmus:///agent/beta/n1/anna", true),
            (&grid, "isthmus:///agent/beta/n2/anna", false),
            (&grid, "isthmus:///agent/alpha/n1/anna", false),
            (&grid, "isthmus:///gateway/beta/gateway/", false),
            (&other, "isthmus:///agent/beta/n1/anna", false),
        ] {
            let address = service(Some(credentials(of, uri))).await;
            let verified = far_agents.verify(&node, (address, None), Duration::from_secs(20).into()).await;
            assert_eq!(verified.is_ok(), want, "{uri}: {verified:?}");
        }
        let address = service(None).await;
        let error =
            far_agents.verify(&node, (address, None), Duration::from_secs(20).into()).await.unwrap_err();
        assert!(error.contains("the agent of n1.beta does not show itself at 127.0.0.1:"), "{error}");
    }

    /// Many connections to a node are dialed at once when a job starts.
    #[tokio::test]
    async fn an_agent_is_verified_once_for_all_who_wait() {
        let grid = Authority::create("demo", SystemTime::now()).unwrap();
        let far_agents = FarAgents::new(
            credentials(&grid, "isthmus:///gateway/alpha/gateway/").client_config(&[]).unwrap(),
        );
        let agent = credentials(&grid, "isthmus:///agent/beta/n1/anna").server_config(&[]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, node) = (listener.local_addr().unwrap(), "n1.beta".parse().unwrap());
        // The only connection that is ever accepted.
        let accepting = async { agent.accept(listener.accept().await.unwrap().0).await.unwrap() };
        let verify = || far_agents.verify(&node, (address, None), Duration::from_secs(20).into());
        let (_agent, one, two, three) = tokio::join!(accepting, verify(), verify(), verify());
        assert_eq!((one, two, three), (Ok(()), Ok(()), Ok(())));
        assert_eq!(verify().await, Ok(()));
    }

    #[test]
    fn few_agents_are_remembered() {
        let grid = Authority::create("demo", SystemTime::now()).unwrap();
        let far_agents = FarAgents::new(
            credentials(&grid, "isthmus:///gateway/alpha/gateway/").client_config(&[]).unwrap(),
        );
        for number in 0..=AGENTS {
            far_agents
                .known(&"n1.beta".parse().unwrap(), ([10, 0, 0, 1], u16::try_from(number).unwrap()).into());
        }
        assert_eq!(lock(&far_agents.known).len(), 1);
    }
}
