//! Makes sure who is at the other end, and says what the connection is for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::mac::Secret;
use isthmus_net::{Identity, Role};
use isthmus_wire::GridName;
use isthmus_wire::preamble::{ANSWER_LEN, Answer, Preamble, Status};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::attempt::StepError;
use crate::carrier::{Carrier, keep_alive};
use crate::dialer::ReachError;

/// How long a TLS handshake between agents may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long an acceptor may take to answer a preamble: its own deadline for
/// knocking and a margin for the way.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);

/// Makes sure by TLS that the other end is the agent of this node.
///
/// # Errors
/// If the handshake fails, or it is another agent.
pub async fn secure(
    stream: TcpStream,
    name: &GridName,
    config: &Arc<ClientConfig>,
) -> Result<Carrier, StepError> {
    let ends = format!("{:?} to {:?}", stream.local_addr().ok(), stream.peer_addr().ok());
    let failed = |reason: String| StepError::Next(format!("TLS with {name} ({ends}): {reason}"));
    keep_alive(&stream);
    let server = ServerName::try_from(name.to_string()).map_err(|error| failed(error.to_string()))?;
    let handshake = TlsConnector::from(config.clone()).connect(server, stream);
    let stream = tokio::time::timeout(HANDSHAKE_DEADLINE, handshake)
        .await
        .map_err(|_| failed(format!("no answer within {HANDSHAKE_DEADLINE:?}")))?
        .map_err(|error| failed(error.to_string()))?;
    let stream = TlsStream::Client(stream);
    match peer_identity(&stream) {
        Some(identity) if identity.role() == Role::Agent && identity.grid_name().as_ref() == Some(name) => {
            Ok(Carrier::Tls(Box::new(stream)))
        }
        other => Err(failed(format!("it is {other:?}"))),
    }
}

/// Who is at the other end, by its certificate.
pub fn peer_identity(stream: &TlsStream<TcpStream>) -> Option<Identity> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    Identity::from_certificate(certificate).ok()
}

/// Says whose connection this is and waits for the answer.
pub(crate) async fn introduce(
    mut carrier: Carrier,
    token: &Secret,
    preamble: &Preamble,
) -> Result<Carrier, StepError> {
    let ends = carrier.ends();
    let exchange = async {
        carrier.send(&token.seal_preamble(preamble)).await?;
        carrier.receive::<{ ANSWER_LEN }>().await
    };
    let failed = |error: io::Error| {
        StepError::Next(match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("{ends}: the other side closed the connection unanswered")
            }
            _ => format!("{ends}: {error}"),
        })
    };
    let answer = tokio::time::timeout(ANSWER_DEADLINE, exchange)
        .await
        .map_err(|_| StepError::Next(format!("{ends}: no answer within {ANSWER_DEADLINE:?}")))?
        .map_err(failed)?;
    let (answer, mac) =
        Answer::decode(&answer).map_err(|error| StepError::Next(format!("{ends}: {error}")))?;
    match answer.status {
        // Without the token anybody can say so; it is no reason to give up.
        Status::UnknownJob | Status::Denied | Status::WrongNode => {
            Err(StepError::Next(format!("{ends}: {}", ReachError::Answered(answer.status))))
        }
        _ if !token.verify(&answer.signed_bytes(&preamble.nonce), &mac) => {
            Err(StepError::Next(format!("{ends}: the answer is not from an agent of this job")))
        }
        Status::Connected => Ok(carrier),
        Status::Refused | Status::TimedOut | Status::Failed => Err(StepError::Final(answer.status)),
    }
}
