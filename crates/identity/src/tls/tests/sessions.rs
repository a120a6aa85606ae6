use proptest::prelude::*;
use rustls::crypto::CryptoProvider;
use rustls::{AlertDescription, CipherSuiteCommon, Error, HandshakeKind};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

use super::super::{MAX_RECORD, sealed_len};
use super::*;
use crate::credentials::roots;
use crate::cryptography::provider;

/// What `open` appends for the peer, the plaintext, and whether the peer has ended.
type Got = Result<(Vec<u8>, Vec<u8>, bool), Error>;

/// Opens all of `bytes`, cut at these places.
fn open(session: &mut Session, bytes: &[u8], cuts: &[usize]) -> Got {
    let (mut out, mut plain, mut ended, mut buffer, mut start) = (Vec::new(), Vec::new(), false, vec![], 0);
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        buffer.extend_from_slice(&bytes[start..cut]);
        start = cut;
        let opened = session.open(&mut buffer, &mut out, |record| plain.extend_from_slice(record))?;
        buffer.drain(..opened.consumed);
        assert!(buffer.len() < MAX_RECORD || session.is_handshaking());
        ended = opened.ended;
    }
    Ok((out, plain, ended))
}

/// Two sessions after their handshake.
fn connected(configs: &Configs) -> (Session, Session) {
    let (mut client, mut server) = new(configs);
    let mut flight = open(&mut client, &[], &[]).unwrap().0;
    for _ in 0..2 {
        flight = open(&mut server, &flight, &[]).unwrap().0;
        flight = open(&mut client, &flight, &[]).unwrap().0;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking() && flight.is_empty());
    (client, server)
}

fn sealed(session: &mut Session, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    session.seal(plain, &mut out).unwrap();
    out
}

#[test]
fn records_may_be_cut_at_every_byte() {
    let configs = configs();
    let (mut client, mut server) = connected(&configs);
    for cut in 0..=3 * (10 + 22) + 27 {
        let mut bytes = Vec::new();
        for part in filled(30).chunks(10) {
            client.seal(part, &mut bytes).unwrap();
        }
        client.refresh_keys(&mut bytes).unwrap();
        assert_eq!(open(&mut server, &bytes, &[cut]).unwrap(), (vec![], filled(30), false), "cut at {cut}");
        // The answer to the key update goes before the next record.
        let answer = sealed(&mut server, b"a");
        assert_eq!(open(&mut client, &answer, &[]).unwrap(), (vec![], b"a".to_vec(), false));
    }
}

#[test]
fn a_handshake_may_be_cut_at_every_byte() {
    let configs = configs();
    let (mut client, mut server) = new(&configs);
    let mut flight = open(&mut client, &[], &[]).unwrap().0;
    while !flight.is_empty() {
        let every: Vec<usize> = (0..flight.len()).collect();
        flight = open(&mut server, &flight, &every).unwrap().0;
        let every: Vec<usize> = (0..flight.len()).collect();
        flight = open(&mut client, &flight, &every).unwrap().0;
    }
    assert_eq!(client.state().alpn_protocol(), Some(&b"x"[..]));
    assert_eq!(server.state().peer_certificates().map(<[_]>::len), Some(2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_sealed_is_opened(
        lengths in prop::collection::vec(0_usize..50_000, 1..5),
        updates in prop::collection::vec(any::<bool>(), 5),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let (mut client, mut server) = connected(&configs());
        let (mut bytes, mut plain) = (Vec::new(), Vec::new());
        for (length, update) in lengths.into_iter().zip(updates) {
            let before = bytes.len();
            client.seal(&filled(length), &mut bytes).unwrap();
            prop_assert!(bytes.len() - before <= sealed_len(length));
            plain.extend(filled(length));
            if update {
                client.refresh_keys(&mut bytes).unwrap();
            }
        }
        client.seal_end(&mut bytes);
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(open(&mut server, &bytes, &cuts).unwrap(), (vec![], plain, true));
    }

    #[test]
    fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), by in 1_u8..) {
        let (mut client, mut server) = connected(&configs());
        let mut bytes = sealed(&mut client, &filled(100));
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        match (open(&mut server, &bytes, &[]), at) {
            // The version in the header has no meaning (RFC 8446, 5.2).
            (Ok(got), 1 | 2) => prop_assert_eq!(got, (vec![], filled(100), false)),
            // A greater length makes the record incomplete.
            (Ok(got), 3 | 4) => prop_assert_eq!(got, (vec![], vec![], false)),
            (got, _) => prop_assert!(got.is_err() && server.failure().is_some()),
        }
    }
}

