//! Carries a connection over TLS of its own, to an agent without trunks.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use isthmus_carry::Traffic;
use isthmus_carry::plane::Plane;
use isthmus_net::peers;
use isthmus_net::secured::Secured;
use tokio_util::sync::CancellationToken;

/// Carries a program's bytes until the connection has ended. It is reset at once if the
/// peer's certificate ends or is revoked, or with its job, which has `ended`.
///
/// # Errors
/// If the sockets can't be handed to a worker.
pub(crate) async fn carry(
    plane: &Plane,
    program: TcpStream,
    tls: Secured,
    traffic: Arc<dyn Traffic>,
    ended: &CancellationToken,
) -> io::Result<()> {
    let (parts, peer) = tls.into_parts();
    let mut sealed = plane.seal(program, parts, traffic)?;
    tokio::select! {
        () = sealed.ended() => {}
        () = ended.cancelled() => sealed.reset(),
        refusal = peers::refused(peer) => {
            tracing::info!(reason = %refusal, "an encrypted connection ends");
            sealed.reset();
        }
    }
    Ok(())
}
