//! The port of a service, which another service of the process may share. What the other
//! one serves begins as a ticket does, and TLS never does: so the first byte shows whose a
//! connection is. Until then, and until it is identified, it is bounded as at any port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_service::unidentified::{Unidentified, UnidentifiedEntry};
use isthmus_service::{listen, lock};
use isthmus_wire::ticket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tracing::debug;

/// Most connections at once that have sent nothing yet, or that the other service hasn't identified
/// yet. A relay has as many at a port of its own.
const UNIDENTIFIED: usize = 16 * 1024;
/// How long the first byte may take. The other service has as long to take a connection.
const FIRST_DEADLINE: Duration = Duration::from_secs(10);
/// Most connections that wait for the other service to take them.
const PASSED: usize = 64;

/// A connection that a service passes to the other service at the same port.
#[derive(Debug)]
pub struct Passed {
    /// The connection, of which nothing was read.
    pub stream: TcpStream,
    /// The address of the connection's other end.
    pub peer: SocketAddr,
    /// The connection's entry among the unidentified connections of the port.
    pub entry: UnidentifiedEntry,
}

/// The part that another service has in a port.
#[derive(Debug, Clone, Default)]
pub struct Share(Arc<Mutex<Option<mpsc::Sender<Passed>>>>);

impl Share {
    /// Takes the other service's connections from now on, until the receiver is dropped. While
    /// nobody takes the connections, they are closed.
    pub fn take(&self) -> mpsc::Receiver<Passed> {
        let (passed_tx, passed_rx) = mpsc::channel(PASSED);
        *lock(&self.0) = Some(passed_tx);
        passed_rx
    }

    async fn pass(&self, passed: Passed) {
        let peer = passed.peer;
        let passed_tx = lock(&self.0).clone();
        let is_taken = match passed_tx {
            Some(passed_tx) => passed_tx.send_timeout(passed, FIRST_DEADLINE).await.is_ok(),
            None => false,
        };
        if !is_taken {
            debug!(%peer, "closed: the other service of this port doesn't run");
        }
    }
}

/// Whether a connection with this first byte is the other service's.
fn is_shared(first: u8) -> bool {
    first == ticket::FIRST_BYTE
}

/// The port of a service, which another service may share.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    share: Option<Share>,
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self::new(listener, None)
    }
}

impl Port {
    /// A port with this listener, and the part that another service has in it, if any.
    pub fn new(listener: TcpListener, share: Option<Share>) -> Self {
        Self { listener, share }
    }

    /// Serves the connections of this service, as [`listen::serve_each`] does.
    pub(crate) async fn serve_each<F>(
        self,
        unidentified: &Arc<Unidentified>,
        serve: impl Fn(TcpStream, SocketAddr, UnidentifiedEntry) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(share) = self.share else {
            return listen::serve_each(self.listener, unidentified, serve).await;
        };
        let serve = Arc::new(serve);
        let first = Unidentified::new("the shared port", UNIDENTIFIED);
        listen::serve_each(self.listener, &first, |stream, peer, entry| {
            let (share, unidentified, serve) = (share.clone(), unidentified.clone(), serve.clone());
            async move {
                match listen::first_byte(&stream, FIRST_DEADLINE).await {
                    Ok(first) if is_shared(first) => share.pass(Passed { stream, peer, entry }).await,
                    Ok(_) => {
                        let own = unidentified.enter(peer.ip());
                        drop(entry);
                        let evicted = own.evicted();
                        // A connection that sends nothing takes no memory for the service.
                        let serving = Box::pin(serve(stream, peer, own));
                        evicted.run_until_cancelled_owned(serving).await;
                    }
                    Err(error) => debug!(%peer, %error, "connection refused"),
                }
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use isthmus_identity::Authority;
    use isthmus_identity::credentials::{ALPN_H2, anonymous_client_config};
    use isthmus_wire::ticket::{Side, Ticket};
    use isthmus_wire::{ConnectionId, hello, reflect};
    use rustls::pki_types::ServerName;

    use super::*;
    use crate::packets;

    /// What a client without a certificate sends first.
    fn client_hello(alpn: &[&[u8]]) -> Vec<u8> {
        let authority = Authority::create("demo", SystemTime::now()).unwrap();
        let config = anonymous_client_config(authority.certificate().clone(), alpn).unwrap().config();
        let name = ServerName::try_from("broker").unwrap();
        let mut hello = Vec::new();
        rustls::ClientConnection::new(config, name).unwrap().write_tls(&mut hello).unwrap();
        hello
    }

    #[test]
    fn the_first_byte_shows_whose_a_connection_is() {
        let connection = ConnectionId([7; 16]);
        let ticket = Ticket { connection, side: Side::Acceptor, expiry_unix_seconds: 0 };
        for (name, first, want) in [
            ("a ticket", ticket.encode(&[0; 32]).to_vec(), true),
            ("the question for the own address", reflect::encode_question(None).to_vec(), true),
            ("the same, with a reach test", reflect::encode_question(Some(connection)).to_vec(), true),
            ("a reach test", hello::REACH_TEST.encode(connection).to_vec(), true),
            ("TLS for gRPC", client_hello(&[ALPN_H2]), false),
            ("TLS for the test of large packets", client_hello(&[packets::PROTOCOL]), false),
            ("TLS of a client that names no protocol", client_hello(&[]), false),
            ("another program", b"GET / HTTP/1.1\r\n".to_vec(), false),
            ("zeros", vec![0; 64], false),
        ] {
            assert_eq!(is_shared(first[0]), want, "{name}");
        }
    }
}