#[test]
fn either_end_may_change_its_keys() {
    let configs = configs();
    for (by_client, by_server) in [(true, false), (false, true), (true, true)] {
        let (mut client, mut server) = connected(&configs);
        for round in 0..100_u8 {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            if by_client {
                client.refresh_keys(&mut up).unwrap();
            }
            if by_server {
                server.refresh_keys(&mut down).unwrap();
            }
            client.seal(&[round], &mut up).unwrap();
            server.seal(&[round; 2], &mut down).unwrap();
            assert_eq!(open(&mut server, &up, &[]).unwrap().1, [round]);
            assert_eq!(open(&mut client, &down, &[]).unwrap().1, [round; 2]);
        }
    }
}

/// Configurations with keys that may seal 8 records each.
fn short_lived() -> Configs {
    let provider = provider();
    let SupportedCipherSuite::Tls13(suite) = provider.cipher_suites[0] else { panic!("not TLS 1.3") };
    let common = CipherSuiteCommon { confidentiality_limit: 8, ..suite.common };
    let suite: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite { common, ..*suite }));
    let cipher_suites = vec![SupportedCipherSuite::Tls13(suite)];
    let provider = Arc::new(CryptoProvider { cipher_suites, ..(*provider).clone() });
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let server = issue(&authority, "isthmus:///agent/beta/n2/anna").server_config(&[]).unwrap().config();
    let versions = [&rustls::version::TLS13];
    let client = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions);
    let client = client.unwrap().with_root_certificates(roots(authority.certificate().clone()).unwrap());
    let new = ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions);
    let new = new.unwrap().with_no_client_auth().with_cert_resolver(server.cert_resolver.clone());
    (Arc::new(client.with_no_client_auth()), Arc::new(new))
}

/// With real limits (2^24 records), a connection changes its keys only after 256 GiB.
#[test]
fn keys_are_changed_before_their_limit() {
    let configs = short_lived();
    for (up, down) in [(true, false), (false, true), (true, true)] {
        let (mut client, mut server) = connected(&configs);
        for round in 0..1000_usize {
            let plain = filled(1 + round % 5 * 10_000);
            let mut out = vec![0; sealed_len(plain.len())];
            if up {
                let length = client.seal_into(&plain, &mut out).unwrap();
                assert_eq!(open(&mut server, &out[..length], &[]).unwrap().1, plain);
            }
            if down {
                let length = server.seal_into(&plain, &mut out).unwrap();
                assert_eq!(open(&mut client, &out[..length], &[]).unwrap().1, plain);
            }
        }
    }
}

#[test]
fn an_end_is_not_a_cut() {
    let configs = configs();
    let (mut client, mut server) = connected(&configs);
    let mut bytes = sealed(&mut client, b"last");
    assert!(!open(&mut server, &bytes, &[]).unwrap().2 && !server.ended());
    bytes.clear();
    client.seal_end(&mut bytes);
    client.seal_end(&mut bytes);
    assert_eq!(bytes.len(), 24);
    assert!(client.seal(b"more", &mut bytes).is_err());
    bytes.extend(b"ignored");
    assert!(open(&mut server, &bytes, &[]).unwrap().2 && server.ended());
    assert!(open(&mut server, b"ignored", &[]).unwrap().2);
    // The other direction goes on, with new keys, too.
    let mut answer = Vec::new();
    server.refresh_keys(&mut answer).unwrap();
    server.seal(b"answer", &mut answer).unwrap();
    server.seal_end(&mut answer);
    assert_eq!(open(&mut client, &answer, &[]).unwrap(), (vec![], b"answer".to_vec(), true));
}

