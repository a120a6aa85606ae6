//! Offers files to other helpers of the run.
//!
//! A helper that wants them connects and sends the greeting, gets the manifest's length, the manifest
//! and its HMAC, and answers with the number of files that it wants, and for each the index of its
//! entry and of the first block. The files' bytes follow one after the other. Numbers are in network
//! order.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use isthmus_front::format::causes;
use isthmus_front::output;
use isthmus_wire::preamble::Mac;

use super::helper::say;
use super::keys::Keys;
use super::manifest::{BLOCK, Kind, Manifest};
use super::task::Said;

/// Most helpers that are served at once.
const CLIENTS_MAX: usize = 64;
/// How long a helper may take to greet.
const GREETING_DEADLINE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// What a helper offers.
pub(super) struct Offer {
    pub manifest: Manifest,
    /// The manifest as it is sent.
    pub encoded: Vec<u8>,
    /// HMAC of `encoded`.
    pub digest: Mac,
    /// How the files' paths end here.
    pub suffix: String,
    pub keys: Keys,
}

/// Serves for as long as the process lives.
pub(super) fn serve(listener: &TcpListener, offer: &Arc<Offer>) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, from)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (offer, served) = (offer.clone(), clients.clone());
        let spawned = thread::Builder::new().spawn(move || {
            if let Err(error) = answer(stream, &offer) {
                output::message(&format!("cannot send files to {from}: {}", causes(&error)));
            }
            served.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer(mut stream: TcpStream, offer: &Offer) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(GREETING_DEADLINE))?;
    let mut greeting = Mac::default();
    stream.read_exact(&mut greeting).context("it sends no greeting")?;
    // Comparing HMACs of both takes the same time wherever they differ.
    let signed = offer.keys.manifest.sign(&greeting);
    ensure!(offer.keys.manifest.verify(&offer.keys.greeting, &signed), "it is no helper of this run");
    // It first looks through its own files, which may take long.
    stream.set_read_timeout(None)?;
    stream.write_all(&(offer.encoded.len() as u64).to_be_bytes())?;
    stream.write_all(&offer.encoded)?;
    stream.write_all(&offer.digest)?;
    let count = u32::from_be_bytes(read(&mut stream)?);
    ensure!(count as usize <= offer.manifest.entries.len(), "it wants {count} files");
    let mut wanted = Vec::new();
    for _ in 0..count {
        wanted.push((u32::from_be_bytes(read(&mut stream)?), u32::from_be_bytes(read(&mut stream)?)));
    }
    for (index, first) in wanted {
        send(&mut stream, offer, index as usize, first as usize)?;
    }
    Ok(())
}

fn read<const N: usize>(stream: &mut TcpStream) -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).context("it has closed the connection")?;
    Ok(bytes)
}

/// Sends a file from its block `first` on.
fn send(stream: &mut TcpStream, offer: &Offer, index: usize, first: usize) -> anyhow::Result<()> {
    let entry = offer.manifest.entries.get(index);
    let Some((entry, Kind::File(wanted))) = entry.map(|entry| (entry, &entry.kind)) else {
        bail!("it wants entry {index}, which is no file")
    };
    ensure!(first <= wanted.blocks.len(), "it wants block {first}");
    let path = offer.manifest.path(entry, &offer.suffix);
    let mut file = File::open(&path).unwrap_or_else(|error| give_up(&path, &error));
    file.seek(SeekFrom::Start(first as u64 * BLOCK as u64))?;
    let mut buffer = Vec::new();
    for block in first..wanted.blocks.len() {
        buffer.resize(wanted.block_len(block), 0);
        file.read_exact(&mut buffer).unwrap_or_else(|error| give_up(&path, &error));
        stream.write_all(&buffer)?;
    }
    Ok(())
}

/// Says why files can't be sent, and waits for the end of this process. The connection stays: the other
/// helper would only say that it broke.
fn give_up(path: &Path, error: &io::Error) -> ! {
    let path = path.display();
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("{path} has changed while it was staged"),
        _ => format!("cannot read {path}: {error}"),
    };
    say(&Said::Failed { why });
    loop {
        thread::park();
    }
}
