//! CPU time of TLS per gigabyte, memory to memory, on one core: ring alone, [`Session`],
//! and rustls's buffered API. Both directions, records of 16 KiB.
//!
//! ```text
//! cargo run --release --locked -p isthmus-net --example tls_speed [-- ROUNDS]
//! ```
#![allow(clippy::unwrap_used, reason = "a measurement ends at the first error")]

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::tls::{Session, sealed_len};
use isthmus_identity::{Authority, Credentials, Identity};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

/// A read from a program, as the agent does it: four records.
const CHUNK: usize = 64 * 1024;
const RECORD: usize = 16 * 1024;
/// Bytes that a measurement seals and opens.
const TOTAL: usize = 512 << 20;

/// Time that sealing and opening took.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    seal: Duration,
    open: Duration,
}

fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let authority = Authority::create("speed", SystemTime::now()).unwrap();
    let issue = |uri: &str| {
        let request = SigningRequest::new().unwrap();
        let identity = Identity::from_uri(uri).unwrap();
        let pem = authority.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
        Credentials::new(&request, &pem, authority.certificate_pem(), "").unwrap()
    };
    let client = issue("isthmus:///agent/alpha/n1/anna").client_config(&[]).unwrap();
    let server = issue("isthmus:///agent/beta/n2/anna").server_config(&[]).unwrap();
    (client.config(), server.config())
}

fn name() -> ServerName<'static> {
    ServerName::try_from("n2.beta").unwrap()
}

fn clock<T>(total: &mut Duration, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = run();
    *total += begun.elapsed();
    result
}

/// Seals and opens by ring in place: the plaintext lies in the record's buffer already.
fn ring(plain: &[u8], copy: bool) -> Took {
    let key = || LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).unwrap());
    let (sealing, opening) = (key(), key());
    let mut record = vec![0; 5 + RECORD + 1 + 16];
    let mut took = Took::default();
    for number in 0..(TOTAL / RECORD) as u64 {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&number.to_be_bytes());
        let header = [23, 3, 3, 64, 17];
        clock(&mut took.seal, || {
            record[..5].copy_from_slice(&header);
            if copy {
                let from = number as usize % 4 * RECORD;
                record[5..5 + RECORD].copy_from_slice(&plain[from..from + RECORD]);
            }
            record[5 + RECORD] = 23;
            let nonce = Nonce::assume_unique_for_key(bytes);
            let (body, tag) = record[5..].split_at_mut(RECORD + 1);
            let sealed = sealing.seal_in_place_separate_tag(nonce, Aad::from(header), body).unwrap();
            tag.copy_from_slice(sealed.as_ref());
        });
        clock(&mut took.open, || {
            let nonce = Nonce::assume_unique_for_key(bytes);
            let opened = opening.open_in_place(nonce, Aad::from(header), &mut record[5..]).unwrap();
            assert_eq!(opened.len(), RECORD + 1);
        });
    }
    took
}

/// A client's and a server's session after their handshake.
fn sessions() -> (Session, Session) {
    let (client, server) = configs();
    let (mut client, mut server) =
        (Session::client(client, name()).unwrap(), Session::server(server).unwrap());
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    client.open(&mut [], &mut to_server, |_| {}).unwrap();
    while !to_server.is_empty() || !to_client.is_empty() {
        server.open(&mut to_server, &mut to_client, |_| {}).unwrap();
        to_server.clear();
        client.open(&mut to_client, &mut to_server, |_| {}).unwrap();
        to_client.clear();
    }
    (client, server)
}

/// Seals and opens by [`Session`], into a slice or into a vector. What is opened is passed on from
/// where rustls has it (a system call would read it there).
fn session(plain: &[u8], into_vector: bool) -> Took {
    let (mut client, mut server) = sessions();
    let mut slice = vec![0; sealed_len(CHUNK)];
    let mut vector = Vec::with_capacity(sealed_len(CHUNK));
    let mut out = Vec::new();
    let mut took = Took::default();
    for _ in 0..TOTAL / CHUNK {
        let records = if into_vector {
            vector.clear();
            clock(&mut took.seal, || client.seal(plain, &mut vector).unwrap());
            &mut vector[..]
        } else {
            let length = clock(&mut took.seal, || client.seal_into(plain, &mut slice).unwrap());
            &mut slice[..length]
        };
        let mut length = 0;
        clock(&mut took.open, || server.open(records, &mut out, |plain| length += plain.len()).unwrap());
        assert_eq!((length, out.len()), (CHUNK, 0));
    }
    took
}

/// Seals and opens by rustls's buffered API: ciphertext is written to and read from memory.
fn buffered(plain: &[u8]) -> Took {
    let (client, server) = configs();
    let mut client = ClientConnection::new(client, name()).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    client.set_buffer_limit(None);
    let mut wire = Vec::new();
    while client.is_handshaking() || server.is_handshaking() {
        wire.clear();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut &wire[..]).unwrap();
        server.process_new_packets().unwrap();
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut &wire[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    let mut took = Took::default();
    let mut received = vec![0; CHUNK];
    for _ in 0..TOTAL / CHUNK {
        wire.clear();
        clock(&mut took.seal, || {
            client.writer().write_all(plain).unwrap();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
        });
        clock(&mut took.open, || {
            let mut rest = &wire[..];
            let mut length = 0;
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets().unwrap();
                while let Ok(read) = server.reader().read(&mut received) {
                    length += read;
                }
            }
            assert_eq!(length, CHUNK);
        });
    }
    took
}

type Row = (&'static str, fn(&[u8]) -> Took);

fn main() {
    let rounds = std::env::args().nth(1).map_or(5, |text| text.parse().unwrap());
    let plain: Vec<u8> = (0..CHUNK).map(|index| (index >> 3) as u8).collect();
    let rows: [Row; 5] = [
        ("ring in place", |plain| ring(plain, false)),
        ("ring after a copy", |plain| ring(plain, true)),
        ("Session, slice", |plain| session(plain, false)),
        ("Session, vector", |plain| session(plain, true)),
        ("rustls buffered", buffered),
    ];
    let mut all = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        for (took, (_, run)) in all.iter_mut().zip(rows) {
            took.push(run(&plain));
        }
    }
    println!(
        "{:18} {:>12} {:>12} {:>12} {:>12}",
        "median", "seal s/GB", "open s/GB", "seal GB/s", "open GB/s"
    );
    for (took, (name, _)) in all.iter().zip(rows) {
        let median = |of: fn(&Took) -> Duration| {
            let mut sorted: Vec<_> = took.iter().map(of).collect();
            sorted.sort();
            sorted[sorted.len() / 2].as_secs_f64() / TOTAL as f64 * 1e9
        };
        let (seal, open) = (median(|took| took.seal), median(|took| took.open));
        println!("{name:18} {seal:12.3} {open:12.3} {:12.2} {:12.2}", 1.0 / seal, 1.0 / open);
    }
}
