//! TLS after the handshake: one end, whose peer sends whatever it likes, with its keys or
//! without them.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::tls::{MAX_RECORD, Session};
use isthmus_identity::{Authority, Credentials, Identity};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionTrafficSecrets, Error, ServerConfig,
    ServerConnection,
};

const APPLICATION_DATA: u8 = 23;
/// Types of records: change of cipher, alert, handshake, application data, and an unknown type.
const TYPES: [u8; 5] = [20, 21, 22, APPLICATION_DATA, 99];

/// Opens what a peer sends after the handshake. The first byte says which end the session is, and
/// whether the peer uses its keys. Nothing panics, only the peer's data is opened, and an error
/// stays.
pub fn tls(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let Ok((session, forger)) = established(first & 1 == 0) else { return };
    let mut end = TlsEnd { session, buffer: Vec::new(), plain: Vec::new() };
    if first & 2 == 0 {
        while let Some((length, more)) = rest.split_first() {
            let (part, more) = more.split_at(more.len().min(usize::from(*length)));
            rest = more;
            let opened = end.open(part);
            assert!(end.plain.is_empty() && !end.session.ended(), "opened without a key");
            if opened.is_err() {
                return;
            }
        }
        return;
    }
    let Some(mut forger) = forger else { return };
    let mut sent = Vec::new();
    while let [kind, length, more @ ..] = rest {
        let (content, more) = more.split_at(more.len().min(usize::from(*length)));
        rest = more;
        let kind_of_record = TYPES[usize::from(*kind) % TYPES.len()];
        let ended = end.session.ended();
        if kind_of_record == APPLICATION_DATA && !ended {
            sent.extend_from_slice(content);
        }
        let record = forger.record(kind_of_record, content);
        let (now, later) = record.split_at(record.len() * usize::from(*kind >> 5) / 8);
        let opened = end.open(now).and_then(|()| end.open(later));
        assert!(sent.starts_with(&end.plain), "opened what was not sent");
        if opened.is_err() {
            return;
        }
    }
}

struct TlsEnd {
    session: Session,
    buffer: Vec<u8>,
    plain: Vec<u8>,
}

impl TlsEnd {
    /// Opens these bytes after those that were left, and seals an answer.
    fn open(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.buffer.extend_from_slice(bytes);
        let mut out = Vec::new();
        let opened =
            self.session.open(&mut self.buffer, &mut out, |plain| self.plain.extend_from_slice(plain));
        match opened {
            Ok(opened) => {
                self.buffer.drain(..opened.consumed);
                assert!(self.buffer.len() < MAX_RECORD, "{} bytes are left", self.buffer.len());
                self.session.seal(b"an answer", &mut out)
            }
            Err(error) => {
                let again = self.session.open(&mut [], &mut out, |_| {});
                assert_eq!(again.err().as_ref(), Some(&error), "the error does not stay");
                assert_eq!(self.session.seal(b"x", &mut out).err().as_ref(), Some(&error));
                assert!(out.len() <= 64, "{} bytes of alerts", out.len());
                Err(error)
            }
        }
    }
}

/// Seals records of any type with the peer's keys.
struct Forger {
    key: LessSafeKey,
    iv: [u8; 12],
    /// Number of the next record.
    number: u64,
}

impl Forger {
    /// A sealed record (RFC 8446, 5.2 and 5.3).
    fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut inner = [content, &[kind]].concat();
        let length = u16::try_from(inner.len() + AES_128_GCM.tag_len()).unwrap_or(u16::MAX).to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, length[0], length[1]];
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        // This fails only at lengths that no record has.
        let _ = self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner);
        [&header[..], &inner].concat()
    }
}

/// The configurations of a client and a server.
type Configs = (Arc<ClientConfig>, Arc<ServerConfig>);