#[test]
fn a_broken_record_is_answered_by_an_alert() {
    let configs = configs();
    let (mut client, mut server) = connected(&configs);
    let good = sealed(&mut client, b"good");
    let mut bytes = [good, sealed(&mut client, b"bad")].concat();
    *bytes.last_mut().unwrap() ^= 1;
    let (mut alert, mut plain) = (Vec::new(), Vec::new());
    let error = server.open(&mut bytes, &mut alert, |record| plain.extend_from_slice(record)).unwrap_err();
    assert_eq!((error, &plain[..]), (Error::DecryptError, &b"good"[..]));
    // The session stays failed.
    let more = sealed(&mut client, b"more");
    assert_eq!(open(&mut server, &more, &[]), Err(Error::DecryptError));
    assert_eq!(server.seal(b"x", &mut Vec::new()), Err(Error::DecryptError));
    let mut end = Vec::new();
    server.seal_end(&mut end);
    assert!(end.is_empty());
    let received = Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(open(&mut client, &alert, &[]), Err(received));
}

#[test]
fn garbage_and_long_records_are_refused() {
    let configs = configs();
    let header = |length: usize| [&[23, 3, 3][..], &(length as u16).to_be_bytes()].concat();
    for (bytes, refused) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), true),
        (vec![0; 5], true),
        (header(MAX_RECORD - 5), false),
        (header(MAX_RECORD - 4), true),
        (header(0xffff), true),
        ([header(20), vec![0; 20]].concat(), true),
        ([header(3), vec![0; 3]].concat(), true),
        // An alert and a change of cipher in plain.
        (vec![21, 3, 3, 0, 2, 1, 0], true),
        (vec![20, 3, 3, 0, 1, 1], true),
        // A handshake's record in plain.
        (vec![22, 3, 3, 0, 4, 0, 0, 0, 0], true),
    ] {
        let (_, mut server) = connected(&configs);
        let mut plain = 0;
        let got = server.open(&mut bytes.clone(), &mut Vec::new(), |_| plain += 1);
        assert_eq!((got.is_err(), plain), (refused, 0), "{bytes:?}: {got:?}");
    }
    let (_, mut server) = new(&configs);
    let error = open(&mut server, &header(MAX_RECORD), &[]).unwrap_err();
    assert_eq!(error, Error::PeerSentOversizedRecord);
}

#[test]
fn a_session_is_resumed() {
    let configs = configs();
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
        let (client, server) = connected(&configs);
        assert_eq!(client.state().handshake_kind(), Some(kind));
        assert_eq!(server.state().handshake_kind(), Some(kind));
        assert_eq!(server.state().peer_certificates().map(<[_]>::len), Some(2));
    }
}

#[test]
fn a_refused_client_gets_the_alert() {
    let (mut client, mut server) = new(&strangers());
    let hello = open(&mut client, &[], &[]).unwrap().0;
    let flight = open(&mut server, &hello, &[]).unwrap().0;
    let mut flight = open(&mut client, &flight, &[]).unwrap().0;
    assert!(!client.is_handshaking());
    let mut alert = Vec::new();
    let error = server.open(&mut flight, &mut alert, |_| {}).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
    let error = open(&mut client, &alert, &[]).unwrap_err();
    assert!(matches!(error, Error::AlertReceived(_)), "{error}");
}

#[test]
fn nothing_is_sealed_before_the_handshake() {
    let (mut client, _) = new(&configs());
    let mut out = Vec::new();
    assert_eq!(client.seal(b"early", &mut out), Err(Error::HandshakeNotComplete));
    client.seal_end(&mut out);
    assert!(out.is_empty());
}

#[test]
fn sealing_needs_no_more_room_than_said() {
    let (mut client, _) = connected(&configs());
    for length in [0, 1, 1 << 14, (1 << 14) + 1, 1 << 16] {
        let mut out = vec![0; sealed_len(length)];
        let sealed = client.seal_into(&filled(length), &mut out).unwrap();
        assert_eq!(sealed, length + length.div_ceil(1 << 14) * 22);
    }
    assert!(client.seal_into(&filled(100), &mut [0; 100]).is_err());
    assert!(client.failure().is_none());
}
