//! One TLS connection without I/O: records are opened in the caller's buffer, and
//! sealed into the caller's buffer.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, CommonState, Error, ServerConfig};

use super::records::{MAX_RECORD, OWN_RECORDS, Whole, sealed_len, whole_records};
use super::steps::{Step, encrypt, end, step, writing};

/// Most bytes that are kept for a handshake message in several records: the longest message that
/// rustls takes (64 KiB), and a record.
const MAX_HANDSHAKE: usize = 0x1_0000 + MAX_RECORD;

/// What a call of [`Session::open`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// How many bytes of the buffer are used up. The rest is the start of a record. After the
    /// handshake it is shorter than [`MAX_RECORD`].
    pub consumed: usize,
    /// Whether the peer has ended its direction (`close_notify`). Bytes after that are
    /// ignored.
    pub ended: bool,
}

enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The state of TLS 1.3 on a connection. It has no buffers and does no I/O.
///
/// rustls updates the keys before they have sealed too much. It answers key updates, before the
/// next record that is sealed. It keeps tickets for resumption.
pub struct Session {
    connection: Connection,
    /// Bytes of whole records at the start of the next buffer that rustls still needs: parts of a
    /// handshake message. Zero after the handshake.
    retained: usize,
    /// Whether the peer has ended its direction.
    ended: bool,
    /// Whether this end has ended its direction.
    end_sent: bool,
    failed: Option<Error>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown.field("ended", &self.ended).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Session {
    /// A client's session. Its first message comes from [`Session::open`] with an empty
    /// buffer.
    ///
    /// # Errors
    /// If the configuration can't be used.
    pub fn client(config: Arc<ClientConfig>, server: ServerName<'static>) -> Result<Self, Error> {
        let connection = UnbufferedClientConnection::new(config, server)?;
        Ok(Self::new(Connection::Client(Box::new(connection))))
    }

    /// A server's session.
    ///
    /// # Errors
    /// If the configuration can't be used.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, Error> {
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Self::new(Connection::Server(Box::new(connection))))
    }

    fn new(connection: Connection) -> Self {
        Self { connection, retained: 0, ended: false, end_sent: false, failed: None }
    }

    /// Opens every whole record at the start of `buffer`, in place. `each` gets the plaintext of
    /// each record. What TLS itself sends (the handshake, alerts) is appended to `out`.
    ///
    /// The next call's buffer must begin with the bytes that were not consumed, as this call left
    /// them.
    ///
    /// # Errors
    /// If the peer breaks the protocol, sends an alert, or ends the handshake. The alert for the
    /// peer is in `out`. Some errors have no alert: a record that is too long or not sealed, and a
    /// handshake message after the handshake of which `buffer` has only the first records. The
    /// session has failed: all later calls return the same error.
    pub fn open(
        &mut self,
        buffer: &mut [u8],
        out: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Opened, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.ended {
            return Ok(Opened { consumed: buffer.len(), ended: true });
        }
        let Some(fresh) = buffer.get(self.retained..) else {
            return Err(self.fail(Error::General("the start of a TLS message is missing".to_owned()), out));
        };
        let whole = whole_records(fresh, !self.is_handshaking());
        let mut consumed = 0;
        loop {
            let (discard, step) = self.step(&mut buffer[consumed..], out, &mut each);
            consumed += discard;
            match step {
                Ok(Step::More) => {}
                Ok(Step::PeerEnded) => self.ended = true,
                Ok(Step::Blocked) => break,
                Err(error) => return Err(self.fail(error, out)),
            }
        }
        if self.ended {
            return Ok(Opened { consumed: buffer.len(), ended: true });
        }
        let whole = match whole {
            Whole::Length(whole) => whole,
            Whole::TooLong => return Err(self.fail(Error::PeerSentOversizedRecord, out)),
            Whole::NotSealed => {
                let error = rustls::InvalidMessage::InvalidContentType;
                return Err(self.fail(Error::InvalidMessage(error), out));
            }
        };
        self.retained = (self.retained + whole).saturating_sub(consumed);
        let most = if self.is_handshaking() { MAX_HANDSHAKE } else { MAX_RECORD };
        // rustls would need the message's parts at the next call that seals, too.
        let in_parts = self.retained > 0 && !self.is_handshaking();
        if in_parts || buffer.len() - consumed > most {
            let error = rustls::InvalidMessage::HandshakePayloadTooLarge;
            return Err(self.fail(Error::InvalidMessage(error), out));
        }
        Ok(Opened { consumed, ended: false })
    }

    /// Takes a step of rustls. Also returns how many bytes of the buffer it has used.
    fn step(
        &mut self,
        buffer: &mut [u8],
        out: &mut Vec<u8>,
        each: &mut impl FnMut(&[u8]),
    ) -> (usize, Result<Step, Error>) {
        match &mut self.connection {
            Connection::Client(client) => step(client.process_tls_records(buffer), out, each),
            Connection::Server(server) => step(server.process_tls_records(buffer), out, each),
        }
    }

    /// Marks the session as failed, and appends the alert to `out`.
    fn fail(&mut self, error: Error, out: &mut Vec<u8>) -> Error {
        // With a record to send, rustls returns that record before it looks at the buffer.
        while self.state().wants_write() {
            if self.step(&mut [], out, &mut |_| {}).1.is_err() {
                break;
            }
        }
        self.failed = Some(error.clone());
        error
    }

    /// Seals `plain` as records of at most 16 KiB each into `out`; returns their length.
    /// `out` needs [`sealed_len`] bytes.
    ///
    /// # Errors
    /// If the handshake is not over, the session has failed or ended, or `out` is too
    /// short.
    pub fn seal_into(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        self.may_seal()?;
        if plain.is_empty() {
            return Ok(0);
        }
        match &mut self.connection {
            Connection::Client(client) => encrypt(writing(client.process_tls_records(&mut []))?, plain, out),
            Connection::Server(server) => encrypt(writing(server.process_tls_records(&mut []))?, plain, out),
        }
    }

    /// Seals `plain` as [`Session::seal_into`] does, and appends the records to `out`. It costs a
    /// little more, because the memory is cleared first.
    ///
    /// # Errors
    /// As [`Session::seal_into`].
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        out.resize(start + sealed_len(plain.len()), 0);
        let sealed = self.seal_into(plain, &mut out[start..]);
        out.truncate(start + sealed.as_ref().map_or(0, |length| *length));
        sealed.map(drop)
    }

    /// Ends this end's direction: appends `close_notify` to `out`, unless it was sent
    /// before or the session has failed.
    pub fn seal_end(&mut self, out: &mut Vec<u8>) {
        if self.may_seal().is_err() {
            return;
        }
        let mut alert = [0; OWN_RECORDS];
        let length = match &mut self.connection {
            Connection::Client(client) => end(writing(client.process_tls_records(&mut [])), &mut alert),
            Connection::Server(server) => end(writing(server.process_tls_records(&mut [])), &mut alert),
        };
        self.end_sent = true;
        out.extend_from_slice(&alert[..length]);
    }

    /// Changes the key of this end's direction now, and asks the peer to change its key, too (RFC
    /// 8446, 4.6.3). rustls does that by itself when a key must not seal more.
    ///
    /// # Errors
    /// As [`Session::seal_into`].
    pub fn refresh_keys(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.may_seal()?;
        match &mut self.connection {
            Connection::Client(client) => {
                writing(client.process_tls_records(&mut []))?.refresh_traffic_keys()
            }
            Connection::Server(server) => {
                writing(server.process_tls_records(&mut []))?.refresh_traffic_keys()
            }
        }?;
        loop {
            match self.step(&mut [], out, &mut |_| {}).1 {
                Ok(Step::Blocked) => return Ok(()),
                Ok(Step::More | Step::PeerEnded) => {}
                Err(error) => return Err(self.fail(error, out)),
            }
        }
    }

    fn may_seal(&self) -> Result<(), Error> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.is_handshaking() => Err(Error::HandshakeNotComplete),
            None if self.end_sent => Err(Error::General("this end has ended its direction".to_owned())),
            None => Ok(()),
        }
    }

    /// Whether the handshake is still going on.
    pub fn is_handshaking(&self) -> bool {
        self.state().is_handshaking()
    }

    /// Whether the peer has ended its direction.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Why the session has failed; `None` if it hasn't.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// What the handshake has settled: protocol (ALPN), the peer's certificates, the kind
    /// of handshake.
    pub fn state(&self) -> &CommonState {
        match &self.connection {
            Connection::Client(client) => client,
            Connection::Server(server) => server,
        }
    }
}