static CONFIGS: LazyLock<Option<Configs>> = LazyLock::new(|| {
    let authority = Authority::create("fuzz", SystemTime::now()).ok()?;
    let issue = |uri: &str| {
        let request = SigningRequest::new().ok()?;
        let identity = Identity::from_uri(uri).ok()?;
        let pem = authority.sign_request(&identity, &request.der, SystemTime::now()).ok()?;
        Credentials::new(&request, &pem, authority.certificate_pem(), "").ok()
    };
    let client = issue("isthmus:///agent/alpha/n1/anna")?.client_config(&[]).ok()?.without_resumption();
    let server = issue("isthmus:///agent/beta/n2/anna")?.server_config(&[]).ok()?;
    let (mut client, mut server) = ((*client.config()).clone(), (*server.config()).clone());
    (client.enable_secret_extraction, server.enable_secret_extraction) = (true, true);
    Some((Arc::new(client), Arc::new(server)))
});

/// A session after its handshake with rustls's buffered API, and the peer's keys, which `None`
/// stands for if they are missing.
fn established(as_client: bool) -> Result<(Session, Option<Forger>), Error> {
    let failed = |text: &str| Error::General(text.to_owned());
    let (client, server) = CONFIGS.clone().ok_or_else(|| failed("no configuration"))?;
    let name = ServerName::try_from("n2.beta").map_err(|_| failed("no name"))?;
    let (mut session, mut peer) = if as_client {
        (Session::client(client, name)?, Connection::from(ServerConnection::new(server)?))
    } else {
        (Session::server(server)?, Connection::from(ClientConnection::new(client, name)?))
    };
    let (mut to_session, mut to_peer) = (Vec::new(), Vec::new());
    while session.is_handshaking() || peer.is_handshaking() || peer.wants_write() {
        while peer.wants_write() {
            peer.write_tls(&mut to_session).map_err(|error| failed(&error.to_string()))?;
        }
        let opened = session.open(&mut to_session, &mut to_peer, |_| {})?;
        to_session.drain(..opened.consumed);
        let mut rest = &to_peer[..];
        while !rest.is_empty() {
            peer.read_tls(&mut rest).map_err(|error| failed(&error.to_string()))?;
            peer.process_new_packets()?;
        }
        to_peer.clear();
    }
    let (number, secrets) = peer.dangerous_extract_secrets()?.tx;
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { return Ok((session, None)) };
    let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).map_err(|_| failed("no key"))?;
    let iv = iv.as_ref().try_into().map_err(|_| failed("no iv"))?;
    Ok((session, Some(Forger { key: LessSafeKey::new(key), iv, number })))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
mod tests {
    use super::*;

    const HANDSHAKE: u8 = 22;

    /// Records that a peer with its keys may send are opened, and others are refused.
    #[test]
    fn records_of_each_type() {
        let update = [24, 0, 0, 1, 0];
        for as_client in [false, true] {
            for (records, good) in [
                (vec![(APPLICATION_DATA, &b"data"[..])], true),
                (vec![(APPLICATION_DATA, b""), (APPLICATION_DATA, b"data")], true),
                (vec![(HANDSHAKE, &update[..])], true),
                // A key update in two records, of which one may be missing, and an empty message.
                (vec![(HANDSHAKE, &update[..3]), (HANDSHAKE, &update[3..])], true),
                (vec![(HANDSHAKE, &update[..3])], false),
                (vec![(HANDSHAKE, b"")], false),
                (vec![(HANDSHAKE, b""), (APPLICATION_DATA, b"data")], false),
                (vec![(HANDSHAKE, &[4, 0, 0, 0])], false),
                (vec![(HANDSHAKE, &[24, 0, 0, 1, 2])], false),
                // Fatal alerts, one with close_notify's number.
                (vec![(21, &[2, 80])], false),
                (vec![(21, &[1, 0])], true),
                (vec![(20, &[1])], false),
                (vec![(99, b"data")], false),
            ] {
                let (session, forger) = established(as_client).unwrap();
                let mut forger = forger.unwrap();
                let sent: Vec<u8> =
                    records.iter().flat_map(|(kind, content)| forger.record(*kind, content)).collect();
                let mut end = TlsEnd { session, buffer: Vec::new(), plain: Vec::new() };
                let opened = end.open(&sent);
                assert_eq!(opened.is_ok(), good, "{as_client} {records:?}: {opened:?}");
            }
        }
    }
}
