//! The handshakes that make streams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Session, Stream};

/// Bytes of a read: a flight of the handshake is 1 to 2 KiB.
const READ: usize = 4096;
/// How long writing the alert of a failed handshake may take.
const ALERT: Duration = Duration::from_secs(1);

/// Does the client's part of a handshake. The caller bounds its time.
///
/// # Errors
/// The socket's error, or that of TLS as a [`rustls::Error`] within.
pub async fn connect(
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    mut tcp: TcpStream,
) -> io::Result<Stream> {
    let mut session = Session::client(config, server).map_err(invalid)?;
    let early = shake(&mut tcp, &mut session).await?;
    Ok(Stream::new(tcp, session, early))
}

/// Reads a client's first message, which costs nothing yet, with the bytes that come with it. The
/// caller bounds the time.
///
/// # Errors
/// The socket's error.
pub(crate) async fn first_message(tcp: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut read = Vec::with_capacity(READ);
    while !is_whole(&read) {
        if tcp.read_buf(&mut read).await? == 0 {
            return Err(ended_early());
        }
    }
    Ok(read)
}

/// Whether the bytes have a whole record, or begin with something that is no record (RFC 8446,
/// section 5.1).
fn is_whole(read: &[u8]) -> bool {
    const HANDSHAKE: u8 = 22;
    const LONGEST: usize = 1 << 14;
    match read {
        [HANDSHAKE, _, _, high, low, rest @ ..] => {
            rest.len() >= usize::from(u16::from_be_bytes([*high, *low])).min(LONGEST)
        }
        [] | [HANDSHAKE, ..] => false,
        _ => true,
    }
}

/// Does the server's part of a handshake. The caller bounds its time.
///
/// # Errors
/// The socket's error, or that of TLS as a [`rustls::Error`] within. The alert has been sent; the
/// socket is returned.
pub async fn accept(config: Arc<ServerConfig>, tcp: TcpStream) -> Result<Stream, (io::Error, TcpStream)> {
    accept_read(config, tcp, Vec::new()).await
}

/// Does the server's part of a handshake with a client of which `read` was read before.
pub(crate) async fn accept_read(
    config: Arc<ServerConfig>,
    mut tcp: TcpStream,
    read: Vec<u8>,
) -> Result<Stream, (io::Error, TcpStream)> {
    let shaken = async {
        let mut session = Session::server(config).map_err(invalid)?;
        let early = go_on(&mut tcp, &mut session, read).await?;
        io::Result::Ok((session, early))
    };
    match shaken.await {
        Ok((session, early)) => Ok(Stream::new(tcp, session, early)),
        Err(error) => Err((error, tcp)),
    }
}

/// What came together with the peer's last message of the handshake.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// The start of a record that is not complete.
    pub(super) unopened: Vec<u8>,
    /// Plaintext that nobody has read yet.
    pub(super) unread: Vec<u8>,
}

pub(super) async fn shake<S>(socket: &mut S, session: &mut Session) -> io::Result<Early>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    go_on(socket, session, Vec::new()).await
}

/// Goes on with a handshake until it is over. `unopened` was read from the socket before.
async fn go_on<S>(socket: &mut S, session: &mut Session, unopened: Vec<u8>) -> io::Result<Early>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reading, mut writing) = tokio::io::split(socket);
    let mut early = Early { unopened, unread: Vec::new() };
    let mut out = Vec::new();
    loop {
        let opened =
            session.open(&mut early.unopened, &mut out, |plain| early.unread.extend_from_slice(plain));
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // The alert is the peer's only way to learn the reason. If the alert can't be sent,
                // TLS's error says more than the socket's.
                let _ = timeout(ALERT, writing.write_all(&out)).await;
                return Err(invalid(error));
            }
        };
        early.unopened.drain(..opened.consumed);
        if !session.is_handshaking() {
            writing.write_all(&out).await?;
            return Ok(early);
        }
        early.unopened.reserve(READ);
        // Both at once: the peer may not read before its own message is away.
        loop {
            tokio::select! {
                biased;
                written = writing.write(&out), if !out.is_empty() => {
                    match written? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        written => drop(out.drain(..written)),
                    }
                }
                read = reading.read_buf(&mut early.unopened) => {
                    match read? {
                        0 => return Err(ended_early()),
                        _ => break,
                    }
                }
            }
        }
    }
}

fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection within the TLS handshake")
}

pub(super) fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_first_message_is_a_whole_record() {
        for (read, want) in [
            (&[][..], false),
            (&[22, 3, 1], false),
            (&[22, 3, 1, 0, 2, 7], false),
            (&[22, 3, 1, 0, 2, 7, 7], true),
            (&[22, 3, 1, 0, 2, 7, 7, 7], true),
            (&[22, 3, 1, 0, 0], true),
            // TLS says what is wrong.
            (b"GET", true),
        ] {
            assert_eq!(is_whole(read), want, "{read:?}");
        }
        let mut long = vec![22, 3, 1, 255, 255];
        long.resize(5 + (1 << 14), 0);
        assert!(is_whole(&long));
    }
}
